//! The owner: the one thread that holds the core.
//!
//! Owns: the core, the order of inputs and cycles, and the limit on binds not
//! yet answered. Must never wait for anything but its mailbox: effects go to
//! the writer and come back as inputs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use muster_core::audit::Audited;
use muster_core::framework::ExtenderId;
use muster_core::io::{Effect, Input, Kind, Request};
use muster_core::report::{Observation, PolicyReport};
use muster_core::{CacheView, QueueView, Reload, ReloadError};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::{error, info, warn};

use super::clock::Clock;
use super::{Shutdown, decisions};
use crate::ask::Asker;
use crate::controller::Board;
use crate::elect::Leadership;
use crate::extend::Extenders;
use crate::metrics::Metrics;
use crate::write::Writer;

/// Messages that may wait for the owner; a batch of a watch is one.
pub const MAILBOX: usize = 128;
/// Binds accepted and not answered, beyond which no cycle starts.
pub const MAX_UNANSWERED_BINDS: usize = 2000;
/// Cycles before the mailbox is looked at again.
const CYCLES: usize = 64;
/// Time of cycles before the mailbox is looked at again.
const CYCLES_TIME: Duration = Duration::from_millis(5);
/// Inputs applied before cycles get their turn.
const INPUTS: usize = 4096;
/// Steps that follow one another closer than this wait, so that a stream of
/// single answers is handled in batches: waking up costs more than an answer.
const MIN_STEP: Duration = Duration::from_millis(4);
/// A standby that takes over waits this long for what its watches still owe it:
/// the last writes of its predecessor. Lists read later than that owe nothing.
pub const SETTLE: Duration = Duration::from_millis(250);
/// Longest sleep: gauges are refreshed and the log level is looked at.
const MAX_SLEEP: Duration = Duration::from_millis(250);
/// How often the pods that policies govern are counted.
const COUNT: Duration = Duration::from_secs(1);
/// How often a checked build compares all that the core believes with what it was
/// told: the steps between are checked one by one.
const COMPARE: Duration = Duration::from_secs(10);

/// What the owner can be told or asked.
pub enum Message {
    /// Changes, in order.
    Inputs(Vec<Input>),
    /// One change or answer.
    Input(Input),
    /// Something else changed: look again.
    Wake,
    /// A question.
    Ask(Question),
    /// Another configuration, and where to say what became of it.
    Reload(Box<Reload>, oneshot::Sender<Result<u64, ReloadError>>),
}

/// What the owner can be asked. An answer that nobody waits for is dropped.
pub enum Question {
    /// What is queued.
    Queue(oneshot::Sender<QueueView>),
    /// What is cached.
    Cache(oneshot::Sender<CacheView>),
    /// The extenders that may still be asked.
    Extenders(oneshot::Sender<BTreeSet<ExtenderId>>),
    /// A pod by namespace and name, with a copy of the state to explain it on.
    Explain(String, String, oneshot::Sender<Option<muster_core::Question>>),
}

/// Which of the required kinds have been listed.
#[derive(Debug, Default)]
pub(super) struct Listed {
    all: AtomicBool,
}

impl Listed {
    pub(super) fn all(&self) -> bool {
        self.all.load(Ordering::Acquire)
    }
}

/// Nobody can send any more.
struct Ended;

pub(super) struct Owner {
    pub(super) core: Audited,
    pub(super) inbox: mpsc::Receiver<Message>,
    pub(super) writer: Writer,
    pub(super) extenders: Extenders,
    pub(super) asker: Asker,
    /// Hears what the core says of gangs.
    pub(super) board: Arc<Board>,
    pub(super) leadership: Leadership,
    pub(super) metrics: Metrics,
    pub(super) clock: Clock,
    pub(super) listed: Arc<Listed>,
    /// No cycle starts after this was given.
    pub(super) stop: Shutdown,
    /// The owner's own: it serves only to wait with a limit.
    pub(super) runtime: tokio::runtime::Runtime,
    pub(super) lists: Vec<Kind>,
    /// When all required kinds were listed first.
    pub(super) listed_at: Option<Instant>,
    /// Since when we lead without a break.
    pub(super) leads_since: Option<Instant>,
    pub(super) gauges: Instant,
    /// What was last told of policies, of which generation, and when.
    pub(super) reported: (PolicyReport, u64, Instant),
    /// When the core was last compared with its checker's picture.
    pub(super) compared: Instant,
    pub(super) verbosity: u8,
    /// Told when pods that kubelets refuse are to be watched.
    pub(super) refusals: Arc<Notify>,
}

impl Owner {
    /// Runs until nobody can send any more.
    pub(super) fn run(mut self) {
        self.look_at_verbosity();
        let mut last = Instant::now();
        let mut more = false;
        loop {
            if !self.receive(more, &mut last) {
                return;
            }
            let now = self.clock.now();
            self.core.advance(now);
            more = self.cycles();
            self.hand_over();
            self.observe();
            self.audit();
        }
    }

    /// Applies what has arrived, after waiting for it if there is nothing
    /// better to do. `false`: the end.
    fn receive(&mut self, busy: bool, last: &mut Instant) -> bool {
        if !busy {
            // In a stream of single messages, take them in batches.
            std::thread::sleep(MIN_STEP.saturating_sub(last.elapsed()));
        }
        let mut applied = 0;
        while applied < INPUTS {
            match self.inbox.try_recv() {
                Ok(message) => applied += self.handle(message),
                Err(TryRecvError::Empty) if applied > 0 || busy => break,
                Err(TryRecvError::Empty) => match self.wait() {
                    Ok(Some(message)) => applied += self.handle(message).max(1),
                    Ok(None) => break,
                    Err(Ended) => return false,
                },
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        *last = Instant::now();
        true
    }

    /// Waits for a message until something else is due.
    fn wait(&mut self) -> Result<Option<Message>, Ended> {
        let limit = self.sleep_time();
        let (inbox, runtime) = (&mut self.inbox, &self.runtime);
        let received = runtime.block_on(async { tokio::time::timeout(limit, inbox.recv()).await });
        match received {
            Ok(Some(message)) => Ok(Some(message)),
            Ok(None) => Err(Ended),
            Err(_) => Ok(None),
        }
    }

    fn sleep_time(&self) -> Duration {
        let mut sleep = MAX_SLEEP;
        if let Some(deadline) = self.core.core().next_deadline() {
            let micros = deadline.0.saturating_sub(self.clock.now().0);
            sleep = sleep.min(Duration::from_micros(u64::try_from(micros).unwrap_or(0)));
        }
        let settled = self.leads_since.map(|since| SETTLE.saturating_sub(since.elapsed()));
        match settled {
            Some(left) if !left.is_zero() => sleep.min(left),
            _ => sleep,
        }
    }

    /// Handles a message; returns how many inputs it was worth.
    fn handle(&mut self, message: Message) -> usize {
        match message {
            Message::Inputs(inputs) => {
                let n = inputs.len();
                for input in inputs {
                    self.apply(input);
                }
                n
            }
            Message::Input(input) => {
                self.apply(input);
                1
            }
            Message::Wake => 0,
            Message::Ask(Question::Queue(answer)) => {
                let _ = answer.send(self.core.core().queue_view());
                1
            }
            Message::Ask(Question::Cache(answer)) => {
                let _ = answer.send(self.core.core().cache_view());
                1
            }
            Message::Ask(Question::Extenders(answer)) => {
                let _ = answer.send(self.core.core().extenders_in_use());
                1
            }
            Message::Reload(reload, answer) => {
                let done = self.core.reload(self.clock.now(), *reload);
                self.look_for_refusals();
                let _ = answer.send(done.map(|()| self.core.core().version()));
                1
            }
            Message::Ask(Question::Explain(namespace, name, answer)) => {
                let _ = answer.send(self.core.core().question(&namespace, &name));
                1
            }
        }
    }

    fn apply(&mut self, input: Input) {
        if let Input::RelistDone(kind) = input
            && !self.lists.contains(&kind)
        {
            self.lists.push(kind);
            if self.listed_at.is_none()
                && Kind::ALL.iter().all(|k| !k.is_awaited() || self.lists.contains(k))
            {
                self.listed.all.store(true, Ordering::Release);
                self.listed_at = Some(Instant::now());
                info!("caches are filled");
                self.look_for_refusals();
            }
        }
        self.core.apply(self.clock.now(), input);
    }

    /// Whether we lead and know enough to decide.
    fn may_decide(&mut self) -> bool {
        if self.stop.is_set() || !self.leadership.is_leader() {
            self.leads_since = None;
            return false;
        }
        let since = *self.leads_since.get_or_insert_with(Instant::now);
        self.listed_at.is_some_and(|listed| listed > since || since.elapsed() >= SETTLE)
    }

    /// Runs some cycles; `true` if more may be ready.
    fn cycles(&mut self) -> bool {
        if !self.may_decide() {
            return false;
        }
        let begin = Instant::now();
        for _ in 0..CYCLES {
            let asked = self.extenders.unanswered();
            if self.writer.unanswered_binds() + asked >= MAX_UNANSWERED_BINDS {
                // The next answer wakes us.
                return false;
            }
            let Some(decision) = self.core.schedule_one(self.clock.now()) else {
                return false;
            };
            decisions::log(&decision, self.verbosity);
            self.metrics.decided(&decision);
            if begin.elapsed() > CYCLES_TIME {
                break;
            }
        }
        true
    }

    /// Gives the core's effects to those who carry them out.
    fn hand_over(&mut self) {
        let effects = self.core.take_effects();
        if effects.is_empty() {
            return;
        }
        let (mut rest, mut answers) = (Vec::with_capacity(effects.len()), Vec::new());
        for effect in effects {
            match effect {
                Effect::Call { token, request: Request::Post(post), .. } => {
                    answers.extend(self.asker.submit(token, post));
                }
                Effect::Call {
                    token, pod, request: Request::Extender { attempt, call }, ..
                } => {
                    self.extenders.submit(token, pod, attempt, call);
                }
                Effect::Group(says) => {
                    if says.gave_up {
                        self.metrics.gang_gave_up(says.reason);
                    }
                    self.board.say(says);
                }
                effect => rest.push(effect),
            }
        }
        answers.extend(self.writer.submit(rest));
        for answer in answers {
            self.apply(answer);
        }
    }

    /// Pods that have failed are watched from when somebody counts refusals, and nodes are known.
    fn look_for_refusals(&self) {
        if self.listed_at.is_some() && self.core.core().counts_refusals() {
            self.refusals.notify_one();
        }
    }

    /// Says what the checker found, in builds that have one.
    fn audit(&mut self) {
        if self.compared.elapsed() >= COMPARE {
            self.compared = Instant::now();
            self.core.full(self.clock.now());
        }
        for violation in self.core.take_violations() {
            error!(invariant = violation.invariant, "audit: {}", violation.what);
            self.metrics.audit_violation(violation.invariant);
        }
    }

    fn observe(&mut self) {
        for observation in self.core.core_mut().take_observations() {
            match &observation {
                Observation::Malformed { kind, error } => {
                    warn!(kind, "skipped a malformed object: {error}");
                }
                Observation::Quarantined { error } => error!("quarantined {error}"),
                _ => {}
            }
            self.metrics.observe(&observation);
        }
        self.report_policies();
        if self.gauges.elapsed() < MAX_SLEEP {
            return;
        }
        self.gauges = Instant::now();
        self.metrics.set_pending(&self.core.core().pending_counts());
        self.metrics.set_gangs(&self.core.core().gang_counts());
        self.metrics.set_unschedulable(&self.core.core().unschedulable_by_plugin());
        self.look_at_verbosity();
    }

    /// Tells the controller what is true of policies: changes of them at once, numbers of
    /// pods now and then.
    fn report_policies(&mut self) {
        let generation = self.core.core().policies_generation();
        let (told, of, at) = &mut self.reported;
        if *of == generation && at.elapsed() < COUNT {
            return;
        }
        (*of, *at) = (generation, Instant::now());
        let report = self.core.core().policy_report();
        if *told != report {
            told.clone_from(&report);
            self.board.report(report);
        }
    }

    /// The verbosity can be changed while we run.
    fn look_at_verbosity(&mut self) {
        let verbosity = crate::logging::verbosity();
        if verbosity != self.verbosity {
            self.verbosity = verbosity;
            self.core.core_mut().set_trace(decisions::wants_trace(verbosity));
        }
    }
}
