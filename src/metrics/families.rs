//! Every metric: name, kind, labels, buckets, help.
//!
//! Owns the words. Where kube-scheduler v1.37 has a metric of the same meaning,
//! name, labels, buckets and help are upstream's, so that its dashboards and
//! alerts work unchanged.

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry,
    exponential_buckets,
};

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations in buckets: the first bound, the factor, how many.
    Histogram(Buckets),
}

impl Kind {
    /// Prometheus' word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// Exponential buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// The first upper bound, in units of 10 µ (0.00001).
    first: u32,
    /// How many, each twice the one before.
    count: usize,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Full name.
    pub name: &'static str,
    /// Kind.
    pub kind: Kind,
    /// Label names.
    pub labels: &'static [&'static str],
    /// Help.
    pub help: &'static str,
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(
    name: &'static str,
    labels: &'static [&'static str],
    (first, count): (u32, usize),
    help: &'static str,
) -> Family {
    let kind = Kind::Histogram(Buckets { first, count });
    Family { name, kind, labels, help }
}

/// 0.1 ms to 205 ms.
const POINT: (u32, usize) = (10, 12);
/// 1 ms to 16 s.
const CALL: (u32, usize) = (100, 15);
/// 10 ms to 87 min.
const SLI: (u32, usize) = (1_000, 20);
/// 1 to 64.
const VICTIMS: (u32, usize) = (100_000, 7);
/// 1 to 16,384.
const MEMBERS: (u32, usize) = (100_000, 15);
/// 1 to 16.
const ATTEMPTS: (u32, usize) = (100_000, 5);

pub(super) const SCHEDULE_ATTEMPTS: Family = counter(
    "scheduler_schedule_attempts_total",
    &["result", "profile"],
    "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.",
);
pub(super) const ATTEMPT_DURATION: Family = histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    &["result", "profile"],
    CALL,
    "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
);
pub(super) const ALGORITHM_DURATION: Family = histogram(
    "scheduler_scheduling_algorithm_duration_seconds",
    &[],
    CALL,
    "Scheduling algorithm latency in seconds",
);
pub(super) const POINT_DURATION: Family = histogram(
    "scheduler_framework_extension_point_duration_seconds",
    &["extension_point", "status", "profile"],
    POINT,
    "Latency for running all plugins of a specific extension point.",
);
pub(super) const PENDING_PODS: Family = gauge(
    "scheduler_pending_pods",
    &["queue"],
    "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulableEntities that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated; 'incomplete' means number of pods in incompletePodGroupPods; 'pending' means number of pods in pendingPodGroupPods.",
);
pub(super) const POD_ATTEMPTS: Family = histogram(
    "scheduler_pod_scheduling_attempts",
    &[],
    ATTEMPTS,
    "Number of attempts to successfully schedule a pod.",
);
pub(super) const POD_SLI: Family = histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    &["attempts"],
    SLI,
    "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.",
);
pub(super) const QUEUE_INCOMING: Family = counter(
    "scheduler_queue_incoming_pods_total",
    &["queue", "event"],
    "Number of pods added to scheduling queues by event and queue type.",
);
pub(super) const PERMIT_WAIT: Family = histogram(
    "scheduler_permit_wait_duration_seconds",
    &["result"],
    CALL,
    "Duration of waiting on permit.",
);
pub(super) const UNSCHEDULABLE_PODS: Family = gauge(
    "scheduler_unschedulable_pods",
    &["plugin", "profile"],
    "The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.",
);
pub(super) const PREEMPTION_ATTEMPTS: Family = counter(
    "scheduler_preemption_attempts_total",
    &[],
    "Total preemption attempts in the cluster till now",
);
pub(super) const PREEMPTION_VICTIMS: Family = histogram(
    "scheduler_preemption_victims",
    &[],
    VICTIMS,
    "Number of selected preemption victims for preemption initiated by a single pod",
);
pub(super) const PREEMPTIONS: Family = counter(
    "scheduler_preemption_goroutines_execution_total",
    &["result"],
    "Number of preemption goroutines executed.",
);
pub(super) const PREEMPTION_DURATION: Family = histogram(
    "scheduler_preemption_goroutines_duration_seconds",
    &["result"],
    SLI,
    "Duration in seconds for running goroutines for the preemption.",
);
pub(super) const CACHE_SIZE: Family = gauge(
    "scheduler_cache_size",
    &["type"],
    "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
);
pub(super) const ASYNC_CALLS: Family = counter(
    "scheduler_async_api_call_execution_total",
    &["call_type", "result"],
    "Total number of API calls executed by the async dispatcher.",
);
pub(super) const ASYNC_DURATION: Family = histogram(
    "scheduler_async_api_call_execution_duration_seconds",
    &["call_type", "result"],
    CALL,
    "Duration in seconds for executing API call in the async dispatcher.",
);
pub(super) const ASYNC_PENDING: Family = gauge(
    "scheduler_pending_async_api_calls",
    &["call_type"],
    "Number of API calls currently pending in the async queue.",
);
pub(super) const LEADER: Family = gauge(
    "leader_election_master_status",
    &["name"],
    "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
);

pub(super) const BIND_ATTEMPTS: Family = counter(
    "muster_bind_attempts_total",
    &["result"],
    "Number of calls that bind a pod, by the result.",
);
pub(super) const BIND_DURATION: Family = histogram(
    "muster_bind_duration_seconds",
    &["result"],
    CALL,
    "Duration in seconds of a call that binds a pod, by the result.",
);
pub(super) const REJECTIONS: Family = counter(
    "muster_pod_rejections_total",
    &["plugin", "profile"],
    "Number of attempts that ended without a node, by each plugin that rejected some node or the pod itself.",
);
pub(super) const EXTENDER_CALLS: Family = counter(
    "muster_extender_calls_total",
    &["extender", "verb", "result"],
    "Number of calls of extenders, by the extender's URL, the verb and the result (success, error: the extender says so, status: not 200, timeout, unreachable, malformed, not_sent).",
);
pub(super) const EXTENDER_DURATION: Family = histogram(
    "muster_extender_call_duration_seconds",
    &["extender", "verb"],
    CALL,
    "Duration in seconds of a call of an extender, by its URL and the verb.",
);
pub(super) const EXTENDER_OUT_OF_RANGE: Family = counter(
    "muster_extender_scores_out_of_range_total",
    &["extender"],
    "Number of scores of an extender below 0 or above 10, by its URL; they are used as they are.",
);
pub(super) const EXTENDER_WAITING: Family = gauge(
    "muster_extender_waiting_pods",
    &[],
    "Number of pods whose scheduling cycle waits for the answer of an extender.",
);
pub(super) const CONFIG_RELOADS: Family = counter(
    "muster_config_reloads_total",
    &["result"],
    "Number of changes of the configuration file that were looked at, by the result (applied, invalid, needs_restart, busy: attempts under way hold too many versions, it is tried again).",
);
pub(super) const CONFIG_VERSION: Family = gauge(
    "muster_config_version",
    &[],
    "How many changes of the configuration file were applied since the start.",
);
pub(super) const CONFIG_APPLIED: Family = gauge(
    "muster_config_last_applied_timestamp_seconds",
    &[],
    "When the configuration in force was taken up, in seconds since the epoch.",
);
pub(super) const CONFIG_CURRENT: Family = gauge(
    "muster_config_current",
    &[],
    "1 if the configuration in force is what the file says, 0 if the file's last change was refused.",
);
pub(super) const MALFORMED: Family = counter(
    "muster_malformed_objects_total",
    &["kind"],
    "Number of objects that could not be understood and were skipped, by kind.",
);
pub(super) const AUDIT_VIOLATIONS: Family = counter(
    "muster_audit_violations_total",
    &["invariant"],
    "Number of times the built-in checker found an invariant broken, by the invariant; only builds with debug assertions have the checker.",
);
pub(super) const QUARANTINED: Family = counter(
    "muster_quarantined_pods_total",
    &[],
    "Number of pods whose scheduling cycle panicked; they are not tried again until they change.",
);
pub(super) const KUBELET_REFUSALS: Family = counter(
    "muster_kubelet_refusals_total",
    &["reason"],
    "Number of pods of ours that kubelets refused because they could not align their resources, by the kubelet's reason.",
);
pub(super) const NODES_AVOIDED: Family = counter(
    "muster_node_quarantines_total",
    &["reason"],
    "Number of times that a node was avoided for a while because its kubelet had refused pods, by the kubelet's reason.",
);
pub(super) const AVOIDED: Family = gauge(
    "muster_nodes_avoided",
    &[],
    "Number of nodes that are avoided because their kubelets refused pods, counted once for each thing that was asked of them.",
);
pub(super) const WATCH_EVENTS: Family = counter(
    "muster_watch_events_total",
    &["kind"],
    "Number of changes received from the API server, by kind.",
);
pub(super) const POD_GROUP_STATUS: Family = counter(
    "muster_pod_group_status_writes_total",
    &["result"],
    "Number of writes of the status of pod groups, by the result (written, conflict: the group has changed since, gone, not_leading, error).",
);
pub(super) const TOPOLOGY_STATUS: Family = counter(
    "muster_topology_status_writes_total",
    &["result"],
    "Number of writes of the status of topologies, by the result (written, conflict: the topology has changed since, gone, not_leading, error).",
);
pub(super) const POD_GROUP_STATUS_LAG: Family = histogram(
    "muster_pod_group_status_lag_seconds",
    &[],
    SLI,
    "Time from a change of a pod group or its members until the status that says so is written.",
);
pub(super) const GANG_ATTEMPTS: Family = counter(
    "muster_gang_attempts_total",
    &["result"],
    "Number of attempts to find room for a gang as a whole, by the result (gathered: all that is needed has room, unschedulable, error).",
);
pub(super) const GANG_GIVEN_UP: Family = counter(
    "muster_gang_given_up_total",
    &["reason"],
    "Number of gangs that had room and gave it back before any of it was bound, by the reason (ScheduleTimeout, Rejected, Scheduling: a member or a node was lost and it is tried again at once, SchedulerError).",
);
pub(super) const GANG_MEMBERS: Family = histogram(
    "muster_gang_bound_members",
    &[],
    MEMBERS,
    "Number of members that were bound when the minimum of their gang was.",
);
pub(super) const GANG_DURATION: Family = histogram(
    "muster_gang_scheduling_duration_seconds",
    &[],
    SLI,
    "Time from the moment the minimum of a gang exists until it is bound.",
);
pub(super) const GANG_PREEMPTIONS: Family = counter(
    "muster_gang_preemptions_total",
    &[],
    "Number of times that victims were chosen to make room for a gang.",
);
pub(super) const GANG_VICTIMS: Family = counter(
    "muster_gang_preemption_victims_total",
    &[],
    "Number of pods that were chosen to make room for gangs.",
);
pub(super) const GANGS_TOUCHED: Family = counter(
    "muster_gang_preemption_touched_gangs_total",
    &[],
    "Number of gangs that were chosen to lose members to other gangs.",
);
pub(super) const GANG_WORK_LOST: Family = counter(
    "muster_gang_preemption_lost_seconds_total",
    &[],
    "Seconds of work of the pods that were chosen to make room for gangs, each since it started or since its last checkpoint.",
);
pub(super) const PREEMPTIONS_HELD: Family = counter(
    "muster_preemptions_held_back_total",
    &["reason"],
    "Number of attempts of pods and gangs after which nobody was evicted although somebody might be, by reason: delay, pause, rate, protected, simulate, never (of their SchedulingPolicy or that of the victims).",
);
pub(super) const EVICTION_REFUSALS: Family = counter(
    "muster_eviction_refusals_total",
    &["cause", "dry_run"],
    "Number of evictions of victims that were not carried out, by cause: budget, unavailable, failed; and of dry runs.",
);
pub(super) const CHECKPOINTS: Family = counter(
    "muster_checkpoint_requests_total",
    &["result"],
    "Number of victims that were asked to save their work before they have to go, by result: asked; then saved or late, each time they were waited for.",
);
pub(super) const PREEMPTION_HOLDS: Family = gauge(
    "muster_gang_preemption_holds",
    &[],
    "Number of gangs for which room is being freed and held.",
);
pub(super) const PENDING_GANGS: Family = gauge(
    "muster_pending_gangs",
    &["queue"],
    "Number of gangs with members that wait, by queue: active, backoff, unschedulable, incomplete (too few members exist).",
);
pub(super) const BUILD_INFO: Family =
    gauge("muster_build_info", &["version"], "Always 1; the label says which build is running.");

pub(super) const SHARD_INFO: Family = gauge(
    "muster_shard_info",
    &["node_selector"],
    "Always 1; the label is the selector of the nodes that this scheduler looks after, empty if it looks after all.",
);

/// Makes metrics, registers them, and remembers which were made.
pub(super) struct Maker<'a> {
    pub(super) registry: &'a Registry,
    pub(super) made: Vec<Family>,
}

impl Maker<'_> {
    pub(super) fn counters(&mut self, family: Family) -> IntCounterVec {
        let made = IntCounterVec::new(Opts::new(family.name, family.help), family.labels);
        self.keep(family, made)
    }

    pub(super) fn gauges(&mut self, family: Family) -> IntGaugeVec {
        let made = IntGaugeVec::new(Opts::new(family.name, family.help), family.labels);
        self.keep(family, made)
    }

    pub(super) fn histograms(&mut self, family: Family) -> HistogramVec {
        let made = HistogramVec::new(options(family), family.labels);
        self.keep(family, made)
    }

    pub(super) fn histogram(&mut self, family: Family) -> Histogram {
        self.keep(family, Histogram::with_opts(options(family)))
    }

    /// The tables above are constants, so a mistake in them cannot come from
    /// outside and is found by every test that makes [`super::Metrics`].
    fn keep<C: Collector + Clone + 'static>(
        &mut self,
        family: Family,
        made: prometheus::Result<C>,
    ) -> C {
        let made = made.expect("a constant family is valid");
        let registered = self.registry.register(Box::new(made.clone()));
        registered.expect("a constant family is registered once");
        self.made.push(family);
        made
    }
}

fn options(family: Family) -> HistogramOpts {
    let options = HistogramOpts::new(family.name, family.help);
    match family.kind {
        Kind::Histogram(Buckets { first, count }) => {
            // Divided, not multiplied: 100/100000 is exactly 0.001.
            let buckets = exponential_buckets(f64::from(first) / 100_000.0, 2.0, count);
            options.buckets(buckets.expect("constant buckets are valid"))
        }
        Kind::Counter | Kind::Gauge => options,
    }
}
