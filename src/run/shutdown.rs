//! The one signal that ends the process in good order.
//!
//! Owns a flag that goes from "run" to "stop" once and never back. Must never
//! carry a reason or wait for anybody: each part that hears it ends by itself.

use tokio::sync::watch;

/// Says once, to everybody who holds a clone, that the process is to end.
#[derive(Clone, Debug)]
pub struct Shutdown {
    flag: watch::Sender<bool>,
}

impl Shutdown {
    /// A signal that was not given yet.
    #[must_use]
    pub fn new() -> Self {
        let (flag, _) = watch::channel(false);
        Self { flag }
    }

    /// Gives the signal. Giving it again changes nothing.
    pub fn trigger(&self) {
        self.flag.send_replace(true);
    }

    /// Whether the signal was given.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self.flag.borrow()
    }

    /// Returns when the signal was given, at once if it was given before.
    pub async fn wait(&self) {
        let mut seen = self.flag.subscribe();
        // Fails only when every sender is gone, and `self` is one.
        let _ = seen.wait_for(|stop| *stop).await;
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn is_heard_by_clones_before_and_after() {
        let shutdown = Shutdown::new();
        let early = tokio::spawn({
            let clone = shutdown.clone();
            async move { clone.wait().await }
        });
        assert!(!shutdown.is_set());
        shutdown.trigger();
        shutdown.trigger();
        early.await.unwrap();
        shutdown.clone().wait().await;
        assert!(shutdown.is_set());
    }
}
