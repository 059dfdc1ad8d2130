//! GpuIdleness: pods that ask for GPUs go where GPUs have been idle.
//!
//! How much that counts is the business's decision: every namespace (business unit)
//! has a weight from 0 to 1. A node scores `idle × weight`, 100 at most; how that
//! stands against other plugins is the weight of the plugin in the profile.
//!
//! How idle the GPUs of a node are comes from outside: a task asks a URL every few
//! seconds and feeds what it hears. Nothing here reads a clock or a socket but that task.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster::plugin::{
    About, Args, Cluster, Facet, Feed, MAX_SCORE, NodeView, Plugin, PodShape, PreScoreResult,
    RegistryError, Score, State, k8s,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The name by which profiles enable it.
pub const NAME: &str = "GpuIdleness";

/// After so many polls in a row that failed, what is known is too old to act on.
const PATIENCE: u32 = 3;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Settings {
    /// Where idleness is read: a map of node names to a number from 0 (busy) to 1
    /// (idle), or the answer of Prometheus to an instant query.
    url: String,
    /// How often.
    #[serde(default = "fifteen")]
    poll_seconds: u64,
    /// With Prometheus, the label that holds the node's name.
    #[serde(default = "node")]
    node_label: String,
    /// What a pod has to ask for to be concerned.
    #[serde(default = "nvidia")]
    resource: String,
    /// By namespace.
    #[serde(default)]
    weights: BTreeMap<String, f64>,
    /// Of all other namespaces.
    #[serde(default)]
    default_weight: f64,
}

fn fifteen() -> u64 {
    15
}

fn node() -> String {
    "node".to_owned()
}

fn nvidia() -> String {
    "nvidia.com/gpu".to_owned()
}

/// The plugin.
pub struct GpuIdleness {
    settings: Settings,
}

impl GpuIdleness {
    /// Reads and checks the arguments.
    pub fn new(args: &Args<'_>) -> Result<Self, RegistryError> {
        let settings: Settings = args.parse()?;
        let named = settings.weights.iter().map(|(unit, w)| (format!("args.weights.{unit}"), *w));
        let default = ("args.defaultWeight".to_owned(), settings.default_weight);
        for (field, weight) in named.chain([default]) {
            if !(0.0..=1.0).contains(&weight) {
                return Err(args.invalid(field, weight, "must be between 0 and 1"));
            }
        }
        if settings.poll_seconds == 0 {
            return Err(args.invalid("args.pollSeconds", 0, "must be greater than 0"));
        }
        Ok(Self { settings })
    }
}

impl Plugin for GpuIdleness {
    fn name(&self) -> &'static str {
        NAME
    }

    fn as_facet(&self) -> Option<&dyn Facet> {
        Some(self)
    }

    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

impl Facet for GpuIdleness {
    /// Two pods alike but for the namespace may score differently.
    fn facet(&self, pod: &k8s::Pod) -> Option<Box<str>> {
        Some(pod.metadata.namespace.as_str().into())
    }

    /// So that weights can be changed while the scheduler runs.
    fn depends_on_args(&self) -> bool {
        false
    }
}

impl Score for GpuIdleness {
    fn pre_score(&self, shape: &PodShape, cluster: &Cluster) -> PreScoreResult {
        if cluster.request_of(shape, &self.settings.resource) == 0 {
            return PreScoreResult::Skip;
        }
        let weights = &self.settings.weights;
        let own = shape.facet(NAME).and_then(|namespace| weights.get(namespace));
        PreScoreResult::Go(Some(Box::new(*own.unwrap_or(&self.settings.default_weight))))
    }

    fn score(&self, state: &State, _: &PodShape, node: NodeView<'_>) -> i64 {
        let weight = state.as_ref().and_then(|state| state.downcast_ref::<f64>());
        // Percent; a node of which nothing is known is not preferred.
        let idle = node.data(NAME).and_then(Value::as_i64).unwrap_or(0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
        let score = (idle as f64 * weight.copied().unwrap_or(0.0)).round() as i64;
        score.clamp(0, MAX_SCORE)
    }
}

/// Asks for idleness as long as the scheduler runs.
pub async fn feed(feed: Feed) {
    let Ok(GpuIdleness { settings }) = GpuIdleness::new(&feed.args()) else {
        return; // The plugin was refused for the same reason.
    };
    let pause = Duration::from_secs(settings.poll_seconds);
    let (mut known, mut failures) = (BTreeSet::new(), 0);
    loop {
        let answer = feed.get(&settings.url, pause).await;
        let heard = match answer.and_then(|json| read(&json, &settings.node_label)) {
            Ok(heard) => {
                failures = 0;
                Some(heard)
            }
            Err(error) => {
                failures += 1;
                feed.warn(format!("GPU idleness is not known: {error}"));
                (failures == PATIENCE).then(BTreeMap::new)
            }
        };
        if let Some(heard) = heard {
            // What is no longer spoken of is taken back.
            let gone = known.iter().filter(|node| !heard.contains_key(*node));
            let gone = gone.map(|node: &String| (About::Node(node.as_str().into()), None));
            let now = heard.iter();
            let now =
                now.map(|(node, idle)| (About::Node(node.as_str().into()), Some(json!(idle))));
            if feed.all(gone.chain(now).collect::<Vec<_>>()).await.is_err() {
                return;
            }
            known = heard.into_keys().collect();
        }
        tokio::time::sleep(pause).await;
    }
}

/// Idleness by node, in percent: whole numbers, so that noise is no news.
fn read(json: &Value, node_label: &str) -> Result<BTreeMap<String, i64>, String> {
    let percent = |number: f64| (number.clamp(0.0, 1.0) * 100.0).round();
    #[allow(clippy::cast_possible_truncation)]
    let of = |number: Option<f64>, node: &str| match number {
        Some(number) if number.is_finite() => Ok((node.to_owned(), percent(number) as i64)),
        _ => Err(format!("{node}: no number")),
    };
    if let Some(samples) = json["data"]["result"].as_array() {
        let sample = |sample: &Value| {
            let node = sample["metric"][node_label].as_str();
            let node = node.ok_or_else(|| format!("a sample has no label {node_label:?}"))?;
            of(sample["value"][1].as_str().and_then(|text| text.parse().ok()), node)
        };
        return samples.iter().map(sample).collect();
    }
    let nodes = json.as_object().ok_or("neither a map of nodes nor an answer of Prometheus")?;
    nodes.iter().map(|(node, idle)| of(idle.as_f64(), node)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idleness_is_read_from_a_map_or_from_prometheus() {
        let prometheus = |value: &str| {
            json!({"status": "success", "data": {"resultType": "vector", "result": [
                {"metric": {"node": "a"}, "value": [1_700_000_000.1, value]},
            ]}})
        };
        let table = [
            (json!({"a": 0.934, "b": 7}), Ok(vec![("a", 93), ("b", 100)])),
            (prometheus("0.5"), Ok(vec![("a", 50)])),
            (prometheus("NaN"), Err("a: no number")),
            (json!({"a": "idle"}), Err("a: no number")),
            (json!([1]), Err("neither a map of nodes nor an answer of Prometheus")),
        ];
        for (json, expected) in table {
            let expected = expected
                .map_err(str::to_owned)
                .map(|list| list.into_iter().map(|(node, idle)| (node.to_owned(), idle)).collect());
            assert_eq!(read(&json, "node"), expected, "{json}");
        }
    }

    #[test]
    fn wrong_arguments_are_refused_by_name() {
        let table = [
            (json!({}), "GpuIdleness: args: missing field `url`"),
            (
                json!({"url": "http://x", "weights": {"research": 2.0}}),
                "GpuIdleness: args.weights.research: Invalid value: 2.0: must be between 0 and 1",
            ),
            (
                json!({"url": "http://x", "pollSeconds": "15s"}),
                "GpuIdleness: args.pollSeconds: invalid type: string \"15s\", expected u64",
            ),
        ];
        for (args, expected) in table {
            let made = GpuIdleness::new(&Args::new(NAME, Some(&args)));
            assert_eq!(made.err().map(|e| e.to_string()).as_deref(), Some(expected));
        }
    }
}
