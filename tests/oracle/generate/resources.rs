//! Quantities in all spellings, as nodes offer and containers ask for them.

use serde_json::{Value, json};

use super::{Mood, object};
use crate::rng::Rng;

/// Extended resources, and names that Kubernetes counts like them.
pub(super) const SCALARS: &[&str] = &[
    "nvidia.com/gpu",
    "example.com/foo",
    "hugepages-2Mi",
    "hugepages-1Gi",
    "sub.kubernetes.io/native",
    "attachable-volumes-csi-x",
];

/// Names that upstream's accounting ignores.
const IGNORED: &[&str] = &["storage", "plain", "requests.example.com/foo", "bad name/x"];

const NODE_CPU: &[&str] = &["4", "8", "3920m", "1.5", "2", "16", "500m", "96", "1930m", "0.3"];
const NODE_MEMORY: &[&str] =
    &["7Gi", "16Gi", "8000000Ki", "1e9", "4G", "32Gi", "1500M", "2147483648", "64Gi", "512Mi"];
const CPU: &[&str] = &["100m", "250m", "0.5", "1", "1.5", "333m", "7m", "2", "0", "1e-1", "3"];
const MEMORY: &[&str] =
    &["64Mi", "128Mi", "1Gi", "1.5Gi", "500M", "134217728", "0", "1e8", "1000000Ki", "200Mi"];
const BIG_CPU: &[&str] = &["4", "6", "3", "15", "90", "8"];
const BIG_MEMORY: &[&str] = &["6Gi", "12Gi", "30Gi", "4e9", "63Gi"];
const EPHEMERAL: &[&str] = &["1Gi", "500Mi", "10Gi", "2e9", "0", "4Gi"];

/// Spellings that are rare but legal, and sums that must not be rounded early.
const ODD_CPU: &[&str] = &["100500u", "0.0005", "1500u", ".5", "+1", "5e-1", "12E-1", "1."];
const ODD_MEMORY: &[&str] = &["100m", "1500m", "128974848000m", "1.1Gi", "0.1", "2k", "3Ki", "1E3"];

/// What a node has to give.
pub(super) fn allocatable(rng: &mut Rng, mood: &Mood) -> Value {
    let mut list = Vec::new();
    let small = rng.chance(mood.pressure);
    let mut add = |name: &str, value: Value| list.push((name.to_owned(), value));
    if !rng.chance(4) {
        add("cpu", json!(rng.pick(if small { &NODE_CPU[3..7] } else { NODE_CPU })));
    }
    if !rng.chance(4) {
        add("memory", json!(rng.pick(if small { &NODE_MEMORY[3..5] } else { NODE_MEMORY })));
    }
    if !rng.chance(15) {
        add("ephemeral-storage", json!(rng.pick(&["50Gi", "5Gi", "47093746742", "12G"])));
    }
    if !rng.chance(2) {
        let tight = rng.chance(mood.pressure / 2);
        let pods: &[&str] = if tight { &["0", "1", "2", "3"] } else { &["110", "20", "250", "5"] };
        let pods = rng.pick(pods);
        // A number where others write a string.
        add(
            "pods",
            if rng.chance(10) { json!(pods.parse::<u32>().unwrap_or(0)) } else { json!(pods) },
        );
    }
    if mood.scalars > 0 {
        for name in rng.some(&mood.scalar_names, 85) {
            let value = if name.starts_with("hugepages") {
                rng.pick(&["0", "64Mi", "1Gi", "4Gi", "66Mi", "64Mi"])
            } else {
                rng.pick(&["0", "1", "2", "8", "4", "3", "2"])
            };
            add(name, json!(value));
        }
    }
    if rng.chance(mood.nasty) {
        add(rng.pick(IGNORED), json!("7"));
        add("cpu", json!(rng.pick(ODD_CPU)));
        add("memory", json!(rng.pick(ODD_MEMORY)));
    }
    object(list)
}

/// What a container, a pod or its overhead asks for.
pub(super) fn requests(rng: &mut Rng, mood: &Mood) -> Value {
    let mut list = Vec::new();
    let big = rng.chance(mood.pressure / 3);
    let odd = rng.chance(mood.nasty);
    let mut add = |name: &str, value: Value| list.push((name.to_owned(), value));
    if rng.chance(70) {
        let from = if odd {
            ODD_CPU
        } else if big {
            BIG_CPU
        } else {
            CPU
        };
        add("cpu", number_or_text(rng, from));
    }
    if rng.chance(65) {
        let from = if odd {
            ODD_MEMORY
        } else if big {
            BIG_MEMORY
        } else {
            MEMORY
        };
        add("memory", number_or_text(rng, from));
    }
    if rng.chance(18) {
        add("ephemeral-storage", json!(rng.pick(EPHEMERAL)));
    }
    if rng.chance(mood.scalars * 3 / 2) {
        for name in rng.some(&mood.scalar_names, 50) {
            let value = if name.starts_with("hugepages") {
                rng.pick(&["2Mi", "64Mi", "64Mi", "1Gi", "0"])
            } else {
                rng.pick(&["1", "1", "2", "0", "3"])
            };
            add(name, json!(value));
        }
    }
    if odd {
        add(rng.pick(IGNORED), json!("1"));
    }
    object(list)
}

/// The resources of a pod as a whole; only some names count there.
pub(super) fn pod_level(rng: &mut Rng, mood: &Mood) -> Value {
    let mut requests = Vec::new();
    let big = rng.chance(mood.pressure / 3);
    let mut add = |name: &str, value: &str| requests.push((name.to_owned(), json!(value)));
    if rng.chance(60) {
        add("cpu", rng.pick(if big { BIG_CPU } else { CPU }));
    }
    if rng.chance(50) {
        add("memory", rng.pick(if big { BIG_MEMORY } else { MEMORY }));
    }
    if rng.chance(mood.scalars / 2) {
        add("hugepages-2Mi", rng.pick(&["2Mi", "64Mi", "0"]));
    }
    if rng.chance(mood.nasty) {
        // Not supported at this level: ignored.
        add(rng.pick(&["nvidia.com/gpu", "ephemeral-storage"]), "3");
    }
    match rng.below(8) {
        0 => json!({}),
        1 => json!({"limits": {"cpu": "2"}}),
        2 => json!({"requests": object(requests), "limits": {"memory": "9Gi"}}),
        _ => json!({"requests": object(requests)}),
    }
}

fn number_or_text(rng: &mut Rng, from: &[&str]) -> Value {
    let text = rng.pick(from);
    match text.parse::<u64>() {
        Ok(number) if rng.chance(20) => json!(number),
        _ => json!(text),
    }
}
