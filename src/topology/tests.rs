//! The tree against a fresh one, its bounds, and pictures that can be read.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

use std::collections::BTreeMap;

use muster_api::muster::{MAX_DOMAINS, TopologyLevel, TopologyRequest};
use proptest::prelude::*;

use super::*;

fn levels(names: &[&str]) -> Vec<TopologyLevel> {
    let level = |name: &&str| TopologyLevel {
        name: (*name).to_owned(),
        node_label: if *name == "host" { "kubernetes.io/hostname" } else { *name }.to_owned(),
    };
    names.iter().map(level).collect()
}

/// A node's labels and what it has.
type Node = (BTreeMap<String, String>, Room);

fn put(tree: &mut Tree, name: &str, (labels, room): &Node) -> bool {
    tree.put(name, |key| labels.get(key).map(String::as_str), *room)
}

fn fresh(nodes: &BTreeMap<String, Node>) -> Tree {
    let mut tree = Tree::new(levels(&["block", "rack"]));
    for (name, node) in nodes {
        put(&mut tree, name, node);
    }
    tree
}

fn node(block: Option<u8>, rack: Option<u8>, room: Room) -> Node {
    let label = |key: &str, value: Option<u8>| {
        value.map(|value| {
            // One value in four is empty: a value like any other.
            (key.to_owned(), if value == 3 { String::new() } else { format!("{key}-{value}") })
        })
    };
    ([label("block", block), label("rack", rack)].into_iter().flatten().collect(), room)
}

fn any_room() -> impl Strategy<Value = Room> {
    (0..9_i64, -1..10_i64, any::<bool>()).prop_map(|(gpus, used, closed)| Room {
        gpus,
        used,
        closed: closed.then_some("cordoned"),
    })
}

fn any_node() -> impl Strategy<Value = Node> {
    let label = || proptest::option::weighted(0.9, 0..4_u8);
    (label(), label(), any_room()).prop_map(|(block, rack, room)| node(block, rack, room))
}

proptest! {
    #[test]
    fn a_tree_kept_up_to_date_is_a_fresh_one(
        changes in proptest::collection::vec((0..12_u8, proptest::option::of(any_node())), 1..60)
    ) {
        let mut tree = fresh(&BTreeMap::new());
        let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
        for (name, change) in changes {
            let name = format!("node-{name}");
            let before = View::of("t", &tree);
            let changed = match change {
                Some(node) => {
                    let changed = put(&mut tree, &name, &node);
                    nodes.insert(name, node);
                    changed
                }
                None => {
                    nodes.remove(&name);
                    tree.take(&name)
                }
            };
            let (after, again) = (View::of("t", &tree), View::of("t", &fresh(&nodes)));
            prop_assert_eq!(&after, &again);
            prop_assert_eq!(counted(&tree), counted(&fresh(&nodes)));
            // What has not changed needs no write.
            prop_assert!(changed || before == after);
        }
    }

    #[test]
    fn parts_add_up(nodes in proptest::collection::vec(any_node(), 0..20)) {
        let nodes = nodes.into_iter().enumerate().map(|(i, node)| (format!("node-{i}"), node));
        let tree = fresh(&nodes.collect());
        let view = View::of("t", &tree);
        let GpuCounts { total, used, free } = view.gpus;
        prop_assert!(used >= 0 && free >= 0 && view.gpus.closed() >= 0, "{:?}", view.gpus);
        let inner: i64 = view.domains.iter().map(|d| d.gpus.total).sum();
        let loose: i64 = view.node_list.iter().map(|n| n.gpus.total).sum();
        prop_assert_eq!(inner + loose, total);
        let lacking: usize = view.lacking.iter().map(|l| l.nodes).sum();
        let (status, all) = (counted(&tree), view.nodes.total);
        prop_assert_eq!(i64::from(status.levels[1].nodes_without_label), lacking as i64);
        prop_assert!(used + free <= total && view.nodes.closed <= all);
    }
}

#[test]
fn a_status_lists_wide_levels_first_and_says_how_many_it_leaves_out() {
    let mut tree = Tree::new(levels(&["block", "rack"]));
    let room = Room { gpus: 8, used: 3, closed: None };
    for i in 0..600 {
        let labels = [("block", format!("b{}", i / 60)), ("rack", format!("r{i}"))];
        let labels: BTreeMap<&str, String> = labels.into();
        tree.put(&format!("n{i}"), |key| labels.get(key).map(String::as_str), room);
    }
    tree.put("bare", |_| None, room);
    let status = counted(&tree);
    assert_eq!(status.domains.len(), MAX_DOMAINS);
    assert_eq!(status.domains_omitted, Some(610 - 512));
    let first = &status.domains[0];
    assert_eq!(
        (&*first.level, &*first.name, first.gpus, first.free_gpus),
        ("block", "b0", 480, 300)
    );
    let rack = &status.domains[10];
    assert_eq!((&*rack.level, &*rack.name, &*rack.parent), ("rack", "r0", "b0"));
    let levels: Vec<_> = status.levels.iter().map(|l| (l.domains, l.nodes_without_label)).collect();
    assert_eq!(levels, [(10, 1), (600, 1)]);
}

#[test]
fn a_group_is_in_the_narrowest_domain_it_asked_for_that_holds_all_of_it() {
    let fabric = levels(&["block", "rack", "host"]);
    let zones = levels(&["zone"]);
    // Racks are named alike in every block.
    let label = |node: &str, key: &str| match (node, key) {
        ("a1" | "a2", "rack") | ("b1", "rack") => Some("r1"),
        ("a3", "rack") => Some("r2"),
        ("a1" | "a2" | "a3", "block") => Some("a"),
        ("b1", "block") => Some("b"),
        ("a1", "kubernetes.io/hostname") => Some("a1"),
        ("a1" | "b1" | "bare", "zone" | "pool") => Some("z"),
        _ => None,
    };
    for (required, preferred, nodes, expected) in [
        ("rack", "", &["a1", "a2"][..], "rack=r1"),
        ("rack", "", &["a1", "a3"], ""),
        ("rack", "", &["a1", "b1"], ""), // two racks, though both are r1
        ("block", "", &["a1", "a3"], "block=a"),
        ("block", "rack", &["a1", "a2"], "block=a"),
        ("block", "rack", &["a1", "a3"], "block=a"),
        ("", "rack", &["a1", "a3"], "block=a"),
        ("", "rack", &["a1", "b1"], ""),
        ("", "host", &["a1"], "kubernetes.io/hostname=a1"),
        ("", "host", &["a1", "a2"], "rack=r1"),
        ("zone", "rack", &["a1", "b1"], "zone=z"),
        ("pool", "", &["a1", "bare"], "pool=z"), // a label of no topology
        ("pool", "", &["a1", "a2"], ""),
        ("rack", "", &["bare"], ""),
        ("rack", "", &[], ""),
    ] {
        let asked = |level: &str| Some(level.to_owned()).filter(|l| !l.is_empty());
        let request = TopologyRequest {
            required: asked(required),
            preferred: asked(preferred),
            ..TopologyRequest::default()
        };
        let found = domain_of(&request, &[&fabric, &zones], nodes, label);
        let found = found.map_or(String::new(), |d| format!("{}={}", d.key, d.value));
        assert_eq!(found, expected, "{required:?} {preferred:?} {nodes:?}");
    }
}

/// Racks of `nodes` nodes with eight GPUs, 30 racks to a block.
fn racks(racks: usize, nodes: usize, name: impl Fn(usize) -> String) -> View {
    let mut tree = Tree::new(levels(&["block", "rack", "host"]));
    for i in 0..racks * nodes {
        let (rack, host) = (i / nodes, format!("node-{i}"));
        let block = rack / 30.min(racks / 2);
        let labels = [("block", format!("block-{block}")), ("rack", name(rack))];
        let labels: BTreeMap<&str, String> = labels.into();
        let label = |key: &str| match key {
            "kubernetes.io/hostname" => Some(host.as_str()),
            key => labels.get(key).map(String::as_str),
        };
        let used = (i * 7 % 13).min(8) as i64 * i64::from(rack % 5 != 2);
        tree.put(&host, label, Room { gpus: 8, used, closed: (i % 97 == 3).then_some("cordoned") });
    }
    View::of("fabric", &tree)
}

/// Left, top, right and bottom of every text.
fn texts(svg: &str) -> Vec<(String, [i32; 4])> {
    let attribute = |line: &str, name: &str| -> i32 {
        let from = line.split_once(&format!(" {name}=\"")).unwrap().1;
        from.split_once('"').unwrap().0.parse().unwrap()
    };
    let texts = svg.lines().filter(|line| line.starts_with("<text "));
    texts
        .map(|line| {
            let words = line.split_once('>').unwrap().1.trim_end_matches("</text>").to_owned();
            let (x, y) = (attribute(line, "x"), attribute(line, "y"));
            let size = attribute(line, "font-size");
            let plain = words.replace("&gt;", ">");
            let width = text::width(&plain, size);
            let width = if line.contains("class=\"b\"") { width * 9 / 8 } else { width };
            (words, [x, y - size * 3 / 4, x + width, y + size / 4])
        })
        .collect()
}

#[test]
fn no_text_covers_another_however_many_racks_there_are() {
    let long = |i: usize| format!("datacenter-west-hall-{}-row-{}-rack-{i}", i % 7, i / 7);
    for view in [
        racks(8, 16, |i| format!("rack-{i}")),
        racks(300, 16, |i| format!("rack-{i}")),
        racks(300, 4, long),
        racks(40, 1, long),
    ] {
        let picture = svg(&view);
        let page: Vec<i32> = ["width", "height"]
            .map(|name| {
                let from = picture.split_once(&format!(" {name}=\"")).unwrap().1;
                from.split_once('"').unwrap().0.parse().unwrap()
            })
            .to_vec();
        let texts = texts(&picture);
        for (i, (words, a)) in texts.iter().enumerate() {
            assert!(a[0] >= 0 && a[2] <= page[0] && a[3] <= page[1], "{words} is off the page");
            for (other, b) in &texts[i + 1..] {
                let apart = a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1];
                assert!(apart, "{words} {a:?} covers {other} {b:?}");
            }
        }
    }
}

#[test]
fn a_picture_is_no_larger_than_a_screen_can_scroll() {
    let view = racks(300, 16, |i| format!("rack-{i}"));
    let picture = svg(&view);
    assert_eq!(
        picture.matches("class=\"inner\"").count() + picture.matches("\"idle\" x=\"").count(),
        301
    );
    assert!(picture.len() < 2_500_000, "{}", picture.len());
    if let Some(folder) = std::env::var_os("MUSTER_PICTURES") {
        let folder = std::path::Path::new(&folder);
        std::fs::write(folder.join("300.svg"), &picture).unwrap();
        let small = racks(8, 16, |i| format!("rack-{i}"));
        std::fs::write(folder.join("8.svg"), svg(&small)).unwrap();
        let long = racks(60, 4, |i| format!("dc-west-hall-{}-row-{}-rack-{i}", i % 7, i / 7));
        std::fs::write(folder.join("long.svg"), svg(&long)).unwrap();
    }
}

#[test]
fn any_vendors_gpus_count_and_nothing_else_does() {
    for (resource, gpu) in [
        ("nvidia.com/gpu", true),
        ("amd.com/gpu", true),
        ("example.com/gpu", true),
        ("nvidia.com/gpu.shared", false),
        ("nvidia.com/mig-1g.10gb", false),
        ("/gpu", false),
        ("gpu", false),
        ("cpu", false),
    ] {
        assert_eq!(is_gpu(resource), gpu, "{resource}");
    }
}
