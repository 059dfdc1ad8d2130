//! A watch against a scripted API server.

use std::collections::VecDeque;
use std::sync::Mutex;

use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use muster_core::io::Change;

use super::*;

/// What the server answers, one request after the other.
enum Answer {
    /// A whole body.
    Text(u16, String),
    /// Lines of a watch that is then cut.
    Cut(Vec<String>),
    /// A watch in which nothing happens.
    Silence,
}

fn list(version: u32, items: &[String]) -> Answer {
    let text = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
        items.join(",")
    );
    Answer::Text(200, text)
}

fn pod(name: &str, version: u32, spec: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"n","uid":"u-{name}","resourceVersion":"{version}"}},"spec":{spec}}}"#
    )
}

fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

fn status(code: u16) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"old","code":{code}}}"#
    )
}

/// Plays the script and returns the inputs and the requests' queries.
async fn play(script: Vec<Answer>, expected: usize) -> (Vec<String>, Vec<String>) {
    play_with(script, expected, |client, sink| tokio::spawn(stream::follow::<Pod>(client, sink)))
        .await
}

/// As `play`, with a way to follow the server.
async fn play_with(
    script: Vec<Answer>,
    expected: usize,
    follow: impl FnOnce(kube::Client, Sink) -> tokio::task::JoinHandle<()>,
) -> (Vec<String>, Vec<String>) {
    let script = Arc::new(Mutex::new(VecDeque::from(script)));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = script.lock().unwrap().pop_front().unwrap_or(Answer::Silence);
        log.lock().unwrap().push(request.uri().to_string());
        async move {
            let (code, body) = match answer {
                Answer::Text(code, text) => (code, whole(text)),
                Answer::Cut(lines) => (200, whole(lines.join("\n") + "\n")),
                Answer::Silence => (200, silence()),
            };
            Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    let client = kube::Client::new(service, "default");
    let (inputs, mut inbox) = mpsc::channel(16);
    let nodes = Some("pool=a,zone in (x,y)".into());
    let (pace, board) = (Arc::default(), Arc::default());
    let sink = Sink { inputs, metrics: Metrics::new(), pace, board, nodes };
    let task = follow(client, sink);
    let mut seen = Vec::new();
    while seen.len() < expected {
        let message = tokio::time::timeout(Duration::from_secs(60), inbox.recv()).await;
        match message.expect("an input in time").expect("a live watch") {
            Message::Inputs(batch) => seen.extend(batch.iter().map(show)),
            _ => panic!("not an input"),
        }
    }
    task.abort();
    let asked = asked.lock().unwrap().clone();
    (seen, asked)
}

type Frames = BoxBody<bytes::Bytes, std::io::Error>;

fn whole(text: String) -> Frames {
    Full::from(text).map_err(std::io::Error::other).boxed()
}

fn silence() -> Frames {
    StreamBody::new(futures::stream::pending()).boxed()
}

fn show(input: &Input) -> String {
    match input {
        Input::RelistStarted(kind) => format!("{kind:?}s begin"),
        Input::RelistDone(kind) => format!("{kind:?}s end"),
        Input::Pod(Change::Upsert(pod)) => format!("{}@{}", pod.metadata.name, pod.spec.node_name),
        Input::Pod(Change::Delete(key)) => format!("-{}", key.name),
        other => format!("{other:?}"),
    }
}

const GOOD: &str = r#"{"nodeName":"x"}"#;
const BAD: &str = r#"{"priority":"high"}"#;

#[tokio::test(start_paused = true)]
async fn skips_the_malformed_and_survives_cuts_and_expiry() {
    let script = vec![
        list(5, &[pod("a", 1, GOOD), pod("bad", 2, BAD), pod("b", 3, GOOD)]),
        Answer::Cut(vec![
            event("MODIFIED", &pod("a", 6, r#"{"nodeName":"y"}"#)),
            event("ADDED", &pod("worse", 7, BAD)),
            event("DELETED", &pod("bad", 8, BAD)),
        ]),
        Answer::Cut(vec![event("ERROR", &status(410))]),
        list(20, &[pod("c", 19, GOOD)]),
    ];
    let (seen, asked) = play(script, 9).await;
    assert_eq!(
        seen,
        ["Pods begin", "a@x", "b@x", "Pods end", "a@y", "-bad", "Pods begin", "c@x", "Pods end"]
    );
    assert!(asked[0].contains("limit=500") && asked[0].contains("status.phase"), "{}", asked[0]);
    assert!(asked[1].contains("watch=true") && asked[1].contains("resourceVersion=5"));
    assert!(asked[1].contains("allowWatchBookmarks=true"));
    // The malformed object's version counts: the watch goes on after it.
    assert!(asked[2].contains("resourceVersion=8"), "{}", asked[2]);
}

#[tokio::test(start_paused = true)]
async fn lists_again_when_a_watch_cannot_start_from_an_old_version() {
    let script = vec![list(5, &[pod("a", 1, GOOD)]), Answer::Text(410, status(410)), list(9, &[])];
    let (seen, asked) = play(script, 5).await;
    assert_eq!(seen, ["Pods begin", "a@x", "Pods end", "Pods begin", "Pods end"]);
    assert!(!asked[2].contains("watch=true"), "{}", asked[2]);
}

#[tokio::test(start_paused = true)]
async fn keeps_trying_while_the_server_is_away() {
    let broken = || Answer::Text(503, "away".to_owned());
    let script = vec![broken(), broken(), broken(), list(1, &[pod("a", 1, GOOD)])];
    let (seen, _) = play(script, 6).await;
    assert_eq!(seen[seen.len() - 2..], ["a@x", "Pods end"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_comes_in_pages() {
    let page = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"more"},"items":[]}"#;
    let script = vec![Answer::Text(200, page.to_owned()), list(7, &[pod("a", 1, GOOD)])];
    let (seen, asked) = play(script, 3).await;
    assert_eq!(seen, ["Pods begin", "a@x", "Pods end"]);
    assert!(asked[1].contains("continue=more"), "{}", asked[1]);
}

#[tokio::test(start_paused = true)]
async fn nodes_of_the_shard_are_watched_and_all_of_everything_else() {
    let follow = |client, sink| tokio::spawn(stream::follow::<Node>(client, sink));
    let node =
        |version: u32| format!(r#"{{"metadata":{{"name":"n","resourceVersion":"{version}"}}}}"#);
    // A node that leaves the shard is told as one that is gone.
    let script = vec![list(5, &[node(4)]), Answer::Cut(vec![event("DELETED", &node(6))])];
    let (seen, asked) = play_with(script, 4, follow).await;
    assert_eq!((seen[0].as_str(), seen[2].as_str()), ("Nodes begin", "Nodes end"));
    assert!(seen[3].starts_with("Node(Delete("), "{}", seen[3]);
    for query in &asked[..2] {
        assert!(query.contains("labelSelector=pool%3Da%2Czone+in+%28x%2Cy%29"), "{query}");
    }
    let (_, asked) = play(vec![list(5, &[])], 2).await;
    assert!(!asked[0].contains("labelSelector"), "{}", asked[0]);
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_not_served_counts_as_empty_until_it_is() {
    let follow = |client, sink| tokio::spawn(probe::follow_optional::<StorageClass>(client, sink));
    let class = r#"{"kind":"StorageClassList","apiVersion":"storage.k8s.io/v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"fast","resourceVersion":"3"},"provisioner":"p"}]}"#;
    let missing = || Answer::Text(404, status(404));
    let script =
        vec![missing(), Answer::Text(200, class.to_owned()), Answer::Text(200, class.to_owned())];
    let (seen, asked) = play_with(script, 5, follow).await;
    assert_eq!(seen[..2], ["StorageClasss begin", "StorageClasss end"]);
    assert_eq!(seen[2], "StorageClasss begin");
    assert!(seen[3].contains("provisioner: \"p\""), "{}", seen[3]);
    assert_eq!(seen[4], "StorageClasss end");
    assert!(asked[0].contains("limit=1") && asked[0].contains("/storageclasses"), "{}", asked[0]);
}

/// Groups of all three APIs are the core's and the board's; so are members that ended.
#[tokio::test(start_paused = true)]
async fn pod_groups_and_ended_members_are_told_to_the_core() {
    let group = r#"{"metadata":{"name":"g","namespace":"n","resourceVersion":"3"}}"#;
    let script = || {
        let probe = Answer::Text(200, r#"{"metadata":{},"items":[]}"#.to_owned());
        let deleted = Answer::Cut(vec![event("DELETED", group)]);
        vec![probe, list(5, &[group.to_owned()]), deleted]
    };
    let follow = |client, sink| tokio::spawn(probe::follow_optional::<PodGroup>(client, sink));
    let (own, asked) = play_with(script(), 4, follow).await;
    assert!(asked[1].contains("/apis/muster.dev/v1alpha1/podgroups"), "{}", asked[1]);
    let follow =
        |client, sink| tokio::spawn(probe::follow_optional::<NativePodGroup>(client, sink));
    let (native, _) = play_with(script(), 4, follow).await;
    let follow =
        |client, sink| tokio::spawn(probe::follow_optional::<CoschedulingPodGroup>(client, sink));
    let (coscheduling, _) = play_with(script(), 4, follow).await;
    let kinds = ["PodGroup", "NativePodGroup", "CoschedulingPodGroup"];
    for (seen, kind) in [own, native, coscheduling].iter().zip(kinds) {
        assert_eq!(seen[0], format!("{kind}s begin"));
        assert!(seen[1].starts_with(&format!("Object({kind}(")), "{}", seen[1]);
        assert_eq!(seen[2], format!("{kind}s end"));
        assert!(seen[3].starts_with(&format!("ObjectGone({kind}, ")), "{}", seen[3]);
    }
    let done = r#"{"metadata":{"name":"done","namespace":"n","uid":"u","resourceVersion":"3","labels":{"muster.dev/pod-group":"g"}}}"#.to_owned();
    let script =
        vec![list(5, std::slice::from_ref(&done)), Answer::Cut(vec![event("DELETED", &done)])];
    let follow = |client, sink| tokio::spawn(stream::follow::<EndedMember>(client, sink));
    let (seen, asked) = play_with(script, 4, follow).await;
    assert_eq!((seen[0].as_str(), seen[2].as_str()), ("EndedMembers begin", "EndedMembers end"));
    assert!(seen[1].starts_with("Ended(EndedMember, Upsert("), "{}", seen[1]);
    assert!(seen[3].starts_with("Ended(EndedMember, Delete("), "{}", seen[3]);
    assert!(asked[0].contains("labelSelector=muster.dev%2Fpod-group"), "{}", asked[0]);
}

/// Members of native groups have no label to be selected by: all that has ended is
/// asked for, and only members are told of.
#[tokio::test(start_paused = true)]
async fn of_all_pods_that_have_ended_members_of_native_groups_are_told() {
    let group = r#"{"schedulingGroup":{"podGroupName":"g"}}"#;
    let (done, other) = (pod("done", 3, group), pod("other", 4, GOOD));
    let gone = [event("DELETED", &other), event("DELETED", &done)];
    let script = vec![list(5, &[done, other]), Answer::Cut(gone.into())];
    let follow = |client, sink| tokio::spawn(stream::follow::<EndedNative>(client, sink));
    let (seen, asked) = play_with(script, 4, follow).await;
    assert_eq!((seen[0].as_str(), seen[2].as_str()), ("EndedNatives begin", "EndedNatives end"));
    assert!(seen[1].starts_with("Ended(EndedNative, Upsert(") && seen[1].contains("done"));
    assert!(seen[3].starts_with("Ended(EndedNative, Delete(") && seen[3].contains("done"));
    assert!(!asked[0].contains("labelSelector"), "{}", asked[0]);
}

/// Nothing is decided before every kind is listed: where groups are not served, members
/// of them that have ended are none either.
#[tokio::test(start_paused = true)]
async fn groups_that_are_not_served_have_no_members_that_ended() {
    let follow = |client, sink| tokio::spawn(probe::follow_optional::<PodGroup>(client, sink));
    let (seen, _) = play_with(vec![Answer::Text(404, status(404))], 4, follow).await;
    let empty = ["PodGroups begin", "PodGroups end", "EndedMembers begin", "EndedMembers end"];
    assert_eq!(seen, empty);
}

/// The server cannot select by a pod's reason: of all that have failed those are told of that a
/// kubelet refused.
#[tokio::test(start_paused = true)]
async fn of_all_pods_that_have_failed_those_that_a_kubelet_refused_are_told() {
    let failed = |name: &str, reason: &str| {
        let pod = pod(name, 3, GOOD);
        let status = format!(r#","status":{{"phase":"Failed","reason":"{reason}"}}}}"#);
        pod[..pod.len() - 1].to_owned() + &status
    };
    let (refused, evicted) = (failed("a", "TopologyAffinityError"), failed("b", "Evicted"));
    let gone = [event("DELETED", &evicted), event("DELETED", &refused)];
    let script = vec![list(5, &[refused, evicted]), Answer::Cut(gone.into())];
    let follow = |client, sink| tokio::spawn(stream::follow::<RefusedPod>(client, sink));
    let (seen, asked) = play_with(script, 4, follow).await;
    assert_eq!((seen[0].as_str(), seen[2].as_str()), ("RefusedPods begin", "RefusedPods end"));
    assert!(seen[1].starts_with("Refused(") && seen[1].contains("\"a\""), "{}", seen[1]);
    assert!(seen[3].starts_with("ObjectGone(RefusedPod, "), "{}", seen[3]);
    assert!(asked[0].contains("status.phase%3DFailed"), "{}", asked[0]);
}
