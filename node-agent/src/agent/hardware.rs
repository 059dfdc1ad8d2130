//! The thread that looks at the hardware.
//!
//! Owns when to look: when the driver says that something has happened, and at a slow pace. Must never
//! be called from the runtime's thread: a driver may take its time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::watch;

use super::metrics::Metrics;
use crate::Sources;
use crate::reader::Reader;
use crate::reading::Reading;

/// Two looks are at least this far apart, whatever the driver says.
const GAP: Duration = Duration::from_millis(250);

/// How often a quick look is taken in between: links go down without a word of the driver.
const QUICK: Duration = Duration::from_secs(1);

/// Waits until it is time for another look: the driver says so, a quick look does, or `poll` is
/// over.
fn wait(reader: &mut Reader, rung: &Receiver<()>, began: Instant, poll: Duration) {
    loop {
        let left = poll.saturating_sub(began.elapsed());
        match rung.recv_timeout(left.min(QUICK)) {
            Ok(()) => return std::thread::sleep(GAP.saturating_sub(began.elapsed())),
            Err(RecvTimeoutError::Timeout) if left <= QUICK || reader.differs() => return,
            Err(RecvTimeoutError::Timeout) => {}
            // The reader keeps the bell; without one there is still the pace.
            Err(RecvTimeoutError::Disconnected) => return std::thread::sleep(left),
        }
    }
}

/// Starts the thread. It ends when nobody listens any more.
pub fn start(
    sources: Sources,
    poll: Duration,
    metrics: Arc<Metrics>,
) -> anyhow::Result<watch::Receiver<Option<Arc<Reading>>>> {
    // One place: a second word while the first is unread says nothing new.
    let (bell, rung) = sync_channel::<()>(1);
    let notify = Box::new(move || {
        let _ = bell.try_send(());
    });
    let mut reader = Reader::new(sources, notify)?;
    let (sender, receiver) = watch::channel::<Option<Arc<Reading>>>(None);
    let look = move || {
        loop {
            let began = Instant::now();
            let reading = reader.hardware(began);
            metrics.read("hardware", true);
            metrics.hardware(&reading);
            if sender.is_closed() {
                return;
            }
            // Power and the like are for the metrics only: they wake nobody.
            sender.send_if_modified(|last| {
                let news = last.as_ref().is_none_or(|last: &Arc<Reading>| last.is_news(&reading));
                if news {
                    *last = Some(Arc::new(reading));
                }
                news
            });
            wait(&mut reader, &rung, began, poll);
        }
    };
    std::thread::Builder::new()
        .name("hardware".to_owned())
        .spawn(look)
        .context("start the thread that reads the hardware")?;
    Ok(receiver)
}
