//! What becomes of a change, with an owner of the test's own: it answers as it is told.

use std::collections::BTreeMap;

use muster_core::framework::Registry as Plugins;

use super::*;
use crate::elect::Leadership;
use crate::extend::Setup;

const SOON: Duration = Duration::from_secs(30);
const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

/// What the owner was told: names, backoff and extenders of each reload.
type Told = Arc<Mutex<Vec<String>>>;

struct Stage {
    _dir: tempfile::TempDir,
    file: PathBuf,
    told: Told,
    /// What the owner says next; `Ok` when there is nothing left to say.
    says: Arc<Mutex<Vec<ReloadError>>>,
    metrics: Metrics,
    extenders: Extenders,
    configz: Arc<Mutex<Value>>,
    end: Shutdown,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.end.trigger();
    }
}

/// Takes up all reloads but those that it is told to refuse.
async fn owner(mut inbox: mpsc::Receiver<Message>, told: Told, says: Arc<Mutex<Vec<ReloadError>>>) {
    let (mut version, mut in_use) = (0, BTreeSet::new());
    while let Some(message) = inbox.recv().await {
        match message {
            Message::Reload(reload, answer) => {
                if let Some(error) = says.lock().pop() {
                    let _ = answer.send(Err(error));
                    continue;
                }
                let extenders = reload.profiles[0].extenders();
                in_use = extenders.iter().map(|e| e.id).collect();
                let ids: Vec<u32> = in_use.iter().map(|id: &ExtenderId| id.0).collect();
                let names: Vec<_> =
                    reload.profiles.iter().map(|p| p.scheduler_name().to_string()).collect();
                let most = reload.backoff.max_secs;
                told.lock().push(format!("{} {most}s {ids:?}", names.join(",")));
                version += 1;
                let _ = answer.send(Ok(version));
            }
            Message::Ask(Question::Extenders(answer)) => drop(answer.send(in_use.clone())),
            _ => {}
        }
    }
}

fn stage(text: &str) -> Stage {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, format!("{HEAD}{text}")).unwrap();
    let (mailbox, inbox) = mpsc::channel(8);
    let (told, says) = (Told::default(), Arc::<Mutex<Vec<ReloadError>>>::default());
    tokio::spawn(owner(inbox, Arc::clone(&told), Arc::clone(&says)));
    let (metrics, end, registry) = (Metrics::new(), Shutdown::new(), Registry::default());
    let read = Configuration::load_with(Some(&file), &Plugins::in_tree()).unwrap();
    let extenders = Extenders::new(Setup {
        shard: None,
        config: kube::Config::new("http://127.0.0.1:1".parse().unwrap()),
        leadership: Leadership::always(),
        answers: mailbox.clone(),
        metrics: metrics.clone(),
    })
    .unwrap();
    let asked = extenders.prepare(&read.extenders).unwrap().iter().map(|e| e.id).collect();
    let configz = Arc::new(Mutex::new(read.configz()));
    metrics.config_in_force(0, 0);
    let mut in_force = read.clone();
    in_force.leader_election.resource_name = "by-a-flag".to_owned();
    let follower = Follower {
        path: file.clone(),
        every: Duration::from_millis(5),
        read,
        in_force,
        feeds: registry.feeds(&mailbox, &end),
        registry,
        extenders: extenders.clone(),
        mailbox,
        metrics: metrics.clone(),
        configz: Arc::clone(&configz),
        end: end.clone(),
        asked,
    };
    tokio::spawn(follower.run());
    Stage { _dir: dir, file, told, says, metrics, extenders, configz, end }
}

impl Stage {
    /// As an editor does it: another file takes the place.
    fn write(&self, text: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    fn sample(&self, name: &str) -> i64 {
        let text = self.metrics.encode();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    /// What changes came to so far.
    fn counts(&self) -> BTreeMap<&'static str, i64> {
        let results = ["applied", "invalid", "needs_restart", "busy"].into_iter();
        let of = |r| self.sample(&format!("muster_config_reloads_total{{result=\"{r}\"}}"));
        results.map(|result| (result, of(result))).filter(|(_, n)| *n > 0).collect()
    }

    async fn until(&self, what: &str, ready: impl Fn(&Self) -> bool) {
        let wait = async {
            while !ready(self) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(SOON, wait).await;
        assert!(waited.is_ok(), "not {what}: {:?}, {:?}", self.counts(), self.told.lock());
    }

    async fn counted(&self, result: &'static str, n: i64) {
        self.until(result, |s| s.counts().get(result) == Some(&n)).await;
    }
}

fn extender(url: &str, weight: i64) -> String {
    format!(
        "{{urlPrefix: 'http://127.0.0.1:1/{url}', filterVerb: f, nodeCacheCapable: true, weight: {weight}}}"
    )
}

#[tokio::test]
async fn a_change_is_taken_up_and_shown_and_flags_stay() {
    let stage = stage("podMaxBackoffSeconds: 10\n");
    stage.write(&format!("{HEAD}podMaxBackoffSeconds: 20\n"));
    stage.counted("applied", 1).await;
    assert_eq!(*stage.told.lock(), ["default-scheduler 20s []"]);
    let shown = stage.configz.lock().to_string();
    assert!(
        shown.contains("\"podMaxBackoffSeconds\":20") && shown.contains("by-a-flag"),
        "{shown}"
    );
    let facts = ["muster_config_version", "muster_config_current"].map(|name| stage.sample(name));
    assert_eq!(facts, [1, 1]);
    assert!(stage.sample("muster_config_last_applied_timestamp_seconds") > 1_600_000_000);
    // Another text that says the same is no change.
    stage.write(&format!("# a remark\n{HEAD}podMaxBackoffSeconds: 20\n"));
    stage.write(&format!("{HEAD}podMaxBackoffSeconds: 30\n"));
    stage.counted("applied", 2).await;
    assert_eq!(stage.told.lock().last().unwrap(), "default-scheduler 30s []");
}

#[tokio::test]
async fn what_is_refused_is_counted_once_and_the_old_configuration_stays() {
    let stage = stage("");
    let before = stage.configz.lock().clone();
    stage.write("no: [yaml");
    stage.counted("invalid", 1).await;
    stage.write(&format!("{HEAD}leaderElection: {{leaseDuration: 20s}}\nparallelism: 2\n"));
    stage.counted("needs_restart", 1).await;
    assert_eq!(
        (stage.sample("muster_config_current"), stage.sample("muster_config_version")),
        (0, 0)
    );
    std::fs::remove_file(&stage.file).unwrap();
    stage.counted("invalid", 2).await;
    stage.write(&format!("{HEAD}extenders: [{{urlPrefix: nowhere, filterVerb: f, weight: 1}}]\n"));
    stage.counted("invalid", 3).await;
    assert_eq!(*stage.configz.lock(), before);
    // Back to what is in force: nothing is reloaded, and all is well.
    stage.write(HEAD);
    stage.until("current", |s| s.sample("muster_config_current") == 1).await;
    assert_eq!(stage.counts(), [("invalid", 3), ("needs_restart", 1)].into());
    assert!(stage.told.lock().is_empty());
}

#[tokio::test]
async fn what_the_core_refuses_needs_a_restart_and_what_it_puts_off_is_tried_again() {
    let stage = stage("");
    let facet = ReloadError::Facet { profile: "p".into(), plugin: "Reader" };
    stage.says.lock().push(facet);
    stage.write(&format!("{HEAD}podMaxBackoffSeconds: 20\n"));
    stage.counted("needs_restart", 1).await;
    stage.says.lock().extend([const { ReloadError::Busy(16) }; 5]);
    stage.write(&format!("{HEAD}podMaxBackoffSeconds: 30\n"));
    stage.counted("applied", 1).await;
    assert_eq!(stage.counts(), [("applied", 1), ("busy", 1), ("needs_restart", 1)].into());
    assert_eq!(*stage.told.lock(), ["default-scheduler 30s []"]);
}

#[tokio::test]
async fn extenders_that_are_as_before_keep_their_clients_and_others_are_forgotten() {
    let stage = stage(&format!("extenders: [{}, {}]\n", extender("a", 1), extender("b", 1)));
    let write = |list: &[String]| {
        stage.write(&format!("{HEAD}extenders: [{}]\n", list.join(", ")));
    };
    write(&[extender("b", 1), extender("a", 2)]);
    stage.counted("applied", 1).await;
    write(&[extender("b", 1), extender("b", 1)]);
    stage.counted("applied", 2).await;
    let told = stage.told.lock().clone();
    assert_eq!(told, ["default-scheduler 10s [1, 2]", "default-scheduler 10s [1, 3]"]);
    let known = |s: &Stage| s.extenders.known().iter().map(|id| id.0).collect::<Vec<_>>();
    stage.until("forgotten", |s| known(s) == [1, 3]).await;
    write(&[]);
    stage.until("forgotten", |s| known(s).is_empty()).await;
}

#[test]
fn a_file_that_is_being_written_is_left_alone_until_two_looks_show_the_same() {
    let mut looks = Looks::default();
    let gone = || Err("no such file".to_owned());
    for (shown, news) in [
        (Ok("old"), false),
        (Ok("old"), true),
        (Ok("n"), false),
        (Ok("ne"), false),
        (Ok("new"), false),
        (Ok("new"), true),
        // Until it is dealt with.
        (Ok("new"), true),
        (gone(), false),
        (gone(), true),
        (Ok("new"), false),
    ] {
        let shown = shown.map(str::to_owned);
        assert_eq!(looks.is_news(&shown), news, "{shown:?}");
    }
    looks.dealt_with = Some(Ok("new".to_owned()));
    assert!(!looks.is_news(&Ok("new".to_owned())));
}
