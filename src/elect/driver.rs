//! The election at work: calls, waits and watches around `machine`.
//!
//! Owns the one task that writes the Lease. Must never: hold leadership past
//! the renew deadline; wait for anything without a deadline.

use std::time::Duration;

use futures::StreamExt;
use jiff::{Timestamp, Unit};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::lock::{CallError, Change, LeaseLock, Watch};
use super::machine::{Action, Machine, Record};
use super::{ElectConfig, ElectError};
use crate::logging::v;
use crate::run::Shutdown;

/// Giving up the lease may take this long, then others wait for its end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// Between two attempts after somebody else was faster.
const CONFLICT_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Driver {
    cfg: ElectConfig,
    shutdown: Shutdown,
    until: watch::Sender<Option<Instant>>,
    lock: LeaseLock,
    machine: Machine,
    watch: Option<Watch>,
    /// No new watch before this: a watch that ends at once must not spin.
    watch_again: Instant,
    complaint: Complaint,
    /// Apart, because reading may succeed where watching is forbidden.
    watch_complaint: Complaint,
    reported: Option<String>,
}

impl Driver {
    pub(super) fn new(
        client: kube::Client,
        cfg: ElectConfig,
        shutdown: Shutdown,
        until: watch::Sender<Option<Instant>>,
    ) -> Self {
        Self {
            lock: LeaseLock::new(client, &cfg),
            machine: Machine::new(&cfg.identity, cfg.lease_duration),
            watch: None,
            watch_again: Instant::now(),
            complaint: Complaint::default(),
            watch_complaint: Complaint::default(),
            reported: None,
            cfg,
            shutdown,
            until,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), ElectError> {
        tracing::info!(lease = %self.lease(), identity = %self.cfg.identity, "standing for election");
        let Some(renewed) = self.acquire().await else {
            return Ok(());
        };
        self.watch = None;
        tracing::info!(lease = %self.lease(), "leading");
        let ended = self.lead(renewed).await;
        // First of all, nobody writes any more.
        self.until.send_replace(None);
        if ended.is_ok() {
            self.release().await;
        }
        ended
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.cfg.namespace, self.cfg.name)
    }

    /// One call may take half of the renew deadline, so that there is time for
    /// a second.
    fn call_deadline(&self) -> Instant {
        Instant::now() + self.cfg.renew_deadline / 2
    }

    /// Until the lease is ours: the start of the call that got it. None if the
    /// process ends before.
    async fn acquire(&mut self) -> Option<Instant> {
        loop {
            self.report_leader();
            if self.shutdown.is_set() {
                return None;
            }
            let start = Instant::now();
            if let Action::Wait(expiry) = self.machine.decide(start, wall()) {
                self.stand_by(expiry).await;
                continue;
            }
            match self.attempt(self.call_deadline()).await {
                Ok(()) => {
                    self.grant(start);
                    return Some(start);
                }
                Err(error) => self.pause(start, &error).await,
            }
        }
    }

    /// Writes the Lease as ours, if it is free or ours.
    async fn attempt(&mut self, deadline: Instant) -> Result<(), CallError> {
        let mut action = self.machine.decide(Instant::now(), wall());
        if action == Action::Fetch {
            self.fetch(deadline).await?;
            action = self.machine.decide(Instant::now(), wall());
        }
        let written = match &action {
            Action::Create(record) => self.lock.create(record, deadline).await,
            Action::Update(record) => self.lock.replace(record, deadline).await,
            Action::Fetch | Action::Wait(_) => Err(CallError::Conflict),
        };
        if written.is_err() {
            self.machine.forget_absence();
        }
        self.observe_own(written?);
        Ok(())
    }

    /// Waits until the Lease changes or expires; expiry is decided on a fresh
    /// read, because a watch can be silent for other reasons.
    async fn stand_by(&mut self, expiry: Instant) {
        let poll = Instant::now() + self.cfg.retry_period;
        if self.watch.is_none() && Instant::now() >= self.watch_again {
            self.watch_again = poll;
            match self.lock.watch(self.call_deadline()).await {
                Ok(watch) => {
                    self.watch = Some(watch);
                    self.watch_complaint.clear();
                }
                Err(error) => self.watch_complaint.about("watch", &self.cfg, &error),
            }
        }
        // Without a watch, ask now and then.
        let wake = if self.watch.is_some() { expiry } else { expiry.min(poll) };
        let watch = &mut self.watch;
        let event = async move {
            match watch {
                Some(watch) => watch.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.shutdown.wait() => {}
            () = sleep_until(wake) => {
                if let Err(error) = self.fetch(self.call_deadline()).await {
                    self.pause(wake, &error).await;
                }
            }
            event = event => match self.lock.changed(event) {
                Change::Record(record) => {
                    self.machine.observe(record, Instant::now());
                }
                Change::Nothing => {}
                Change::Ended => self.watch = None,
            }
        }
    }

    async fn fetch(&mut self, deadline: Instant) -> Result<(), CallError> {
        let record = self.lock.fetch(deadline).await?;
        let news = self.machine.observe(record, Instant::now());
        if news && self.watch.take().is_some() {
            // The watch should have said so: begin another from what was read.
            self.watch_again = Instant::now();
        }
        self.complaint.clear();
        Ok(())
    }

    fn observe_own(&mut self, record: Record) {
        self.machine.observe(Some(record), Instant::now());
        self.complaint.clear();
    }

    /// Leadership until the renew deadline after this renewal began.
    fn grant(&self, start: Instant) {
        self.until.send_replace(Some(start + self.cfg.renew_deadline));
    }

    /// After a failed attempt: reads what is there now (at once if somebody was
    /// faster, else after the retry period).
    async fn pause(&mut self, start: Instant, error: &CallError) {
        let wait = if matches!(error, CallError::Conflict) {
            Instant::now() + CONFLICT_PAUSE
        } else {
            self.complaint.about("call", &self.cfg, error);
            (start + self.cfg.retry_period).max(Instant::now() + CONFLICT_PAUSE)
        };
        tokio::select! {
            () = self.shutdown.wait() => return,
            () = sleep_until(wait) => {}
        }
        if let Err(error) = self.fetch(self.call_deadline()).await {
            self.complaint.about("call", &self.cfg, &error);
        }
    }

    /// Renews until shutdown (fine) or loss (an error).
    async fn lead(&mut self, mut renewed: Instant) -> Result<(), ElectError> {
        let mut next = renewed + self.cfg.retry_period;
        loop {
            let deadline = renewed + self.cfg.renew_deadline;
            tokio::select! {
                () = self.shutdown.wait() => return Ok(()),
                () = sleep_until(next.min(deadline)) => {}
            }
            let start = Instant::now();
            if start >= deadline {
                return Err(self.lost());
            }
            match self.renew(deadline).await {
                Ok(()) if Instant::now() < deadline => {
                    renewed = start;
                    self.grant(start);
                    v!(5, lease = %self.lease(), "renewed");
                }
                // It succeeded, but others may have acted meanwhile.
                Ok(()) => return Err(self.lost()),
                Err(error) => self.complaint.about("renewal", &self.cfg, &error),
            }
            if let Some(by) = self.machine.led_by_other() {
                return Err(ElectError::TakenOver { lease: self.lease(), by: by.to_owned() });
            }
            next = (start + self.cfg.retry_period).max(Instant::now() + CONFLICT_PAUSE);
        }
    }

    /// One renewal; if the Lease is not as it was seen last, a look at it and a
    /// second attempt.
    async fn renew(&mut self, deadline: Instant) -> Result<(), CallError> {
        let deadline = deadline.min(self.call_deadline());
        match self.attempt(deadline).await {
            Err(CallError::Conflict) => {
                self.fetch(deadline).await?;
                self.attempt(deadline).await
            }
            answer => answer,
        }
    }

    fn lost(&self) -> ElectError {
        let reason = self.complaint.0.clone().unwrap_or_else(|| "it came too late".to_owned());
        ElectError::Lost { lease: self.lease(), deadline: self.cfg.renew_deadline, reason }
    }

    /// Gives the lease up, if it is still ours.
    async fn release(&mut self) {
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        let released = timeout_at(deadline, async {
            while let Some(record) = self.machine.release(wall()) {
                match self.lock.replace(&record, deadline).await {
                    Ok(record) => self.observe_own(record),
                    // A renewal whose answer was not awaited.
                    Err(CallError::Conflict) => {
                        let record = self.lock.fetch(deadline).await?;
                        self.machine.observe(record, Instant::now());
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        });
        match released.await {
            Ok(Ok(())) => tracing::info!(lease = %self.lease(), "lease given up"),
            Ok(Err(error)) => tracing::warn!(lease = %self.lease(), %error, "lease not given up"),
            Err(_) => tracing::warn!(lease = %self.lease(), "lease not given up in time"),
        }
    }

    fn report_leader(&mut self) {
        let holder = self.machine.holder();
        if holder != self.reported.as_deref() {
            self.reported = holder.map(str::to_owned);
            let leader = holder.unwrap_or("nobody");
            tracing::info!(lease = %self.lease(), %leader, "new leader");
            if let Some(theirs) = self.lock.stranger() {
                let (lease, ours) = (self.lease(), &self.cfg.schedules);
                tracing::warn!(
                    %lease, %leader,
                    "the leader schedules {theirs}, this process {ours}: while they share a \
                     Lease only one of them works; unless one is about to replace the other, \
                     give each a Lease of its own (leaderElection.resourceName or \
                     --leader-elect-resource-name)"
                );
            }
        }
    }
}

/// The wall clock, as finely as a Lease holds it.
fn wall() -> Timestamp {
    let now = Timestamp::now();
    now.round(Unit::Microsecond).unwrap_or(now)
}

/// The last thing that went wrong; said once, not every two seconds.
#[derive(Default)]
struct Complaint(Option<String>);

impl Complaint {
    fn about(&mut self, what: &str, cfg: &ElectConfig, error: &CallError) {
        let text = format!("{what}: {error}");
        if self.0.as_deref() != Some(&text) {
            let lease = format!("{}/{}", cfg.namespace, cfg.name);
            tracing::warn!(%lease, "{text}; trying on");
            self.0 = Some(text);
        }
    }

    fn clear(&mut self) {
        self.0 = None;
    }
}
