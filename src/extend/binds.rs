//! Binds that extenders were asked for and have not answered.
//!
//! Owns their number, and whether another may begin: at the end of the process they
//! are waited for, because each of them is a write. Must never wait without a limit.

use std::time::Duration;

use tokio::sync::watch;

#[derive(Clone, Copy, Debug, Default)]
struct State {
    flying: usize,
    closed: bool,
}

/// See the module's text.
pub(super) struct Binds(watch::Sender<State>);

impl Binds {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(State::default()))
    }

    /// A bind begins; false if none may any more.
    pub(super) fn begin(&self) -> bool {
        self.0.send_if_modified(|state| {
            state.flying += usize::from(!state.closed);
            !state.closed
        })
    }

    /// A bind was answered, or given up.
    pub(super) fn end(&self) {
        self.0.send_modify(|state| state.flying = state.flying.saturating_sub(1));
    }

    /// Lets none begin any more and waits for the others; how many are left.
    pub(super) async fn drain(&self, limit: Duration) -> usize {
        self.0.send_modify(|state| state.closed = true);
        let mut state = self.0.subscribe();
        let none = state.wait_for(|state| state.flying == 0);
        // An error is the sender's end, which is ours.
        let _ = tokio::time::timeout(limit, none).await;
        self.0.borrow().flying
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_binds_but_not_for_ever_and_lets_none_begin() {
        let limit = Duration::from_secs(5);
        let binds = Arc::new(Binds::new());
        assert!(binds.begin() && binds.begin());
        let of_call = Arc::clone(&binds);
        let begin = Instant::now();
        let answer = |after: u64| {
            let binds = Arc::clone(&of_call);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(after)).await;
                assert!(!binds.begin(), "one began at the end");
                binds.end();
            })
        };
        let answers = [answer(2), answer(9)];
        assert_eq!(binds.drain(limit).await, 1);
        assert_eq!(begin.elapsed(), limit);
        assert_eq!(binds.drain(limit).await, 0);
        assert_eq!(begin.elapsed(), Duration::from_secs(9));
        for answer in answers {
            answer.await.unwrap();
        }
        assert_eq!(binds.drain(limit).await, 0);
    }
}
