//! Who may ask.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, header::AUTHORIZATION},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{Fault, Server};

/// A key that clients must send. Only its hash is kept, and hashes are compared in constant time,
/// so that neither its length nor its beginning shows in how long an answer takes.
pub(crate) struct Key([u8; 32]);

impl Key {
    pub(crate) fn new(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    fn is(&self, sent: &[u8]) -> bool {
        let sent: [u8; 32] = Sha256::digest(sent).into();
        self.0.ct_eq(&sent).into()
    }
}

/// Lets requests with the key pass, and questions after the server's health.
pub(super) async fn check(
    State(server): State<Arc<Server>>,
    request: Request,
    next: Next,
) -> Response {
    if let Some(key) = &server.key
        && request.uri().path() != "/health"
    {
        let sent = request
            .headers()
            .get(AUTHORIZATION)
            .map(HeaderValue::as_bytes);
        let sent = sent
            .and_then(|sent| sent.strip_prefix(b"Bearer "))
            .unwrap_or_default();
        if !key.is(sent) {
            return Fault::unauthorized().into_response();
        }
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_itself_is_taken() {
        let key = Key::new("secret");
        assert!(key.is(b"secret"));
        for wrong in [&b""[..], b"secre", b"secrets", b"Secret"] {
            assert!(!key.is(wrong));
        }
    }
}
