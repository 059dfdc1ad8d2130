//! Lanes: tasks that each carry one call at a time.
//!
//! All lanes live on one thread with one runtime: no call crosses threads.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use muster_core::io::{EventRecord, Eviction, Input, Removal, Reply, StatusPatch, WriteError};
use muster_core::outbox::{Bind, Evict, Failure, PodCall, eviction_error};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::attempts::{EVENT_ATTEMPTS, PATCH_ATTEMPTS};
use super::bucket::Bucket;
use super::events::Plan;
use super::objects::ObjectWrites;
use super::{CALL_LANES, EVENT_LANES, SHARED_LANES, Shared, bodies};
use crate::run::Message;

/// Connections that are opened when this process begins to lead, if the server does not share
/// one: the binds of a gang go out together, and must not wait for one handshake after the other.
pub(super) const WARM: usize = 32;
/// How long that may take.
const WARM_DEADLINE: Duration = Duration::from_secs(5);
/// Most pods whose written condition is remembered.
const MAX_CONDITIONS: usize = 50_000;
/// What helps where a victim may not be deleted.
const MAY_NOT_DELETE: &str =
    "plans against budgets need the verb delete on pods: rbac.deletePods of the chart";

/// The PodScheduled status last written per pod, so that a time of transition
/// is written only with a transition. Of pods not written to by this process,
/// the patch says what the API server showed.
#[derive(Default)]
pub(super) struct KnownConditions(HashMap<Arc<str>, bool>);

impl KnownConditions {
    fn written(&mut self, patch: &StatusPatch) {
        let Some(condition) = &patch.condition else {
            return;
        };
        if self.0.len() >= MAX_CONDITIONS {
            self.0.clear();
        }
        self.0.insert(patch.pod.uid.clone(), condition.status);
    }

    fn changes(&self, patch: &StatusPatch) -> bool {
        let Some(condition) = &patch.condition else {
            return false;
        };
        let before = self.0.get(&patch.pod.uid).copied().or(patch.shown);
        before != Some(condition.status)
    }
}

/// Runs all lanes until the writer is closed; panics if one of them does.
pub(super) fn run(shared: &Arc<Shared>) {
    let resting = shared.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || resting.rest())
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            error!("cannot start the writer: {error}");
            return;
        }
    };
    runtime.block_on(async {
        let warm = tokio::spawn(keep_warm(shared.clone()));
        let mut lanes = JoinSet::new();
        for _ in 0..CALL_LANES - SHARED_LANES {
            lanes.spawn(lane(shared.clone(), Role { calls: true, events: false }));
        }
        for _ in 0..SHARED_LANES {
            lanes.spawn(lane(shared.clone(), Role { calls: true, events: true }));
        }
        for _ in 0..EVENT_LANES {
            lanes.spawn(lane(shared.clone(), Role { calls: false, events: true }));
        }
        while let Some(lane) = lanes.join_next().await {
            if let Err(error) = lane
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        warm.abort();
        // Closed: the process is about to end, and the thread's end means a panic.
        std::future::pending::<()>().await;
    });
}

/// Opens connections whenever this process begins to lead. Whether the calls succeed does
/// not matter: a connection that could not be opened is opened by the first write.
async fn keep_warm(shared: Arc<Shared>) {
    let mut leadership = shared.fenced.leadership.clone();
    loop {
        leadership.changed().await;
        if !leadership.is_leader() {
            continue;
        }
        let (wire, until) = (&shared.fenced.wire, Instant::now() + WARM_DEADLINE);
        if wire.open(bodies::version(), until).await {
            continue; // one connection does for all
        }
        let mut calls = JoinSet::new();
        for _ in 0..WARM {
            let wire = wire.clone();
            calls.spawn(async move { wire.call(bodies::version(), until).await });
        }
        calls.join_all().await;
    }
}

async fn throttle(bucket: Option<&Bucket>) {
    if let Some(bucket) = bucket {
        bucket.take().await;
    }
}

/// What a lane carries.
#[derive(Clone, Copy)]
struct Role {
    calls: bool,
    /// Only while no call waits, if it carries both.
    events: bool,
}

async fn lane(shared: Arc<Shared>, role: Role) {
    loop {
        tokio::select! {
            biased;
            permit = shared.calls.acquire(), if role.calls => {
                let Ok(permit) = permit else { return };
                permit.forget();
                shared.next_call().await;
            }
            permit = shared.events.acquire(), if role.events => {
                let Ok(permit) = permit else { return };
                permit.forget();
                shared.next_event().await;
            }
        }
        shared.rest.answered();
        shared.ended.notify_waiters();
    }
}

impl Shared {
    /// Called when there is nothing to do but to wait for answers. With many
    /// under way, a few are let gather.
    fn rest(&self) {
        let binds = self.unanswered.load(Ordering::Relaxed).min(CALL_LANES);
        let events = self.events_flying.load(Ordering::Relaxed);
        if let Some(rest) = self.rest.next(binds + events) {
            std::thread::sleep(rest);
        }
    }

    async fn next_call(&self) {
        throttle(self.bucket.as_ref()).await;
        let objects = {
            let mut state = self.state.lock();
            let next = state.objects.pop_front();
            state.objects_flying += usize::from(next.is_some());
            next
        };
        if let Some(writes) = objects {
            return self.next_objects(writes).await;
        }
        let Some(call) = self.state.lock().dispatch.take() else {
            return;
        };
        let call_type = call.call_type();
        self.metrics.pending_async_calls(call_type, -1);
        let begin = Instant::now();
        let ok = match &call {
            PodCall::Bind(bind) => self.bind(bind).await,
            PodCall::Patch(patch) => self.patch(patch).await,
            PodCall::Evict(evict) => self.evict(evict).await,
        };
        let result = if ok { "success" } else { "error" };
        self.metrics.async_call(call_type, result, begin.elapsed().as_secs_f64());
        if self.state.lock().dispatch.done(&call) {
            self.calls.add_permits(1);
        }
    }

    async fn next_objects(&self, writes: ObjectWrites) {
        let begin = Instant::now();
        let ok = self.write_objects(writes).await;
        self.state.lock().objects_flying -= 1;
        let result = if ok { "success" } else { "error" };
        self.metrics.async_call("volume_binding", result, begin.elapsed().as_secs_f64());
    }

    async fn next_event(&self) {
        throttle(self.event_bucket.as_ref()).await;
        self.events_flying.fetch_add(1, Ordering::Relaxed);
        let record = self.state.lock().dispatch.take_event();
        if let Some(record) = record {
            self.event(&record).await;
        }
        self.events_flying.fetch_sub(1, Ordering::Relaxed);
    }

    async fn bind(&self, bind: &Bind) -> bool {
        let begin = Instant::now();
        let result = self.fenced.bind(bodies::bind(bind)).await;
        let label = match &result {
            Ok(()) => "success",
            Err(WriteError::Conflict(_)) => "conflict",
            Err(WriteError::NotFound(_)) => "not_found",
            Err(WriteError::Rejected(_)) => "rejected",
            Err(WriteError::Unknown(_)) => "unknown",
        };
        self.metrics.bind_attempt(label, begin.elapsed().as_secs_f64());
        match &result {
            Ok(()) => debug!(pod = %bind.pod, node = %bind.node, "bound"),
            Err(error) => warn!(pod = %bind.pod, node = %bind.node, "bind {label}: {error}"),
        }
        let ok = result.is_ok();
        if ok {
            self.state.lock().known.0.remove(&bind.pod.uid);
        }
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
        let answer = Input::BindDone { pod: bind.pod.clone(), attempt: bind.attempt, result };
        // Fails only when the owner has ended, and then the process does.
        let _ = self.answers.send(Message::Input(answer)).await;
        ok
    }

    async fn evict(&self, evict: &Evict) -> bool {
        let (pod, victim, how) = (&evict.preemptor, &evict.victim, evict.how);
        let done = match how {
            Removal::Delete => self.delete(evict).await,
            Removal::Checkpoint { .. } | Removal::DryRun | Removal::Evict => {
                self.fenced.evict(bodies::evict(evict)).await
            }
        };
        let eviction = match done {
            Ok(()) => Eviction::Accepted,
            Err(Failure::Status { code: 403, message, .. }) if how == Removal::Delete => {
                Eviction::Failed(format!("{message} ({MAY_NOT_DELETE})").into())
            }
            Err(failure) => eviction_error(&failure),
        };
        let ok = match &eviction {
            Eviction::Accepted | Eviction::Gone => {
                debug!(%pod, %victim, ?how, "eviction: {eviction:?}");
                true
            }
            // An answer like any other: the budget does what it is for.
            Eviction::Refused(why) => {
                info!(%pod, %victim, ?how, "eviction refused: {why}");
                true
            }
            Eviction::Unavailable(why) | Eviction::Failed(why) => {
                warn!(%pod, %victim, ?how, "eviction failed: {why}");
                false
            }
        };
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
        let answer = Input::Reply { token: evict.token, reply: Reply::Evicted(eviction) };
        // Fails only when the owner has ended, and then the process does.
        let _ = self.answers.send(Message::Input(answer)).await;
        ok
    }

    /// Deletes a victim, after its condition says why. Nothing is written on one that may not
    /// be deleted.
    async fn delete(&self, evict: &Evict) -> Result<(), Failure> {
        self.fenced.evict(bodies::dry_deletion(evict)).await?;
        let told = self.fenced.repeat(bodies::disruption(&evict.victim), PATCH_ATTEMPTS).await;
        if let Err(failure) = told {
            // Only for those who want to know why; whether it can go, the next call says.
            debug!(victim = %evict.victim, "condition of a victim dropped: {failure}");
        }
        self.fenced.evict(bodies::evict(evict)).await
    }

    async fn patch(&self, patch: &StatusPatch) -> bool {
        let changes = self.state.lock().known.changes(patch);
        let now = changes.then(|| format!("{:.0}", jiff::Timestamp::now()));
        let call = bodies::status(patch, now.as_deref());
        match self.fenced.repeat(call, PATCH_ATTEMPTS).await {
            Ok(()) => {
                self.state.lock().known.written(patch);
                true
            }
            // Gone, or another pod by that name: nobody needs the condition.
            Err(Failure::Status { code: 404 | 409, .. }) => true,
            Err(failure) => {
                warn!(pod = %patch.pod, "status patch dropped: {failure}");
                false
            }
        }
    }

    async fn event(&self, record: &EventRecord) {
        let plan = self.state.lock().recent.plan(record, Instant::now());
        let time = format!("{:.6}", jiff::Timestamp::now());
        let (call_type, call) = match &plan {
            Plan::Skip => return,
            Plan::Create(name) => {
                let instance = format!("{}-{}", record.reporting_controller, self.host);
                ("event_create", bodies::event(record, name, &time, &instance))
            }
            Plan::Count(name, count) => {
                let namespace = &record.pod.namespace;
                ("event_patch", bodies::event_series(namespace, name, *count, &time))
            }
        };
        let begin = Instant::now();
        let result = self.fenced.repeat(call, EVENT_ATTEMPTS).await;
        if let Err(failure) = &result {
            self.state.lock().recent.forget(record);
            debug!(pod = %record.pod, reason = record.reason, "event dropped: {failure}");
        }
        let label = if result.is_ok() { "success" } else { "error" };
        self.metrics.async_call(call_type, label, begin.elapsed().as_secs_f64());
    }
}
