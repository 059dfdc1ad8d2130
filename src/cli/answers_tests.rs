//! Transcripts of `muster queue`, `nodes`, `gang` and `lint`, from files.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

use muster_core::Profile;

use super::print::{Output, golden};
use super::{gang, lint, nodes, queue};
use crate::explain::read_documents;
use crate::plugin::Registry;
use crate::whatif::{Stage, World};

fn world() -> World {
    let text = include_str!("golden/cluster.yaml");
    World::new(read_documents(text).unwrap(), None).unwrap()
}

#[test]
fn the_queue_is_in_order() {
    let world = world();
    let stage = Stage::new(&world, vec![Profile::default_named("muster")]);
    let told =
        |namespace, output, headings| queue::answer(&stage, namespace, output, headings).unwrap();
    golden("queue-all.txt", &told(None, Output::Table, true));
    golden("queue-wide.txt", &told(Some("team"), Output::Wide, true));
    golden("queue.json", &told(None, Output::Json, true));
    let plain = told(Some("other"), Output::Table, false);
    assert_eq!(plain.lines().count(), 2, "{plain}");
    assert_eq!(told(Some("nobody"), Output::Table, true), "");
    assert_eq!(told(Some("nobody"), Output::Json, true), "{\n  \"items\": []\n}\n");
}

#[test]
fn nodes_have_gpus_links_and_health() {
    let world = world();
    let told = |names: &[String], output| nodes::answer(&world, names, output, true).unwrap();
    golden("nodes.txt", &told(&[], Output::Table));
    golden("nodes-wide.txt", &told(&[], Output::Wide));
    golden("nodes.yaml", &told(&["gpu-1".to_owned()], Output::Yaml));
    let missing = nodes::answer(&world, &["gpu-9".to_owned()], Output::Table, true).unwrap_err();
    assert_eq!(missing.to_string(), "nodes \"gpu-9\" not found");
}

#[test]
fn gangs_have_members_with_ranks_and_domains() {
    let world = world();
    let told = |namespace, name, output| gang::answer(&world, namespace, name, output, true);
    golden("gang.txt", &told("team", "serve", Output::Table).unwrap());
    golden("gang-wide.txt", &told("team", "train", Output::Wide).unwrap());
    golden("gang.json", &told("other", "half", Output::Json).unwrap());
    assert_eq!(
        told("other", "train", Output::Table).unwrap_err().to_string(),
        "there is no pod group \"train\" in namespace \"other\" (-n NAMESPACE)"
    );
}

#[test]
fn what_lint_says_names_file_object_field_and_remedy() {
    let registry = Registry::default();
    let of = |file: &str, text: &str| crate::lint::lint(file.as_ref(), text, registry.plugins());
    let reports = [
        of("wrong.yaml", include_str!("golden/lint-wrong.yaml")),
        of("right.yaml", include_str!("golden/lint-right.yaml")),
    ];
    golden("lint.txt", &lint::answer(&reports, lint::Output::Text).unwrap());
    golden("lint.json", &lint::answer(&reports, lint::Output::Json).unwrap());
}
