use super::*;
use muster_core::report::AttemptResult;

fn value(metrics: &Metrics, sample: &str) -> f64 {
    let text = metrics.encode();
    let line = text.lines().find(|line| line.split(' ').next() == Some(sample));
    let line = line.unwrap_or_else(|| panic!("no {sample} in:\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Renaming or dropping a metric breaks somebody's dashboard: do it knowingly.
#[test]
fn names_kinds_and_labels() {
    let listed: Vec<String> = Metrics::describe()
        .iter()
        .map(|f| format!("{} {} {}", f.name, f.kind.as_str(), f.labels.join(",")))
        .collect();
    let golden = "\
leader_election_master_status gauge name
muster_audit_violations_total counter invariant
muster_bind_attempts_total counter result
muster_bind_duration_seconds histogram result
muster_build_info gauge version
muster_checkpoint_requests_total counter result
muster_config_current gauge \n\
muster_config_last_applied_timestamp_seconds gauge \n\
muster_config_reloads_total counter result
muster_config_version gauge \n\
muster_eviction_refusals_total counter cause,dry_run
muster_extender_call_duration_seconds histogram extender,verb
muster_extender_calls_total counter extender,verb,result
muster_extender_scores_out_of_range_total counter extender
muster_extender_waiting_pods gauge \n\
muster_gang_attempts_total counter result
muster_gang_bound_members histogram \n\
muster_gang_given_up_total counter reason
muster_gang_preemption_holds gauge \n\
muster_gang_preemption_lost_seconds_total counter \n\
muster_gang_preemption_touched_gangs_total counter \n\
muster_gang_preemption_victims_total counter \n\
muster_gang_preemptions_total counter \n\
muster_gang_scheduling_duration_seconds histogram \n\
muster_kubelet_refusals_total counter reason
muster_malformed_objects_total counter kind
muster_node_quarantines_total counter reason
muster_nodes_avoided gauge \n\
muster_pending_gangs gauge queue
muster_pod_group_status_lag_seconds histogram \n\
muster_pod_group_status_writes_total counter result
muster_pod_rejections_total counter plugin,profile
muster_preemptions_held_back_total counter reason
muster_quarantined_pods_total counter \n\
muster_shard_info gauge node_selector
muster_topology_status_writes_total counter result
muster_watch_events_total counter kind
scheduler_async_api_call_execution_duration_seconds histogram call_type,result
scheduler_async_api_call_execution_total counter call_type,result
scheduler_cache_size gauge type
scheduler_framework_extension_point_duration_seconds histogram extension_point,status,profile
scheduler_pending_async_api_calls gauge call_type
scheduler_pending_pods gauge queue
scheduler_permit_wait_duration_seconds histogram result
scheduler_pod_scheduling_attempts histogram \n\
scheduler_pod_scheduling_sli_duration_seconds histogram attempts
scheduler_preemption_attempts_total counter \n\
scheduler_preemption_goroutines_duration_seconds histogram result
scheduler_preemption_goroutines_execution_total counter result
scheduler_preemption_victims histogram \n\
scheduler_queue_incoming_pods_total counter queue,event
scheduler_schedule_attempts_total counter result,profile
scheduler_scheduling_algorithm_duration_seconds histogram \n\
scheduler_scheduling_attempt_duration_seconds histogram result,profile
scheduler_unschedulable_pods gauge plugin,profile";
    assert_eq!(listed.join("\n"), golden);
}

#[test]
fn buckets_are_upstreams() {
    let metrics = Metrics::new();
    let profile: Arc<str> = "p".into();
    metrics.observe(&Observation::Point {
        profile: Arc::clone(&profile),
        point: "Filter",
        status: "Success",
        nanos: 150_000,
    });
    metrics.observe(&Observation::Attempt {
        profile,
        result: AttemptResult::Scheduled,
        nanos: 3_000_000,
    });
    metrics.observe(&Observation::Algorithm { nanos: 1_000_000 });
    metrics.observe(&Observation::Bound { attempts: 2, since_queued_micros: 15_000 });
    let text = metrics.encode();
    // First and last bounds of ExponentialBuckets(0.0001, 2, 12), (0.001, 2,
    // 15), (0.01, 2, 20) and (1, 2, 5).
    for (name, first, last) in [
        ("scheduler_framework_extension_point_duration_seconds", "0.0001", "0.2048"),
        ("scheduler_scheduling_attempt_duration_seconds", "0.001", "16.384"),
        ("scheduler_scheduling_algorithm_duration_seconds", "0.001", "16.384"),
        ("scheduler_pod_scheduling_sli_duration_seconds", "0.01", "5242.88"),
        ("scheduler_pod_scheduling_attempts", "1", "16"),
    ] {
        let bounds: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix("_bucket{"))
            .filter_map(|rest| rest.rsplit("le=\"").next()?.split('"').next())
            .collect();
        assert_eq!(bounds.first(), Some(&first), "{name}");
        let finite = bounds.iter().position(|b| *b == "+Inf").unwrap();
        assert_eq!(bounds[finite - 1], last, "{name}");
    }
}

#[test]
fn observations_are_counted_where_upstream_counts_them() {
    let metrics = Metrics::new();
    let profile: Arc<str> = "muster".into();
    for (result, nanos) in [
        (AttemptResult::Scheduled, 1_500_000),
        (AttemptResult::Scheduled, 500_000),
        (AttemptResult::Unschedulable, 500_000),
    ] {
        // Equal names at different addresses are one profile.
        let profile: Arc<str> = Arc::from(&*profile);
        metrics.observe(&Observation::Attempt { profile, result, nanos });
    }
    for attempts in [1, 2, 15, 40] {
        metrics.observe(&Observation::Bound { attempts, since_queued_micros: 2_000_000 });
    }
    metrics.observe(&Observation::Enqueued { queue: "active", event: "PodAdd" });
    metrics.observe(&Observation::Enqueued { queue: "active", event: "PodAdd" });
    metrics.observe(&Observation::PermitWait { status: "Success", micros: 1 });
    let plugins = vec!["NodeResourcesFit", "TaintToleration"];
    metrics.observe(&Observation::Rejected { profile, plugins });
    metrics.observe(&Observation::Malformed { kind: "Pod", error: "bad".to_owned() });
    metrics.observe(&Observation::Preemption { victims: 3 });
    metrics.observe(&Observation::PreemptionDone { result: "error", micros: 2_500_000 });
    metrics.observe(&Observation::PreemptionHeld { reason: "rate" });
    metrics.observe(&Observation::EvictionRefused { cause: "budget", dry_run: true });
    metrics.observe(&Observation::Checkpoint { result: "late" });
    metrics.observe(&Observation::GangPreemption { victims: 5, gangs: 2, lost_seconds: 90 });

    for (sample, expected) in [
        ("scheduler_schedule_attempts_total{profile=\"muster\",result=\"scheduled\"}", 2.0),
        ("scheduler_schedule_attempts_total{profile=\"muster\",result=\"unschedulable\"}", 1.0),
        (
            "scheduler_scheduling_attempt_duration_seconds_sum{profile=\"muster\",result=\"scheduled\"}",
            0.002,
        ),
        ("scheduler_pod_scheduling_attempts_count", 4.0),
        ("scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"1\"}", 1.0),
        ("scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"15+\"}", 2.0),
        ("scheduler_pod_scheduling_sli_duration_seconds_sum{attempts=\"2\"}", 2.0),
        ("scheduler_queue_incoming_pods_total{event=\"PodAdd\",queue=\"active\"}", 2.0),
        ("scheduler_permit_wait_duration_seconds_count{result=\"Success\"}", 1.0),
        ("muster_pod_rejections_total{plugin=\"TaintToleration\",profile=\"muster\"}", 1.0),
        ("scheduler_preemption_attempts_total", 1.0),
        ("scheduler_preemption_victims_sum", 3.0),
        ("scheduler_preemption_goroutines_execution_total{result=\"error\"}", 1.0),
        ("scheduler_preemption_goroutines_duration_seconds_sum{result=\"error\"}", 2.5),
        ("muster_preemptions_held_back_total{reason=\"rate\"}", 1.0),
        ("muster_eviction_refusals_total{cause=\"budget\",dry_run=\"true\"}", 1.0),
        ("muster_checkpoint_requests_total{result=\"late\"}", 1.0),
        ("muster_gang_preemptions_total", 1.0),
        ("muster_gang_preemption_victims_total", 5.0),
        ("muster_gang_preemption_touched_gangs_total", 2.0),
        ("muster_gang_preemption_lost_seconds_total", 90.0),
        ("muster_malformed_objects_total{kind=\"Pod\"}", 1.0),
    ] {
        assert!((value(&metrics, sample) - expected).abs() < 1e-12, "{sample}");
    }
}

#[test]
fn gauges_and_calls() {
    let metrics = Metrics::new();
    let counts = PendingCounts { active: 3, gated: 1, nodes: 500, ..PendingCounts::default() };
    metrics.set_pending(&counts);
    metrics.set_unschedulable(&[("muster".into(), "NodeAffinity", 7)]);
    metrics.async_call("pod_binding", "success", 0.01);
    metrics.pending_async_calls("pod_binding", 5);
    metrics.pending_async_calls("pod_binding", -2);
    metrics.bind_attempt("conflict", 0.02);
    metrics.watch_event("Node");
    metrics.leader(false);
    metrics.set_lease_name("kube-scheduler");
    metrics.leader(true);
    for (sample, expected) in [
        ("scheduler_pending_pods{queue=\"active\"}", 3.0),
        ("scheduler_pending_pods{queue=\"backoff\"}", 0.0),
        ("scheduler_pending_pods{queue=\"gated\"}", 1.0),
        ("scheduler_cache_size{type=\"nodes\"}", 500.0),
        ("scheduler_unschedulable_pods{plugin=\"NodeAffinity\",profile=\"muster\"}", 7.0),
        (
            "scheduler_async_api_call_execution_total{call_type=\"pod_binding\",result=\"success\"}",
            1.0,
        ),
        ("scheduler_pending_async_api_calls{call_type=\"pod_binding\"}", 3.0),
        ("muster_bind_attempts_total{result=\"conflict\"}", 1.0),
        ("muster_bind_duration_seconds_count{result=\"conflict\"}", 1.0),
        ("muster_watch_events_total{kind=\"Node\"}", 1.0),
        ("leader_election_master_status{name=\"kube-scheduler\"}", 1.0),
    ] {
        assert!((value(&metrics, sample) - expected).abs() < 1e-12, "{sample}");
    }
    let text = metrics.encode();
    assert!(!text.contains("name=\"muster\""), "the old lease is gone");
    assert!(text.contains("process_resident_memory_bytes"), "{text}");
    assert!(text.contains(concat!("muster_build_info{version=\"", env!("CARGO_PKG_VERSION"))));
}

/// Two schedulers in one process, as in tests, do not meet.
#[test]
fn registries_are_apart() {
    let (a, b) = (Metrics::new(), Metrics::new());
    a.clone().watch_event("Pod");
    assert!(a.encode().contains("muster_watch_events_total{kind=\"Pod\"} 1"));
    assert!(!b.encode().contains("muster_watch_events_total{kind=\"Pod\"}"));
}

#[test]
fn gangs_are_counted() {
    let metrics = Metrics::new();
    let mut core = muster_core::Core::new(muster_core::Config::default());
    for (queue, count) in [("active", 1), ("backoff", 2), ("unschedulable", 3), ("incomplete", 4)] {
        let counts =
            GangCounts { active: 1, backoff: 2, unschedulable: 3, incomplete: 4, holds: 5 };
        metrics.set_gangs(&counts);
        let sample = format!("muster_pending_gangs{{queue=\"{queue}\"}}");
        assert_eq!(value(&metrics, &sample), f64::from(count));
        assert_eq!(value(&metrics, "muster_gang_preemption_holds"), 5.0);
    }
    metrics.observe(&Observation::GangBound { members: 8, since_complete_micros: 1_500_000 });
    assert_eq!(value(&metrics, "muster_gang_bound_members_sum"), 8.0);
    assert_eq!(value(&metrics, "muster_gang_scheduling_duration_seconds_sum"), 1.5);
    metrics.gang_gave_up("ScheduleTimeout");
    let sample = "muster_gang_given_up_total{reason=\"ScheduleTimeout\"}";
    assert_eq!(value(&metrics, sample), 1.0);

    // A gang of one on an empty cluster, and a pod of none: with no node nobody objects, so
    // there is no event to wait for.
    let now = muster_core::io::Tick(1_000_000_000);
    let object = |value| serde_json::from_value(value).expect("a group");
    let group = serde_json::json!({"metadata": {"name": "g", "namespace": "n", "uid": "g"},
        "spec": {"minMember": 1}});
    let group = muster_core::io::Object::PodGroup(object(group));
    core.apply(now, muster_core::io::Input::Object(Box::new(group)));
    for (name, gang) in [("in", "g"), ("alone", "")] {
        let mut pod = muster_api::k8s::Pod::default();
        (pod.metadata.name, pod.metadata.namespace) = (name.to_owned(), "n".to_owned());
        (pod.metadata.uid, pod.spec.scheduler_name) = (name.to_owned(), "muster".to_owned());
        pod.metadata.labels.insert("muster.dev/pod-group".to_owned(), gang.to_owned());
        let change = muster_core::io::Change::Upsert(Box::new(pod));
        core.apply(now, muster_core::io::Input::Pod(change));
    }
    core.advance(now);
    while let Some(decision) = core.schedule_one(now) {
        metrics.decided(&decision);
    }
    let sample = "muster_gang_attempts_total{result=\"unschedulable\"}";
    assert_eq!(value(&metrics, sample), 1.0);
    metrics.set_gangs(&core.gang_counts());
    assert_eq!(value(&metrics, "muster_pending_gangs{queue=\"backoff\"}"), 1.0);
}

/// `docs/metrics.md` is made from the code: this test rewrites it and fails if
/// it was out of date.
#[test]
fn the_book_lists_every_metric() {
    let mut page = String::from(
        "# Metrics\n\n`/metrics` in Prometheus' text form, beside the usual `process_*`. Names and meanings of \
         `scheduler_*` are\nkube-scheduler's. This page is generated from the code.\n\n\
         | name | kind | labels | meaning |\n|---|---|---|---|\n",
    );
    for f in Metrics::describe() {
        let labels = f.labels.join(", ");
        page += &format!("| `{}` | {} | {labels} | {} |\n", f.name, f.kind.as_str(), f.help);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
    let old = std::fs::read_to_string(path).unwrap_or_default();
    if old != page {
        std::fs::write(path, page).unwrap();
        panic!("docs/metrics.md was out of date and has been rewritten: commit it");
    }
}
