//! Errors as the protocol writes them.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use whale_lm::LmError;

/// A request that is refused or failed.
#[derive(Debug)]
pub(crate) struct Fault {
    status: StatusCode,
    message: String,
    /// The setting that is wrong.
    param: Option<&'static str>,
    code: Option<&'static str>,
}

impl Fault {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            code: None,
        }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A setting that is known, but not what it is set to.
    pub(super) fn setting(param: &'static str, message: impl Into<String>) -> Self {
        Self {
            param: Some(param),
            ..Self::bad(message)
        }
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(super) fn no_model(name: &str) -> Self {
        let message = format!("there is no model `{name}`; `/v1/models` lists them");
        Self {
            param: Some("model"),
            code: Some("model_not_found"),
            ..Self::not_found(message)
        }
    }

    pub(super) fn method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "this address does not take that method",
        )
    }

    pub(super) fn not_here(message: &str) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, message)
    }

    pub(super) fn forbidden(message: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    pub(super) fn unauthorized() -> Self {
        let message = "this server wants a key: send it as `Authorization: Bearer KEY`";
        Self {
            code: Some("invalid_api_key"),
            ..Self::new(StatusCode::UNAUTHORIZED, message)
        }
    }

    pub(super) fn status(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, message)
    }

    pub(super) fn body(&self) -> Value {
        let kind = match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        json!({ "error": {
            "message": self.message,
            "type": kind,
            "param": self.param,
            "code": self.code,
        } })
    }
}

impl From<LmError> for Fault {
    fn from(error: LmError) -> Self {
        let message = error.to_string();
        match error {
            LmError::TooLong { .. } => Self {
                code: Some("context_length_exceeded"),
                ..Self::setting("messages", message)
            },
            LmError::Setting { name, .. } => Self::setting(name, message),
            LmError::Empty
            | LmError::NoTemplate
            | LmError::Template(_)
            | LmError::Token { .. }
            | LmError::Constraint(_)
            | LmError::Adapter { .. }
            | LmError::Format { .. }
            | LmError::Io { .. } => Self::bad(message),
            LmError::NoAdapter(name) => Self::no_model(&name),
            LmError::Busy { .. } => Self::new(StatusCode::TOO_MANY_REQUESTS, message),
            LmError::Stopped => Self::new(StatusCode::SERVICE_UNAVAILABLE, message),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if matches!(
            self.status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
