//! The writer: the core's effects as calls to the API server.
//!
//! Owns: one waiting call per pod ([`muster_core::outbox`]), how many calls are on their
//! way, what is tried again (`attempts`), and the answers to the core: every bind,
//! every eviction and every write of objects that is accepted is answered. Runs
//! on a thread of its own, so that a burst of decoding cannot delay a bind.
//!
//! Must never decide what to write, start a call when we may not write, or
//! grow without a limit.

mod attempts;
mod bodies;
mod bucket;
mod events;
#[cfg(test)]
mod eviction_tests;
mod lanes;
mod objects;
mod rest;
#[cfg(test)]
mod tests;

pub use attempts::{
    BIND_ATTEMPTS, CALL_DEADLINE, EVENT_ATTEMPTS, EVICTION_ATTEMPTS, PATCH_ATTEMPTS,
};
pub use events::{MAX_SERIES, SERIES_REFRESH, SERIES_WINDOW};
pub use muster_core::outbox::{MAX_EVENTS, MAX_PATCHES};

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use muster_core::io::{Effect, Eviction, Input, Reply, Request};
use muster_core::outbox::{Added, Bind, Dispatch, Evict, PodCall};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tracing::{debug, info, warn};

pub(crate) use self::attempts::Fenced;
use self::bucket::Bucket;
use self::events::Recent;
use self::objects::ObjectWrites;
pub(crate) use self::objects::version_in;
use crate::client::{ClientError, Wire};
use crate::elect::Leadership;
use crate::metrics::Metrics;
use crate::run::Message;

/// Binds and status patches on their way at a time.
pub const CALL_LANES: usize = 64;
/// Of these, how many carry events while no call waits.
pub const SHARED_LANES: usize = 24;
/// Lanes for events only: few, so that a flood of binds does not silence them
/// and they do not crowd out binds.
pub const EVENT_LANES: usize = 8;
/// At the end, calls that wait may still be started for this long.
pub const DRAIN_STARTS: Duration = Duration::from_millis(500);
/// At the end, calls on their way are waited for this long.
pub const DRAIN: Duration = Duration::from_secs(5);

/// Limits from the configuration; not positive means none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Calls per second in the long run.
    pub qps: f64,
    /// Calls at once.
    pub burst: u32,
}

struct State {
    dispatch: Dispatch,
    recent: Recent,
    known: lanes::KnownConditions,
    /// Objects to be written before anything else.
    objects: VecDeque<ObjectWrites>,
    objects_flying: usize,
}

impl State {
    /// Whether nothing waits and nothing is on its way, events aside.
    fn is_idle(&self) -> bool {
        self.dispatch.is_idle() && self.objects.is_empty() && self.objects_flying == 0
    }
}

struct Shared {
    state: Mutex<State>,
    /// One permit per call that is ready (or was, before it was replaced).
    calls: Semaphore,
    events: Semaphore,
    /// Binds, evictions and writes of objects, accepted and not answered.
    unanswered: AtomicUsize,
    events_flying: AtomicUsize,
    rest: rest::Rest,
    /// Something ended: worth a look for whoever waits for the end.
    ended: Notify,
    fenced: Fenced,
    bucket: Option<Bucket>,
    event_bucket: Option<Bucket>,
    answers: mpsc::Sender<Message>,
    metrics: Metrics,
    host: String,
}

/// The writer. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    shared: Arc<Shared>,
}

/// What the writer needs.
pub struct Setup {
    /// Where the server is.
    pub config: kube::Config,
    /// When we may write.
    pub leadership: Leadership,
    /// Limits.
    pub limits: Limits,
    /// Where answers go.
    pub answers: mpsc::Sender<Message>,
    /// Metrics.
    pub metrics: Metrics,
    /// Our name in events.
    pub host: String,
}

/// Starts the writer's thread. The receiver hears when the thread has ended,
/// which it does only by a panic.
pub fn start(setup: Setup) -> Result<(Writer, oneshot::Receiver<()>), ClientError> {
    let wire = Wire::new(&setup.config, CALL_LANES + EVENT_LANES)?;
    let bucket = || Bucket::new(setup.limits.qps, setup.limits.burst);
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            dispatch: Dispatch::default(),
            recent: Recent::default(),
            known: lanes::KnownConditions::default(),
            objects: VecDeque::new(),
            objects_flying: 0,
        }),
        calls: Semaphore::new(0),
        events: Semaphore::new(0),
        unanswered: AtomicUsize::new(0),
        events_flying: AtomicUsize::new(0),
        rest: rest::Rest::default(),
        ended: Notify::new(),
        bucket: bucket(),
        event_bucket: bucket(),
        fenced: Fenced { wire, leadership: setup.leadership },
        answers: setup.answers,
        metrics: setup.metrics,
        host: setup.host,
    });
    let (alive, ended) = oneshot::channel();
    let lanes = shared.clone();
    let thread = std::thread::Builder::new().name("write".to_owned());
    let started = thread.spawn(move || {
        lanes::run(&lanes);
        drop(alive);
    });
    if let Err(error) = started {
        // `alive` is dropped with the closure: the caller hears of the end.
        warn!("cannot start the writer's thread: {error}");
    }
    Ok((Writer { shared }, ended))
}

impl Writer {
    /// Takes effects over. Returns the inputs that answer at once.
    pub fn submit(&self, effects: Vec<Effect>) -> Vec<Input> {
        let shared = &*self.shared;
        let (mut calls, mut events) = (0, 0);
        let mut answers = Vec::new();
        let mut state = shared.state.lock();
        for effect in effects {
            let call = match effect {
                Effect::Bind { pod, node, attempt, devices } => {
                    shared.unanswered.fetch_add(1, Ordering::Relaxed);
                    PodCall::Bind(Bind { pod, node, attempt, devices })
                }
                Effect::PatchStatus(patch) => PodCall::Patch(patch),
                Effect::Event(event) => {
                    if state.dispatch.add_event(event) {
                        events += 1;
                    } else {
                        shared.metrics.async_call("event", "dropped", 0.0);
                    }
                    continue;
                }
                Effect::Call { token, pod, request: Request::Write(patches), .. } => {
                    // Counted like a bind: what waits is limited by that.
                    shared.unanswered.fetch_add(1, Ordering::Relaxed);
                    state.objects.push_back(ObjectWrites { token, pod, patches });
                    calls += 1;
                    continue;
                }
                Effect::Call { token, pod, request: Request::Evict { victim, how }, .. } => {
                    shared.unanswered.fetch_add(1, Ordering::Relaxed);
                    PodCall::Evict(Evict { token, preemptor: pod, victim, how })
                }
                // The controller's: whoever drives the core gives it to the board.
                Effect::Group(_) => continue,
                Effect::Call { token, plugin, .. } => {
                    let text = format!("plugin {plugin} asked for a call that nothing handles");
                    warn!("{text}");
                    let reply = Reply::Failed(text.into());
                    answers.push(Input::Reply { token, reply });
                    continue;
                }
            };
            calls += usize::from(shared.add(&mut state.dispatch, call, &mut answers));
        }
        drop(state);
        if calls > 0 {
            shared.calls.add_permits(calls);
        }
        if events > 0 {
            shared.events.add_permits(events);
        }
        answers
    }

    /// Binds, evictions and writes of objects that were accepted and not answered yet.
    #[must_use]
    pub fn unanswered_binds(&self) -> usize {
        self.shared.unanswered.load(Ordering::Relaxed)
    }

    /// Ends the writing: starts what waits for at most [`DRAIN_STARTS`], waits
    /// for what is on its way for at most [`DRAIN`]. Nothing is started after.
    pub async fn drain(&self) {
        let shared = &*self.shared;
        let flying = || shared.events_flying.load(Ordering::Relaxed);
        let idle = |s: &State| s.is_idle() && !s.dispatch.has_events() && flying() == 0;
        let _ = tokio::time::timeout(DRAIN_STARTS, shared.until(idle)).await;
        shared.calls.close();
        shared.events.close();
        let left = {
            let mut state = shared.state.lock();
            shared.unanswered.fetch_sub(state.objects.len(), Ordering::Relaxed);
            state.objects.clear();
            state.dispatch.discard()
        };
        for call in &left {
            shared.metrics.pending_async_calls(call.call_type(), -1);
        }
        // An event cut short harms nobody.
        let none_flies = |s: &State| s.dispatch.flying() + s.objects_flying == 0;
        let finished = tokio::time::timeout(DRAIN, shared.until(none_flies)).await;
        info!(not_started = left.len(), finished = finished.is_ok(), "writer drained");
    }
}

impl Shared {
    /// Adds a call; `true` if one more is ready. What answers at once is put into
    /// `answers`.
    fn add(&self, dispatch: &mut Dispatch, call: PodCall, answers: &mut Vec<Input>) -> bool {
        let call_type = call.call_type();
        match dispatch.add(call) {
            Added::Waits { ready } => {
                self.metrics.pending_async_calls(call_type, 1);
                ready
            }
            Added::Replaced(PodCall::Bind(old)) => {
                debug!(pod = %old.pod, attempt = old.attempt, "bind replaced by a newer one");
                self.unanswered.fetch_sub(1, Ordering::Relaxed);
                false
            }
            Added::Replaced(old) => {
                self.metrics.pending_async_calls(call_type, 1);
                self.metrics.pending_async_calls(old.call_type(), -1);
                true
            }
            Added::Dropped(PodCall::Evict(evict)) => {
                self.unanswered.fetch_sub(1, Ordering::Relaxed);
                let text = "too many evictions wait to be asked for";
                warn!(pod = %evict.victim, "{text}");
                let reply = Reply::Evicted(Eviction::Unavailable(text.into()));
                answers.push(Input::Reply { token: evict.token, reply });
                false
            }
            Added::Dropped(call) => {
                debug!(pod = %call.pod(), "status patch merged or not worth writing");
                false
            }
        }
    }

    /// Returns when `condition` holds.
    async fn until(&self, condition: impl Fn(&State) -> bool) {
        loop {
            let ended = self.ended.notified();
            if condition(&self.state.lock()) {
                return;
            }
            // The pause covers what ends without a notice.
            let _ = tokio::time::timeout(Duration::from_millis(20), ended).await;
        }
    }
}
