//! How many requests a server is sent at once: fewer when it says that it has too many, slowly more
//! when it does not.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Throttle {
    most: f64,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug)]
struct State {
    /// Additive increase, multiplicative decrease, as networks do it.
    limit: f64,
    running: usize,
}

/// A place among the requests that run; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place<'a>(&'a Throttle);

impl Throttle {
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1) as f64;
        let state = Mutex::new(State {
            limit: most,
            running: 0,
        });
        Self {
            most,
            state,
            freed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn enter(&self) -> Place<'_> {
        loop {
            // Made before the look, so that a place that is freed in between is not missed.
            let freed = self.freed.notified();
            {
                let mut state = self.state();
                if (state.running as f64) < state.limit {
                    state.running += 1;
                    return Place(self);
                }
            }
            freed.await;
        }
    }

    /// The server took a request.
    pub(super) fn succeeded(&self) {
        let mut state = self.state();
        state.limit = (state.limit + 1.0 / state.limit).min(self.most);
        drop(state);
        self.freed.notify_one();
    }

    /// The server said that it has too many.
    pub(super) fn refused(&self) {
        let mut state = self.state();
        state.limit = (state.limit / 2.0).max(1.0);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_refusal_halves_and_success_restores() {
        let throttle = Throttle::new(4);
        let mut places = Vec::new();
        for _ in 0..4 {
            places.push(throttle.enter().await);
        }
        let full = tokio::time::timeout(Duration::from_millis(10), throttle.enter());
        assert!(full.await.is_err());

        throttle.refused();
        places.truncate(2);
        let halved = tokio::time::timeout(Duration::from_millis(10), throttle.enter());
        assert!(halved.await.is_err());

        (0..10).for_each(|_| throttle.succeeded());
        assert_eq!(throttle.state().limit, 4.0);
        let _ = throttle.enter().await;
    }
}
