//! One kind's watch, from the first list to the end of the process.

use std::pin::pin;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::Api;
use kube_runtime::watcher::{self, Event, watcher};
use muster_core::io::{Change, Input};
use tracing::{debug, info, warn};

use super::{Batch, Guarded, PAGE, Sink, Watched};
use crate::controller::Note;
use crate::run::Message;

/// Most inputs that travel together.
const BATCH: usize = 256;
/// Pause after the first failure; doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause.
const LAST_PAUSE: Duration = Duration::from_secs(3);

/// Follows a kind for ever. Returns only when nobody listens any more.
pub(super) async fn follow<T: Watched>(client: kube::Client, sink: Sink) {
    let mut pause = FIRST_PAUSE;
    loop {
        let config = watcher::Config {
            field_selector: T::FIELDS.map(str::to_owned),
            label_selector: sink.labels::<T>(),
            page_size: Some(PAGE),
            // Quorum reads: a list never shows less than what was seen before.
            list_semantic: watcher::ListSemantic::MostRecent,
            ..watcher::Config::default()
        };
        let mut events = pin!(watcher(Api::<Guarded<T>>::all(client.clone()), config));
        loop {
            let mut batch = Batch::with_capacity(1);
            let failure = gather::<T>(&mut events, &mut batch, &sink).await;
            if !batch.is_empty() && sink.inputs.send(Message::Inputs(batch)).await.is_err() {
                return;
            }
            let Some(error) = failure else {
                pause = FIRST_PAUSE;
                continue;
            };
            warn!(kind = T::NAME, "watch interrupted, trying again in {pause:?}: {error}");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
            if is_gone(&error) {
                // kube's watcher would ask for the same version again.
                break;
            }
        }
    }
}

/// Waits for one event and takes those that have arrived with it, up to the
/// first failure.
async fn gather<T: Watched>(
    events: &mut (impl futures::Stream<Item = watcher::Result<Event<Guarded<T>>>> + Unpin),
    batch: &mut Batch,
    sink: &Sink,
) -> Option<watcher::Error> {
    let mut next = events.next().await;
    loop {
        match next {
            Some(Ok(event)) => batch.extend(input(event, sink)),
            Some(Err(error)) => return Some(error),
            None => return Some(watcher::Error::NoResourceVersion),
        }
        if batch.len() >= BATCH {
            return None;
        }
        match events.next().now_or_never() {
            Some(event) => next = event,
            None => return None,
        }
    }
}

fn input<T: Watched>(event: Event<Guarded<T>>, sink: &Sink) -> Option<Input> {
    let metrics = &sink.metrics;
    if matches!(event, Event::Apply(_) | Event::Delete(_)) {
        // A list comes in bulk by itself.
        sink.pace.busy();
    }
    match event {
        Event::Init => {
            info!(kind = T::NAME, "listing");
            T::note(Note::Listing, &sink.board);
            Some(Input::RelistStarted(T::KIND))
        }
        Event::InitDone => {
            info!(kind = T::NAME, "listed");
            T::note(Note::Listed, &sink.board);
            Some(Input::RelistDone(T::KIND))
        }
        Event::Apply(guarded) | Event::InitApply(guarded) => {
            metrics.watch_event(T::NAME);
            match guarded.object {
                Ok(object) if !object.is_wanted() => None,
                Ok(object) => {
                    T::note(Note::Changed(&object), &sink.board);
                    Some(T::changed(Change::Upsert(object)))
                }
                Err(outline) => {
                    metrics.malformed(T::NAME);
                    warn!(
                        kind = T::NAME,
                        namespace = outline.key.namespace,
                        name = outline.key.name,
                        "skipped a malformed object, correct or delete it: {}",
                        outline.error
                    );
                    None
                }
            }
        }
        Event::Delete(guarded) => {
            metrics.watch_event(T::NAME);
            if let Ok(object) = &guarded.object {
                if !object.is_wanted() {
                    return None;
                }
                T::note(Note::Gone(object), &sink.board);
            }
            let key = guarded.key();
            debug!(kind = T::NAME, namespace = key.namespace, name = key.name, "deleted");
            Some(T::deleted(key))
        }
    }
}

/// Whether the version we asked for is no longer known to the server.
fn is_gone(error: &watcher::Error) -> bool {
    let code = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code,
        _ => return false,
    };
    code == http::StatusCode::GONE.as_u16()
}
