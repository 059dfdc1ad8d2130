//! Metrics in Prometheus' format.
//!
//! Owns: a registry of its own (never prometheus' global one, so that tests and
//! programs that embed us do not meet), every metric in it, and the translation
//! of the core's [`Observation`]s. Must never: take a label value from a user's
//! object; allocate for an observation it has seen the like of before.

mod families;
mod hot;

use std::sync::Arc;

use muster_core::report::Observation;
use muster_core::{Decision, GangCounts, Outcome, PendingCounts};
use parking_lot::Mutex;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Histogram, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
};

use families::Maker;
pub use families::{Family, Kind};
use hot::{Attempt, Hot, MANY_ATTEMPTS, same};

/// The lease that [`Metrics::leader`] speaks of until told another.
const DEFAULT_LEASE: &str = "muster";

/// A handle on all metrics of one scheduler; clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    made: Vec<Family>,
    hot: Mutex<Hot>,
    attempts: IntCounterVec,
    attempt_seconds: HistogramVec,
    algorithm_seconds: Histogram,
    point_seconds: HistogramVec,
    pending: Pending,
    pod_attempts: Histogram,
    pod_sli: HistogramVec,
    incoming: IntCounterVec,
    permit_seconds: HistogramVec,
    preemption_attempts: IntCounterVec,
    preemption_victims: Histogram,
    preemptions: IntCounterVec,
    preemption_seconds: HistogramVec,
    unschedulable: IntGaugeVec,
    rejections: IntCounterVec,
    async_calls: IntCounterVec,
    async_seconds: HistogramVec,
    async_pending: IntGaugeVec,
    leaders: IntGaugeVec,
    lease: Mutex<String>,
    shard: IntGaugeVec,
    binds: IntCounterVec,
    bind_seconds: HistogramVec,
    malformed: IntCounterVec,
    quarantined: IntCounterVec,
    refusals: IntCounterVec,
    quarantines: IntCounterVec,
    audit_violations: IntCounterVec,
    extender_calls: IntCounterVec,
    extender_seconds: HistogramVec,
    extender_out_of_range: IntCounterVec,
    watch_events: IntCounterVec,
    config_reloads: IntCounterVec,
    config_version: IntGaugeVec,
    config_applied: IntGaugeVec,
    config_current: IntGaugeVec,
    group_writes: IntCounterVec,
    topology_writes: IntCounterVec,
    group_lag: Histogram,
    gang_attempts: IntCounterVec,
    gang_given_up: IntCounterVec,
    gang_members: Histogram,
    gang_seconds: Histogram,
    gangs: IntGaugeVec,
    gang_preemptions: IntCounterVec,
    gang_victims: IntCounterVec,
    gangs_touched: IntCounterVec,
    gang_work_lost: IntCounterVec,
    preemptions_held: IntCounterVec,
    eviction_refusals: IntCounterVec,
    checkpoints: IntCounterVec,
    preemption_holds: IntGaugeVec,
}

/// Gauges that [`Metrics::set_pending`] sets.
struct Pending {
    active: IntGauge,
    backoff: IntGauge,
    unschedulable: IntGauge,
    gated: IntGauge,
    assumed: IntGauge,
    pods: IntGauge,
    nodes: IntGauge,
    asking: IntGauge,
    avoided: IntGauge,
}

impl Metrics {
    /// All metrics, at zero.
    #[must_use]
    pub fn new() -> Self {
        let registry = Registry::new();
        let mut make = Maker { registry: &registry, made: Vec::new() };
        let pending = Pending::new(&mut make);
        let inner = Inner {
            hot: Mutex::default(),
            attempts: make.counters(families::SCHEDULE_ATTEMPTS),
            attempt_seconds: make.histograms(families::ATTEMPT_DURATION),
            algorithm_seconds: make.histogram(families::ALGORITHM_DURATION),
            point_seconds: make.histograms(families::POINT_DURATION),
            pending,
            pod_attempts: make.histogram(families::POD_ATTEMPTS),
            pod_sli: make.histograms(families::POD_SLI),
            incoming: make.counters(families::QUEUE_INCOMING),
            permit_seconds: make.histograms(families::PERMIT_WAIT),
            preemption_attempts: make.counters(families::PREEMPTION_ATTEMPTS),
            preemption_victims: make.histogram(families::PREEMPTION_VICTIMS),
            preemptions: make.counters(families::PREEMPTIONS),
            preemption_seconds: make.histograms(families::PREEMPTION_DURATION),
            unschedulable: make.gauges(families::UNSCHEDULABLE_PODS),
            rejections: make.counters(families::REJECTIONS),
            async_calls: make.counters(families::ASYNC_CALLS),
            async_seconds: make.histograms(families::ASYNC_DURATION),
            async_pending: make.gauges(families::ASYNC_PENDING),
            leaders: make.gauges(families::LEADER),
            lease: Mutex::new(DEFAULT_LEASE.to_owned()),
            shard: make.gauges(families::SHARD_INFO),
            binds: make.counters(families::BIND_ATTEMPTS),
            bind_seconds: make.histograms(families::BIND_DURATION),
            malformed: make.counters(families::MALFORMED),
            quarantined: make.counters(families::QUARANTINED),
            refusals: make.counters(families::KUBELET_REFUSALS),
            quarantines: make.counters(families::NODES_AVOIDED),
            audit_violations: make.counters(families::AUDIT_VIOLATIONS),
            extender_calls: make.counters(families::EXTENDER_CALLS),
            extender_seconds: make.histograms(families::EXTENDER_DURATION),
            extender_out_of_range: make.counters(families::EXTENDER_OUT_OF_RANGE),
            watch_events: make.counters(families::WATCH_EVENTS),
            config_reloads: make.counters(families::CONFIG_RELOADS),
            config_version: make.gauges(families::CONFIG_VERSION),
            config_applied: make.gauges(families::CONFIG_APPLIED),
            config_current: make.gauges(families::CONFIG_CURRENT),
            group_writes: make.counters(families::POD_GROUP_STATUS),
            topology_writes: make.counters(families::TOPOLOGY_STATUS),
            group_lag: make.histogram(families::POD_GROUP_STATUS_LAG),
            gang_attempts: make.counters(families::GANG_ATTEMPTS),
            gang_given_up: make.counters(families::GANG_GIVEN_UP),
            gang_members: make.histogram(families::GANG_MEMBERS),
            gang_seconds: make.histogram(families::GANG_DURATION),
            gangs: make.gauges(families::PENDING_GANGS),
            gang_preemptions: make.counters(families::GANG_PREEMPTIONS),
            gang_victims: make.counters(families::GANG_VICTIMS),
            gangs_touched: make.counters(families::GANGS_TOUCHED),
            gang_work_lost: make.counters(families::GANG_WORK_LOST),
            preemptions_held: make.counters(families::PREEMPTIONS_HELD),
            eviction_refusals: make.counters(families::EVICTION_REFUSALS),
            checkpoints: make.counters(families::CHECKPOINTS),
            preemption_holds: make.gauges(families::PREEMPTION_HOLDS),
            made: Vec::new(),
            registry: registry.clone(),
        };
        make.gauges(families::BUILD_INFO).with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let made = make.made;
        // The process' own figures are a courtesy: without /proc there are none.
        if let Err(error) = registry.register(Box::new(ProcessCollector::for_self())) {
            tracing::warn!(%error, "no process metrics");
        }
        Self(Arc::new(Inner { made, ..inner }))
    }

    /// Counts one thing the core has seen.
    pub fn observe(&self, observation: &Observation) {
        let inner = &*self.0;
        match observation {
            Observation::Algorithm { nanos } => inner.algorithm_seconds.observe(seconds(*nanos)),
            Observation::Attempt { profile, result, nanos } => {
                inner.attempt(profile, *result, *nanos);
            }
            Observation::Point { profile, point, status, nanos } => {
                inner.point(profile, point, status, seconds(*nanos));
            }
            Observation::Bound { attempts, since_queued_micros } => {
                inner.pod_attempts.observe(f64::from(*attempts));
                let counted = (*attempts).clamp(1, MANY_ATTEMPTS);
                inner.hot.lock().sli.child(
                    |key| *key == counted,
                    || (counted, inner.pod_sli.with_label_values(&[attempts_label(counted)])),
                    |child| child.observe(micros(*since_queued_micros)),
                );
            }
            Observation::GangBound { members, since_complete_micros } => {
                let members = u32::try_from(*members).unwrap_or(u32::MAX);
                inner.gang_members.observe(f64::from(members));
                inner.gang_seconds.observe(micros(*since_complete_micros));
            }
            Observation::PermitWait { status, micros: waited } => {
                inner.hot.lock().permit.child(
                    |key| same(key, status),
                    || (status, inner.permit_seconds.with_label_values(&[status])),
                    |child| child.observe(micros(*waited)),
                );
            }
            Observation::Enqueued { queue, event } => {
                inner.hot.lock().enqueued.child(
                    |key| same(key.0, queue) && same(key.1, event),
                    || ((queue, event), inner.incoming.with_label_values(&[queue, event])),
                    prometheus::IntCounter::inc,
                );
            }
            Observation::Rejected { profile, plugins } => inner.rejected(profile, plugins),
            Observation::Preemption { victims } => {
                inner.preemption_attempts.with_label_values(&[] as &[&str]).inc();
                let victims = u32::try_from(*victims).unwrap_or(u32::MAX);
                inner.preemption_victims.observe(f64::from(victims));
            }
            Observation::GangPreemption { victims, gangs, lost_seconds } => {
                let count = |counter: &IntCounterVec, by: u64| {
                    counter.with_label_values(&[] as &[&str]).inc_by(by);
                };
                count(&inner.gang_preemptions, 1);
                count(&inner.gang_victims, u64::try_from(*victims).unwrap_or(0));
                count(&inner.gangs_touched, u64::try_from(*gangs).unwrap_or(0));
                count(&inner.gang_work_lost, *lost_seconds);
            }
            Observation::PreemptionHeld { reason } => {
                inner.preemptions_held.with_label_values(&[reason]).inc();
            }
            Observation::EvictionRefused { cause, dry_run } => {
                let dry_run = if *dry_run { "true" } else { "false" };
                inner.eviction_refusals.with_label_values(&[*cause, dry_run]).inc();
            }
            Observation::Checkpoint { result } => {
                inner.checkpoints.with_label_values(&[result]).inc();
            }
            Observation::PreemptionDone { result, micros: took } => {
                inner.preemptions.with_label_values(&[result]).inc();
                inner.preemption_seconds.with_label_values(&[result]).observe(micros(*took));
            }
            Observation::Malformed { kind, .. } => self.malformed(kind),
            Observation::Quarantined { .. } => {
                inner.quarantined.with_label_values(&[] as &[&str]).inc();
            }
            Observation::Refused { reason } => inner.refusals.with_label_values(&[reason]).inc(),
            Observation::NodeAvoided { reason } => {
                inner.quarantines.with_label_values(&[reason]).inc();
            }
        }
    }

    /// Sizes of the queues and of the cache.
    pub fn set_pending(&self, counts: &PendingCounts) {
        let pending = &self.0.pending;
        let Pending { active, backoff, unschedulable, gated, assumed, pods, nodes, .. } = pending;
        for (gauge, count) in [
            (active, counts.active),
            (backoff, counts.backoff),
            (unschedulable, counts.unschedulable),
            (gated, counts.gated),
            (assumed, counts.assumed),
            (pods, counts.pods),
            (nodes, counts.nodes),
            (&pending.asking, counts.asking),
            (&pending.avoided, counts.avoided),
        ] {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts a decision on a gang.
    pub fn decided(&self, decision: &Decision) {
        if decision.gang.is_none() {
            return;
        }
        let result = match decision.outcome {
            Outcome::Gathered { .. } => "gathered",
            Outcome::Accumulating { .. } => "accumulating",
            Outcome::Unschedulable => "unschedulable",
            _ => "error",
        };
        self.0.gang_attempts.with_label_values(&[result]).inc();
    }

    /// A gang gave back the room it had.
    pub fn gang_gave_up(&self, reason: &str) {
        self.0.gang_given_up.with_label_values(&[reason]).inc();
    }

    /// Gangs that wait, by queue.
    pub fn set_gangs(&self, counts: &GangCounts) {
        for (queue, count) in [
            ("active", counts.active),
            ("backoff", counts.backoff),
            ("unschedulable", counts.unschedulable),
            ("incomplete", counts.incomplete),
        ] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.0.gangs.with_label_values(&[queue]).set(count);
        }
        let holds = i64::try_from(counts.holds).unwrap_or(i64::MAX);
        self.0.preemption_holds.with_label_values(&[] as &[&str]).set(holds);
    }

    /// How many pods wait because of a plugin: profile, plugin, pods. What is not
    /// listed is none.
    pub fn set_unschedulable(&self, counts: &[(Arc<str>, &'static str, usize)]) {
        self.0.unschedulable.reset();
        for (profile, plugin, pods) in counts {
            let gauge = self.0.unschedulable.with_label_values(&[*plugin, &**profile]);
            gauge.set(i64::try_from(*pods).unwrap_or(i64::MAX));
        }
    }

    /// A call of the writer ended (`pod_binding`, `pod_status_patch`; `success`
    /// or `error`).
    pub fn async_call(&self, call_type: &str, result: &str, seconds: f64) {
        let labels = [call_type, result];
        self.0.async_calls.with_label_values(&labels).inc();
        self.0.async_seconds.with_label_values(&labels).observe(seconds);
    }

    /// Calls that wait for the writer became more or fewer.
    pub fn pending_async_calls(&self, call_type: &str, delta: i64) {
        self.0.async_pending.with_label_values(&[call_type]).add(delta);
    }

    /// A Bind call ended.
    pub fn bind_attempt(&self, result: &str, seconds: f64) {
        self.0.binds.with_label_values(&[result]).inc();
        self.0.bind_seconds.with_label_values(&[result]).observe(seconds);
    }

    /// An object was skipped because it could not be understood.
    pub fn malformed(&self, kind: &str) {
        self.0.malformed.with_label_values(&[kind]).inc();
    }

    /// A call of an extender ended.
    pub fn extender_call(&self, extender: &str, verb: &str, result: &str) {
        self.0.extender_calls.with_label_values(&[extender, verb, result]).inc();
    }

    /// How long a call of an extender took.
    pub fn extender_seconds(&self, extender: &str, verb: &str, seconds: f64) {
        self.0.extender_seconds.with_label_values(&[extender, verb]).observe(seconds);
    }

    /// An extender gave so many scores that are none.
    pub fn extender_out_of_range(&self, extender: &str, scores: usize) {
        let scores = u64::try_from(scores).unwrap_or(u64::MAX);
        self.0.extender_out_of_range.with_label_values(&[extender]).inc_by(scores);
    }

    /// The checker found an invariant broken.
    pub fn audit_violation(&self, invariant: &str) {
        self.0.audit_violations.with_label_values(&[invariant]).inc();
    }

    /// A change of the configuration file was looked at.
    pub fn config_reload(&self, result: &str) {
        self.0.config_reloads.with_label_values(&[result]).inc();
        let current = i64::from(result == "applied");
        self.0.config_current.with_label_values(&[] as &[&str]).set(current);
    }

    /// The configuration file says again what is in force.
    pub fn config_unchanged(&self) {
        self.0.config_current.with_label_values(&[] as &[&str]).set(1);
    }

    /// The configuration in force: how many were before it, and since when in seconds.
    pub fn config_in_force(&self, version: u64, since: i64) {
        let version = i64::try_from(version).unwrap_or(i64::MAX);
        self.0.config_version.with_label_values(&[] as &[&str]).set(version);
        self.0.config_applied.with_label_values(&[] as &[&str]).set(since);
        self.config_unchanged();
    }

    /// A write of a pod group's status: its result, and how long after the change
    /// that it tells.
    pub fn pod_group_status(&self, result: &str, lag: f64) {
        self.0.group_writes.with_label_values(&[result]).inc();
        if result == "written" {
            self.0.group_lag.observe(lag);
        }
    }

    /// A write of a topology's status: its result.
    pub fn topology_status(&self, result: &str) {
        self.0.topology_writes.with_label_values(&[result]).inc();
    }

    /// A change arrived from the API server.
    pub fn watch_event(&self, kind: &str) {
        self.0.watch_events.with_label_values(&[kind]).inc();
    }

    /// The name of the lease that [`Metrics::leader`] speaks of.
    pub fn set_lease_name(&self, name: &str) {
        let mut lease = self.0.lease.lock();
        // Absent unless leader() was called before: nothing to take over then.
        let _ = self.0.leaders.remove_label_values(&[lease.as_str()]);
        name.clone_into(&mut lease);
    }

    /// Which nodes are looked after; empty: all.
    pub fn set_shard(&self, node_selector: &str) {
        self.0.shard.reset();
        self.0.shard.with_label_values(&[node_selector]).set(1);
    }

    /// Whether this process holds the lease.
    pub fn leader(&self, leading: bool) {
        let lease = self.0.lease.lock();
        let gauge = self.0.leaders.with_label_values(&[lease.as_str()]);
        gauge.set(i64::from(leading));
    }

    /// Everything in Prometheus' text format, version 0.0.4.
    #[must_use]
    pub fn encode(&self) -> String {
        let families = self.0.registry.gather();
        TextEncoder::new().encode_to_string(&families).unwrap_or_else(|error| {
            tracing::error!(%error, "metrics cannot be encoded");
            String::new()
        })
    }

    /// Every metric, sorted by name, for the documentation (those of the
    /// process are prometheus' own and not listed).
    #[must_use]
    pub fn describe() -> Vec<Family> {
        let mut families = Self::new().0.made.clone();
        families.sort_by_key(|family| family.name);
        families
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Pending {
    fn new(make: &mut Maker<'_>) -> Self {
        let queues = make.gauges(families::PENDING_PODS);
        let cache = make.gauges(families::CACHE_SIZE);
        Self {
            active: queues.with_label_values(&["active"]),
            backoff: queues.with_label_values(&["backoff"]),
            unschedulable: queues.with_label_values(&["unschedulable"]),
            gated: queues.with_label_values(&["gated"]),
            assumed: cache.with_label_values(&["assumed_pods"]),
            pods: cache.with_label_values(&["pods"]),
            nodes: cache.with_label_values(&["nodes"]),
            asking: make.gauges(families::EXTENDER_WAITING).with_label_values(&[] as &[&str]),
            avoided: make.gauges(families::AVOIDED).with_label_values(&[] as &[&str]),
        }
    }
}

impl Inner {
    fn attempt(&self, profile: &Arc<str>, result: muster_core::report::AttemptResult, nanos: u64) {
        let labels = [result.as_str(), profile];
        self.hot.lock().attempts.child(
            |key| key.0 == result && same(&key.1, profile),
            || {
                let total = self.attempts.with_label_values(&labels);
                let seconds = self.attempt_seconds.with_label_values(&labels);
                ((result, Arc::clone(profile)), Attempt { total, seconds })
            },
            |child| {
                child.total.inc();
                child.seconds.observe(seconds(nanos));
            },
        );
    }

    fn point(&self, profile: &Arc<str>, point: &'static str, status: &'static str, seconds: f64) {
        self.hot.lock().points.child(
            |key| same(key.0, point) && same(key.1, status) && same(&key.2, profile),
            || {
                let child = self.point_seconds.with_label_values(&[point, status, profile]);
                ((point, status, Arc::clone(profile)), child)
            },
            |child| child.observe(seconds),
        );
    }

    fn rejected(&self, profile: &Arc<str>, plugins: &[&'static str]) {
        let mut hot = self.hot.lock();
        for plugin in plugins {
            hot.rejected.child(
                |key| same(key.0, plugin) && same(&key.1, profile),
                || {
                    let child = self.rejections.with_label_values(&[*plugin, profile]);
                    ((plugin, Arc::clone(profile)), child)
                },
                prometheus::IntCounter::inc,
            );
        }
    }
}

/// Upstream's label of the number of attempts, `1` to `15+`.
fn attempts_label(attempts: u32) -> String {
    if attempts >= MANY_ATTEMPTS { format!("{MANY_ATTEMPTS}+") } else { attempts.to_string() }
}

/// Precise enough: durations below 104 days are exact to the nanosecond.
#[allow(clippy::cast_precision_loss)]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[allow(clippy::cast_precision_loss)]
fn micros(micros: i64) -> f64 {
    micros.max(0) as f64 / 1e6
}

#[cfg(test)]
mod tests;
