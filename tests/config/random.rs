//! Random profiles: both programs accept or refuse them, and mean the same.
//!
//! Which plugins belong where is asked of kube-scheduler; arguments, good and bad,
//! are those of the files.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Map, Value, json};

use super::{World, files};

/// How many are tried; `MUSTER_CONFIG_CASES` sets another number.
const CASES: u64 = 60;
/// The first seed; `MUSTER_CONFIG_SEED` sets another one.
const SEED: u64 = 1;

/// Numbers from a seed (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n.max(1) as u64).unwrap()
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// What random files are made of.
struct Material {
    /// Names of plugins by extension point; `multiPoint` has all.
    points: BTreeMap<String, Vec<String>>,
    /// Items of `pluginConfig`.
    args: Vec<Value>,
}

impl Material {
    fn new(world: &World) -> Self {
        let all = files("accepted");
        let file = all.iter().find(|file| file.ends_with("workload-plugins.yaml")).unwrap();
        let called = world.kube_scheduler(file).called.remove(0);
        let names = |list: Vec<(String, i64)>| list.into_iter().map(|(name, _)| name).collect();
        let mut points: BTreeMap<String, Vec<String>> =
            called.into_iter().map(|(point, list)| (point, names(list))).collect();
        let everywhere = points.values().flatten().cloned().collect();
        points.insert("multiPoint".to_owned(), everywhere);
        let mut args = Vec::new();
        for file in all.iter().chain(&files("refused")) {
            let text = fs::read_to_string(file).unwrap();
            let Ok(config) = serde_saphyr::from_str::<Value>(&text) else {
                continue;
            };
            for profile in config["profiles"].as_array().into_iter().flatten() {
                args.extend(profile["pluginConfig"].as_array().into_iter().flatten().cloned());
            }
        }
        Self { points, args }
    }

    fn config(&self, rng: &mut Rng) -> Value {
        let profiles: Vec<Value> = (0..1 + rng.below(2)).map(|i| self.profile(rng, i)).collect();
        json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": profiles,
        })
    }

    fn profile(&self, rng: &mut Rng, index: usize) -> Value {
        let mut plugins = Map::new();
        for (point, names) in &self.points {
            // Different ones in two profiles are refused, which is no news.
            if point != "queueSort" && rng.one_in(4) {
                plugins.insert(point.clone(), self.set(rng, names));
            }
        }
        let mut args: Vec<Value> = Vec::new();
        for _ in 0..rng.below(3) {
            let one = rng.pick(&self.args);
            if args.iter().all(|other| other["name"] != one["name"]) {
                args.push(one.clone());
            }
        }
        json!({"schedulerName": format!("p{index}"), "plugins": plugins, "pluginConfig": args})
    }

    fn set(&self, rng: &mut Rng, names: &[String]) -> Value {
        let mut enabled: Vec<Value> = Vec::new();
        for _ in 0..rng.below(4) {
            let name = rng.pick(names);
            // Now and then a plugin twice, or one that has no such point.
            let name = if rng.one_in(40) { rng.pick(&self.points["multiPoint"]) } else { name };
            let twice = enabled.iter().any(|plugin| plugin["name"] == **name);
            if !twice || rng.one_in(40) {
                enabled.push(match rng.below(3) {
                    0 => json!({"name": name}),
                    weight => json!({"name": name, "weight": weight * 50 - 50}),
                });
            }
        }
        let disabled: Vec<Value> = match rng.below(5) {
            0 => vec![json!({"name": "*"})],
            1 | 2 => vec![json!({"name": rng.pick(names)})],
            _ => Vec::new(),
        };
        json!({"enabled": enabled, "disabled": disabled})
    }
}

fn number(variable: &str, default: u64) -> u64 {
    let set = std::env::var(variable).ok();
    set.map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn random_profiles_mean_the_same_to_both_or_are_refused_by_both() {
    let world = World::new();
    let material = Material::new(&world);
    let (mut accepted, mut refused) = (0, 0);
    let first = number("MUSTER_CONFIG_SEED", SEED);
    for seed in first..first + number("MUSTER_CONFIG_CASES", CASES) {
        let config = material.config(&mut Rng(seed));
        let file = world.dir.path().join("random.json");
        fs::write(&file, config.to_string()).unwrap();
        let (real, own) = (world.kube_scheduler(&file), world.muster(&file));
        let about = || {
            format!("seed {seed}: {config}\nkube-scheduler: {}\nMuster: {}", real.words, own.words)
        };
        assert_eq!(own.code, real.code, "{}", about());
        if real.code == Some(0) {
            assert_eq!(own.config, real.config, "{}", about());
            assert_eq!(own.called, real.called, "{}", about());
            accepted += 1;
        } else {
            refused += 1;
        }
    }
    // A test of refusals only, or of none, would say little.
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
    eprintln!("[config] {accepted} random files accepted by both, {refused} refused by both");
}
