//! Configuration files as the real kube-scheduler reads them.
//!
//! Every file of `accepted/` is read by kube-scheduler and by `muster config view`:
//! both must write the same configuration, defaults and arguments included, and
//! call the same plugins in the same order with the same weights at every extension
//! point. Every file of `refused/` must be refused by both; what Muster says is kept
//! beside it. A file of `converted/` must mean to Muster what its v1 form means to
//! kube-scheduler.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod random;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use muster_control_plane::{Tool, binary};
use serde_json::{Map, Value};
use tempfile::TempDir;

/// Where files of clusters point to; a directory of the test stands in for it.
const ETC: &str = "/etc/kubernetes";
/// How many files there are at least.
const FILES: usize = 40;

/// A directory with what the files point to.
struct World {
    dir: TempDir,
}

/// What a program made of a file.
struct Answer {
    code: Option<i32>,
    config: Value,
    /// Names and weights by profile and extension point.
    called: Vec<BTreeMap<String, Vec<(String, i64)>>>,
    words: String,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pki = dir.path().join("pki");
        fs::create_dir(&pki).unwrap();
        let made = rcgen::generate_simple_self_signed(["extender.test".to_owned()]).unwrap();
        fs::write(pki.join("ca.crt"), made.cert.pem()).unwrap();
        fs::write(pki.join("extender.crt"), made.cert.pem()).unwrap();
        fs::write(pki.join("extender.key"), made.signing_key.serialize_pem()).unwrap();
        let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                          clusters: [{name: c, cluster: {server: \"http://127.0.0.1:1\"}}]\n\
                          contexts: [{name: c, context: {cluster: c, user: u}}]\n\
                          users: [{name: u, user: {}}]\n";
        fs::write(dir.path().join("scheduler.conf"), kubeconfig).unwrap();
        Self { dir }
    }

    /// Puts a file where the programs run; its name in there.
    fn put(&self, file: &Path) -> String {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(file).unwrap();
        let text = text.replace(ETC, self.dir.path().to_str().unwrap());
        fs::write(self.dir.path().join(&name), text).unwrap();
        name
    }

    fn run(&self, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Output {
        Command::new(program).args(args).current_dir(self.dir.path()).output().unwrap()
    }

    /// kube-scheduler reads a file, says whom it calls where, writes what it made of
    /// it, and ends before it asks an API server anything.
    fn kube_scheduler(&self, file: &Path) -> Answer {
        let (name, written) = (self.put(file), self.dir.path().join("written.yaml"));
        let _ = fs::remove_file(&written);
        let mut args = vec!["--config", &name, "--write-config-to", "written.yaml", "-v", "2"];
        args.extend(["--master", "http://127.0.0.1:1", "--secure-port", "0"]);
        args.extend(["--logging-format", "json"]);
        let output = self.run(binary(Tool::KubeScheduler).unwrap(), &args);
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let (mut called, mut words) = (Vec::new(), String::new());
        for line in lines {
            if line["msg"] == "the scheduler starts to work with those plugins" {
                called.push(lists(line["Plugins"].as_object().unwrap(), "Enabled"));
            }
            words += line["err"].as_str().unwrap_or_default();
        }
        let config = fs::read_to_string(written).unwrap_or_default();
        let config = serde_saphyr::from_str(&config).unwrap_or_default();
        Answer { code: output.status.code(), config, called, words }
    }

    fn muster(&self, file: &Path) -> Answer {
        let name = self.put(file);
        let view = ["config", "view", "--config", &name, "-o"];
        let ask = |more: &[&str]| self.run(env!("CARGO_BIN_EXE_muster"), &[&view, more].concat());
        let (output, plugins) = (ask(&["yaml"]), ask(&["json", "--plugins"]));
        let config: Value =
            serde_saphyr::from_str(&String::from_utf8_lossy(&output.stdout)).unwrap_or_default();
        let plugins: Map<String, Value> =
            serde_json::from_slice(&plugins.stdout).unwrap_or_default();
        let names = config["profiles"].as_array().into_iter().flatten();
        let called = names
            .map(|profile| plugins[profile["schedulerName"].as_str().unwrap()].as_object().unwrap())
            .map(|points| lists(points, ""))
            .collect();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        Answer { code: output.status.code(), config, called, words }
    }
}

/// Names and weights by extension point, empty ones left out.
fn lists(points: &Map<String, Value>, under: &str) -> BTreeMap<String, Vec<(String, i64)>> {
    let plugin = |plugin: &Value| {
        let field = |upper: &str, lower: &str| plugin.get(upper).or(plugin.get(lower)).cloned();
        let name = field("Name", "name").unwrap();
        let weight = field("Weight", "weight").and_then(|weight| weight.as_i64());
        (name.as_str().unwrap().to_owned(), weight.unwrap_or(0))
    };
    let list = |set: &Value| {
        let list = if under.is_empty() { set } else { &set[under] };
        list.as_array().into_iter().flatten().map(plugin).collect::<Vec<_>>()
    };
    let lower = |point: &str| format!("{}{}", point[..1].to_lowercase(), &point[1..]);
    let all = points.iter().map(|(point, set)| (lower(point), list(set)));
    all.filter(|(_, list)| !list.is_empty()).collect()
}

fn files(folder: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(folder);
    let all = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> =
        all.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
    all.sort();
    all
}

/// Both read it, and mean the same.
fn same(world: &World, theirs: &Path, ours: &Path) {
    let (real, own) = (world.kube_scheduler(theirs), world.muster(ours));
    let shown = ours.display();
    assert_eq!(real.code, Some(0), "{shown}: kube-scheduler refuses it: {}", real.words);
    assert_eq!(own.code, Some(0), "{shown}: Muster refuses it: {}", own.words);
    let text = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    assert_eq!(text(&own.config), text(&real.config), "{shown}: what is in force");
    assert!(!real.called.is_empty(), "{shown}: kube-scheduler says whom it calls");
    assert_eq!(own.called, real.called, "{shown}: who is called where");
}

#[test]
fn what_kube_scheduler_accepts_means_the_same_to_muster() {
    let (world, all) = (World::new(), files("accepted"));
    let others = files("refused").len() + files("converted").len();
    assert!(all.len() + others >= FILES, "{} files", all.len() + others);
    all.iter().for_each(|file| same(&world, file, file));
}

#[test]
fn what_kube_scheduler_refuses_muster_refuses_with_place_reason_and_remedy() {
    let world = World::new();
    for file in files("refused") {
        let (real, own) = (world.kube_scheduler(&file), world.muster(&file));
        let shown = file.display();
        assert_eq!(real.code, Some(1), "{shown}: kube-scheduler accepts it");
        assert_eq!(own.code, Some(1), "{shown}: Muster accepts it");
        let text = fs::read_to_string(&file).unwrap();
        let says = text.lines().find_map(|line| line.strip_prefix("# says: ")).unwrap();
        for (who, words) in [("kube-scheduler", &real.words), ("Muster", &own.words)] {
            assert!(words.contains(says), "{shown}: {who} does not say {says:?}:\n{words}");
        }
        let golden = file.with_extension("txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &own.words).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(own.words, expected, "{shown}: UPDATE_GOLDEN=1 rewrites {}", golden.display());
    }
}

#[test]
fn a_file_of_v1beta3_means_what_its_v1_form_means_to_kube_scheduler() {
    let world = World::new();
    let old = files("converted");
    let old: Vec<_> =
        old.iter().filter(|file| file.to_string_lossy().contains("v1beta3")).collect();
    assert!(!old.is_empty());
    for file in old {
        let new = PathBuf::from(file.to_string_lossy().replace("v1beta3", "v1"));
        same(&world, &new, file);
        let own = world.muster(file);
        let warning = "muster: warning: apiVersion: kubescheduler.config.k8s.io/v1beta3 was \
                       removed in Kubernetes 1.29; the file is read as \
                       kubescheduler.config.k8s.io/v1: change the version";
        assert!(own.words.contains(warning), "{}: {}", file.display(), own.words);
    }
}

#[test]
fn what_is_shown_can_be_read_again_and_shows_the_same() {
    let world = World::new();
    for file in files("accepted") {
        let first = world.muster(&file);
        let again = world.dir.path().join("again.yaml");
        fs::write(&again, first.config.to_string()).unwrap();
        let second = world.run(
            env!("CARGO_BIN_EXE_muster"),
            &["config", "view", "--config", "again.yaml", "-o", "json"],
        );
        let second: Value = serde_json::from_slice(&second.stdout).unwrap();
        assert_eq!(second, first.config, "{}", file.display());
    }
}

#[test]
fn without_a_file_muster_shows_its_own_profile_with_the_default_plugins() {
    let world = World::new();
    let output = world.run(env!("CARGO_BIN_EXE_muster"), &["config", "view", "-o", "json"]);
    assert!(output.status.success());
    let own: Value = serde_json::from_slice(&output.stdout).unwrap();
    let real = world.kube_scheduler(
        &files("accepted").into_iter().find(|f| f.ends_with("empty.yaml")).unwrap(),
    );
    assert_eq!(own["profiles"][0]["schedulerName"], "muster");
    for part in ["plugins", "pluginConfig"] {
        assert_eq!(own["profiles"][0][part], real.config["profiles"][0][part]);
    }
    assert_eq!(own["leaderElection"]["resourceName"], "muster");
}

#[test]
fn budgets_may_be_broken_only_where_the_file_says_so() {
    let world = World::new();
    let file = world.dir.path().join("own.yaml");
    for (given, shown) in [("true", Some(true)), ("false", None)] {
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
             profiles: [{{pluginConfig: [{{name: DefaultPreemption, args: \
             {{allowBudgetViolations: {given}}}}}]}}]\n"
        );
        fs::write(&file, text).unwrap();
        let args = &["config", "view", "--config", "own.yaml", "-o", "json"];
        let output = world.run(env!("CARGO_BIN_EXE_muster"), args);
        let own: Value = serde_json::from_slice(&output.stdout).unwrap();
        let args = &own["profiles"][0]["pluginConfig"][0]["args"];
        assert_eq!(args.get("allowBudgetViolations").and_then(Value::as_bool), shown);
    }
}
