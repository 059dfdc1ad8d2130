//! The thread that NVML is called on.
//!
//! Owns the library. A driver may take seconds for an answer (persistence mode off) or
//! never give one: whoever asks waits for a limited time and is told which call has not
//! come back. Must never start a second call while one is under way, and never call NVML
//! from the thread of whoever asks.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;

use super::events::{self, Event, EventKind};
use super::glance::Glances;
use super::query::{self, Cache};
use super::{Snapshot, explain};
use crate::reader::Notify;

const SONAME: &str = "libnvidia-ml.so.1";
/// Most events that wait to be taken; older ones go first.
const MAX_EVENTS: usize = 256;
/// A look at all GPUs that takes longer than this is slow.
const SLOW: Duration = Duration::from_secs(1);
/// After a slow look the driver rests so many times as long as it took.
const RESTS: u32 = 9;
/// No rest is longer.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// What is known of NVML at one time.
#[derive(Clone, Debug)]
pub struct Outlook {
    /// The newest snapshot, or why there is none.
    pub answer: Result<Arc<Snapshot>, String>,
    /// The call that has not come back, and for how long.
    pub pending: Option<(&'static str, Duration)>,
    /// A look at all GPUs takes so long that it is taken seldom.
    pub slow: bool,
    /// What has happened since the last time.
    pub events: Vec<Event>,
}

/// The asking side.
pub struct Client {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    notify: Notify,
    /// Whether events are wanted.
    events: bool,
    pub(super) stop: AtomicBool,
}

#[derive(Default)]
struct State {
    /// How many snapshots were asked for, and how many are done.
    asked: u64,
    done: u64,
    /// A quick look is asked for, and what it found.
    glance: Glance,
    answer: Option<Result<Arc<Snapshot>, String>>,
    events: VecDeque<Event>,
    call: Option<(&'static str, Instant)>,
    /// Nobody waits for the snapshot under way any more.
    abandoned: bool,
    /// The newest snapshot came after whoever asked for it had left, and nobody has taken it yet.
    late: bool,
    /// Something has happened that only another look shows.
    again: bool,
    /// The last look was slow: the next one is not before this time, unless something happens.
    rest_until: Option<Instant>,
    /// The thread has ended.
    dead: Option<String>,
}

/// Where a quick look stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Glance {
    #[default]
    Nothing,
    Asked,
    Done {
        differs: bool,
    },
}

impl State {
    fn is_asked(&self) -> bool {
        self.asked != self.done
    }

    /// Whether what was answered last will do.
    fn will_do(&self, now: Instant) -> bool {
        let rests = self.rest_until.is_some_and(|until| now < until);
        !self.again && (self.late || rests)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an event, and wakes the reader.
    pub(super) fn push(&self, event: Event) {
        let mut state = self.lock();
        if state.events.len() == MAX_EVENTS {
            state.events.pop_front();
        }
        // An XID says all there is to know of it.
        state.again |= event.kind == EventKind::Changed;
        state.events.push_back(event);
        drop(state);
        (self.notify)();
    }

    /// Waits, unless the agent ends.
    pub(super) fn pause(&self, duration: Duration) {
        let state = self.lock();
        let going = |_: &mut State| !self.stop.load(Ordering::Relaxed);
        drop(self.changed.wait_timeout_while(state, duration, going));
    }
}

/// Tells which call is under way.
pub(super) struct Progress(Arc<Shared>);

impl Progress {
    pub(super) fn begin(&self, function: &'static str) {
        self.0.lock().call = Some((function, Instant::now()));
    }

    pub(super) fn end(&self) {
        self.0.lock().call = None;
    }
}

impl Client {
    /// Starts the thread. The library (the system's, if none is given) is loaded when it is first
    /// asked, and again each time as long as that fails.
    pub fn start(library: Option<PathBuf>, events: bool, notify: Notify) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            notify,
            events,
            stop: AtomicBool::new(false),
        });
        let name = library.map_or_else(|| OsStr::new(SONAME).to_owned(), PathBuf::into_os_string);
        let worker = Worker { shared: Arc::clone(&shared), name };
        if let Err(error) = thread::Builder::new().name("nvml".to_owned()).spawn(|| worker.run()) {
            let reason = format!("no thread for it: {error}; raise the limit of processes");
            shared.lock().dead = Some(reason);
        }
        Self { shared }
    }

    /// A new snapshot, if it comes within `wait`; else the last one, and what is waited for. A driver
    /// that is slow is neither waited for twice nor asked all the time.
    pub fn ask(&self, wait: Duration) -> Outlook {
        let mut state = self.shared.lock();
        if !state.is_asked() && !state.will_do(Instant::now()) {
            state.asked += 1;
            state.again = false;
            // The thread is still at a quick look: who has waited for that does not wait for more.
            state.abandoned = state.glance == Glance::Asked;
            self.shared.changed.notify_all();
        }
        state.late = false;
        let wanted = state.asked;
        if !state.abandoned {
            let open = |state: &mut State| state.done < wanted && state.dead.is_none();
            let waited = self.shared.changed.wait_timeout_while(state, wait, open);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.abandoned = state.done < wanted;
        let answer = match (&state.dead, &state.answer) {
            (Some(reason), _) => Err(reason.clone()),
            (None, Some(answer)) => answer.clone(),
            (None, None) => Err(format!("no answer within {} s", wait.as_secs())),
        };
        let now = Instant::now();
        state.glance = Glance::Nothing;
        let pending = state.call.filter(|_| state.abandoned);
        Outlook {
            answer,
            pending: pending.map(|(function, since)| (function, now.duration_since(since))),
            slow: state.abandoned || state.rest_until.is_some_and(|until| now < until),
            events: state.events.drain(..).collect(),
        }
    }

    /// A quick look: whether something has changed since the last snapshot, or it takes longer than
    /// `wait`, which is news too. If there is no snapshot, nothing is known to have changed.
    pub fn differs(&self, wait: Duration) -> bool {
        let mut state = self.shared.lock();
        if state.is_asked() {
            // There will be word when it is done.
            return false;
        }
        state.glance = Glance::Asked;
        self.shared.changed.notify_all();
        let open = |state: &mut State| state.glance == Glance::Asked && state.dead.is_none();
        let waited = self.shared.changed.wait_timeout_while(state, wait, open);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let Glance::Done { differs } = state.glance else { return state.dead.is_none() };
        state.glance = Glance::Nothing;
        state.again |= differs;
        differs
    }
}

impl Drop for Client {
    /// The thread ends by itself, when its call comes back.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        drop(self.shared.lock());
        self.shared.changed.notify_all();
    }
}

struct Worker {
    shared: Arc<Shared>,
    name: std::ffi::OsString,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Snapshot,
    Glance,
}

/// A loaded library, and the thread that waits for its events.
struct Loaded {
    nvml: Arc<Nvml>,
    listening: events::Listening,
    glances: Glances,
}

impl Worker {
    fn run(self) {
        let _guard = Guard(Arc::clone(&self.shared));
        let progress = Progress(Arc::clone(&self.shared));
        let mut loaded: Option<Loaded> = None;
        let mut cache = Cache::default();
        while let Some(question) = self.wait_for_a_question() {
            if question == Question::Glance {
                let differs = loaded.as_mut().is_some_and(|l| l.glances.differ(&l.nvml, &progress));
                let mut state = self.shared.lock();
                // Nobody waits for it any more if there was a real look meanwhile.
                if state.glance == Glance::Asked {
                    state.glance = Glance::Done { differs };
                }
                drop(state);
                self.shared.changed.notify_all();
                continue;
            }
            let began = Instant::now();
            let answer = self.look(&mut loaded, &progress, &mut cache);
            progress.end();
            let took = began.elapsed();
            let mut state = self.shared.lock();
            state.answer = Some(answer.map(Arc::new));
            state.done = state.asked;
            state.rest_until =
                (took > SLOW).then(|| Instant::now() + (took * RESTS).min(LONGEST_REST));
            state.late = std::mem::take(&mut state.abandoned);
            let late = state.late;
            drop(state);
            self.shared.changed.notify_all();
            if late {
                (self.shared.notify)();
            }
        }
        if let Some(loaded) = loaded {
            loaded.end();
        }
    }

    /// None if the agent ends.
    fn wait_for_a_question(&self) -> Option<Question> {
        let stop = || self.shared.stop.load(Ordering::Relaxed);
        let state = self.shared.lock();
        let idle =
            |state: &mut State| !state.is_asked() && state.glance != Glance::Asked && !stop();
        let state = self.shared.changed.wait_while(state, idle);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let question = if state.is_asked() { Question::Snapshot } else { Question::Glance };
        (!stop()).then_some(question)
    }

    fn look(
        &self,
        loaded: &mut Option<Loaded>,
        progress: &Progress,
        cache: &mut Cache,
    ) -> Result<Snapshot, String> {
        if loaded.is_none() {
            progress.begin("nvmlInit_v2");
            let nvml = Nvml::builder().lib_path(&self.name).init().map_err(|e| explain(&e))?;
            let nvml = Arc::new(nvml);
            let listening = events::Listening::new(&nvml, &self.shared, self.shared.events);
            *loaded = Some(Loaded { nvml, listening, glances: Glances::default() });
        }
        let Some(library) = loaded else { return Err("the library is gone".to_owned()) };
        // Both, whatever the first one says.
        let happened = library.listening.happened();
        let as_before = library.glances.begin(&library.nvml, progress);
        if happened {
            cache.links.forget();
        }
        if happened || !as_before {
            cache.gpus.clear();
        }
        match query::snapshot(&library.nvml, progress, cache) {
            Ok(snapshot) => {
                library.glances.end(&snapshot);
                library.listening.follow(&snapshot);
                Ok(snapshot)
            }
            Err(error) => {
                *cache = Cache::default();
                // After an update or a reload of the driver only a new library helps.
                if let Some(library) = loaded.take() {
                    library.end();
                }
                Err(explain(&error))
            }
        }
    }
}

impl Loaded {
    fn end(self) {
        self.listening.end();
        // The wrapper panics when it is dropped without this function.
        if self.nvml.lib().nvmlShutdown.is_err() {
            std::mem::forget(self.nvml);
        }
    }
}

/// Says that the thread has ended, however that came about.
struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.lock().dead = Some("the library crashed; is it really NVIDIA's?".to_owned());
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(library: PathBuf) -> String {
        let client = Client::start(Some(library), false, Box::new(|| {}));
        client.ask(Duration::from_secs(20)).answer.expect_err("no library")
    }

    #[test]
    fn says_why_there_is_no_library() {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("libnvidia-ml.so.1");
        let missing = reason(library.clone());
        assert!(missing.starts_with("library not found: "), "{missing}");

        std::fs::write(&library, "not a library".repeat(100)).unwrap();
        let broken = reason(library);
        assert!(broken.starts_with("library not loaded: "), "{broken}");
    }

    #[test]
    fn another_library_is_refused() {
        let other = reason(PathBuf::from("libc.so.6"));
        assert!(other.contains("the driver is too old, or the library not NVIDIA's"), "{other}");
    }
}
