//! The podresources client against a server on a socket.

#[path = "support/kubelet.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod kubelet;

use kubelet::{Ask, Kubelet, Mood};
use muster_node_agent::podresources::{self, Allocatable, Holdings, grpc, proto};
use prost::Message;

const GPU: &str = "nvidia.com/gpu";

fn start() -> (tempfile::TempDir, Kubelet) {
    let dir = tempfile::tempdir().expect("a directory");
    let kubelet = Kubelet::start(dir.path()).expect("a kubelet");
    (dir, kubelet)
}

#[tokio::test]
async fn what_pods_hold_and_may_get_is_read() {
    let (_dir, kubelet) = start();
    for i in 0..4 {
        kubelet.device(GPU, &format!("GPU-{i}"), &[i / 2]).unwrap();
    }
    kubelet.cpus(2..8);
    kubelet.memory("memory", 1 << 30, 0);
    let ask = Ask { resource: GPU, devices: 2, cpus: 3, ..Ask::default() };
    assert_eq!(kubelet.admit("team", "train-0", &ask).unwrap(), ["GPU-0", "GPU-1"]);

    let reading = podresources::read(&kubelet.socket()).await.unwrap();
    let allocatable = &reading.allocatable;
    assert_eq!(allocatable.cpus.to_string(), "2-7");
    assert_eq!((allocatable.memory[0].bytes, allocatable.devices.len()), (1 << 30, 4));
    let held: Vec<_> = reading
        .holdings
        .iter()
        .filter(|(_, _, container, _)| !container.is_empty())
        .map(|(namespace, pod, container, holding)| {
            let ids: Vec<_> = holding.devices.keys().map(|(_, id)| id.as_str()).collect();
            format!("{namespace}/{pod}/{container} {} {}", ids.join(","), holding.cpus)
        })
        .collect();
    assert_eq!(held, ["team/train-0/main GPU-0,GPU-1 2-4"]);

    kubelet.release("team", "train-0").unwrap();
    let reading = podresources::read(&kubelet.socket()).await.unwrap();
    assert!(reading.holdings.pods.is_empty());
}

#[tokio::test]
async fn an_answer_larger_than_a_window_is_read() {
    let (_dir, kubelet) = start();
    let long = "x".repeat(500);
    for i in 0..podresources::MAX_DEVICES {
        kubelet.device(GPU, &format!("{long}-{i}"), &[0]).unwrap();
    }
    let reading = podresources::read(&kubelet.socket()).await.unwrap();
    assert_eq!(reading.allocatable.devices.len(), podresources::MAX_DEVICES);
}

#[tokio::test]
async fn refusals_and_nonsense_are_told_apart() {
    let (_dir, mut kubelet) = start();
    let cases = [
        (Mood::Refusing(8, "rate%20limit"), "List refused with gRPC code 8: rate limit"),
        (Mood::Babbling(vec![]), "an answer of 0 bytes has no message"),
        (Mood::Babbling(vec![0, 0, 0, 0, 1, 0xff]), "not the expected message"),
        (Mood::Babbling(vec![0, 0, 0, 0, 2, 0]), "2 bytes was announced, 1 came"),
        (Mood::Babbling(vec![0; grpc::MAX_MESSAGE + 6]), "longer than 16777216 bytes"),
    ];
    for (mood, expected) in cases {
        let said = format!("{mood:.40?}");
        kubelet.mood(mood);
        let error = podresources::read(&kubelet.socket()).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{said}: {error}");
    }
    kubelet.mood(Mood::Helpful);
    assert!(podresources::read(&kubelet.socket()).await.is_ok());

    kubelet.stop().await;
    let error = podresources::read(&kubelet.socket()).await.unwrap_err().to_string();
    assert!(error.contains("is the kubelet running"), "{error}");
    kubelet.restart().await.unwrap();
    assert!(podresources::read(&kubelet.socket()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_silent_kubelet_is_not_waited_for() {
    let (_dir, kubelet) = start();
    kubelet.mood(Mood::Silent);
    let error = podresources::read(&kubelet.socket()).await.unwrap_err().to_string();
    assert!(error.contains("no answer within 5s"), "{error}");
}

/// The messages that are kept: name and bytes.
fn corpus() -> Vec<(&'static str, Vec<u8>)> {
    let lines = include_str!("corpus/podresources.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    let byte = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits).expect("hex");
        u8::from_str_radix(digits, 16).expect("hex")
    };
    lines
        .map(|line| {
            let (name, hex) = line.split_once(' ').expect("a name and bytes");
            (name, hex.trim().as_bytes().chunks(2).map(byte).collect())
        })
        .collect()
}

#[test]
fn kept_messages_are_read_or_refused() {
    let mut read = 0;
    for (_, bytes) in corpus() {
        let list = proto::ListResponse::decode(&*bytes);
        read += list.iter().map(Holdings::read).count();
        let allocatable = proto::AllocatableResponse::decode(&*bytes);
        read += allocatable.iter().map(Allocatable::read).count();
    }
    assert!(read >= 4, "{read}");
}

/// Held against messages that upstream's own types made: tags and types are theirs.
#[test]
fn messages_of_upstream_mean_what_upstream_means() {
    let find = |wanted: &str| {
        let found = corpus().into_iter().find(|(name, _)| *name == wanted);
        found.expect("a kept message").1
    };
    let list = proto::ListResponse::decode(&*find("list")).unwrap();
    check_upstream(&Holdings::read(&list));
    let allocatable = proto::AllocatableResponse::decode(&*find("allocatable")).unwrap();
    let allocatable = Allocatable::read(&allocatable);
    assert_eq!(allocatable.cpus.to_string(), "2-3,8-9,130");
    assert_eq!(allocatable.memory[0].bytes, 1 << 40);
    assert_eq!(allocatable.devices.len(), 3);
}

/// What `list` of the corpus says.
fn check_upstream(holdings: &Holdings) {
    let shown: Vec<_> = holdings
        .iter()
        .map(|(namespace, pod, container, h)| {
            let devices = h.devices.iter().map(|((_, id), nodes)| format!("{id}@{nodes:?}"));
            let memory = h.memory.iter().map(|m| format!("{}={}@{:?}", m.kind, m.bytes, m.nodes));
            let claims = h.claims.iter().map(|c| format!("{}/{}/{}", c.driver, c.pool, c.device));
            let all: Vec<_> = devices.chain(memory).chain(claims).collect();
            format!("{namespace}/{pod}/{container} [{}] {}", h.cpus, all.join(" "))
        })
        .collect();
    assert_eq!(
        shown,
        [
            "team/train-0/ [8-9] memory=5@{1}",
            "team/train-0/claimed [] gpu.nvidia.com/node-1/gpu-3",
            "team/train-0/main [2-3,130] GPU-0@{0} GPU-5@{1} nic-0@{} memory=8589934592@{0, 1} \
             hugepages-2Mi=4194304@{0}",
        ]
    );
}

/// On a node: `MUSTER_KUBELET_SOCKET=/var/lib/kubelet/pod-resources/kubelet.sock`.
#[tokio::test]
#[ignore = "needs a kubelet; MUSTER_KUBELET_SOCKET names its socket"]
async fn a_real_server_is_understood() {
    let socket = std::env::var_os("MUSTER_KUBELET_SOCKET").expect("MUSTER_KUBELET_SOCKET");
    for _ in 0..3 {
        match podresources::read(socket.as_ref()).await {
            Ok(reading) => println!("{reading:#?}"),
            Err(error) => println!("{error}"),
        }
    }
}
