//! Plugins of one's own: all that their authors need.
//!
//! A plugin is a type that implements [`Plugin`] and the extension points it has, under a
//! name by which profiles enable it. [`crate::run()`] with a [`Registry`] that knows it is
//! a whole scheduler. The core has no clock and no sockets: what a plugin reads beside
//! shapes and nodes comes as data, from a task of its own that has a [`Feed`].
//!
//! Owns the registry of the program and the tasks that feed plugins. Must never look
//! into what is fed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::{error, info, warn};

pub use muster_api::k8s;
pub use muster_core::Profile;
pub use muster_core::cluster::{Cluster, NodeId, NodeInfo, NodeSet, NodeView};
pub use muster_core::framework::{
    Actions, Args, Bind, ClusterEvent, Code, Facet, Filter, Held, Hint, HintCx, MAX_SCORE,
    Normalize, Permit, PermitResult, Placed, Plugin, PluginArgs, PostBind, PostFilter,
    PostFilterResult, PreBind, PreEnqueue, PreFilter, PreFilterResult, PreScoreResult, QueueSort,
    Registration, RegistryError, Reserve, Resource, Room, Score, SortKey, State, Status, Step,
    Subject,
};
pub use muster_core::io::{About, Post, Request};
pub use muster_core::model::{Pod, PodShape};

use crate::ask::Wires;
use crate::run::{Message, Shutdown};
use muster_core::io::{Datum, Input};

type FeedTask = Arc<dyn Fn(Feed) -> BoxFuture<'static, ()> + Send + Sync>;

/// The plugins that a program has, with the tasks that feed them.
#[derive(Clone)]
pub struct Registry {
    plugins: muster_core::framework::Registry,
    feeds: BTreeMap<&'static str, FeedTask>,
}

impl Default for Registry {
    /// The plugins that ship with Muster.
    fn default() -> Self {
        let plugins = muster_core::framework::Registry::in_tree();
        Self { plugins, feeds: BTreeMap::new() }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("feeds", &self.feeds.keys()).finish_non_exhaustive()
    }
}

impl Registry {
    /// Adds a plugin; `make` reads its arguments, as profiles write them. A plugin of
    /// that name that ships with Muster is replaced.
    #[must_use]
    pub fn plugin<P: Plugin + 'static>(
        mut self,
        name: &'static str,
        make: impl Fn(&Args<'_>) -> Result<P, RegistryError> + Send + Sync + 'static,
    ) -> Self {
        self.plugins = self.plugins.plugin(name, make);
        self
    }

    /// Adds the task that feeds a plugin. It is started once for each set of arguments
    /// under which a profile enables the plugin, leader or not, and ends with the
    /// program, or when a reload of the configuration leaves no profile with them. What
    /// it fed stays.
    #[must_use]
    pub fn feed<F>(
        mut self,
        name: &'static str,
        task: impl Fn(Feed) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.feeds.insert(name, Arc::new(move |feed| task(feed).boxed()));
        self
    }

    /// The plugins, as profiles are made from them.
    #[must_use]
    pub fn plugins(&self) -> &muster_core::framework::Registry {
        &self.plugins
    }

    /// The tasks that feed plugins; none runs yet.
    pub(crate) fn feeds(&self, mailbox: &mpsc::Sender<Message>, end: &Shutdown) -> Feeds {
        let (tasks, mailbox) = (self.feeds.clone(), mailbox.clone());
        Feeds { tasks, mailbox, end: end.clone(), running: Vec::new() }
    }
}

/// The tasks that feed plugins, one for each plugin and set of arguments.
pub(crate) struct Feeds {
    tasks: BTreeMap<&'static str, FeedTask>,
    mailbox: mpsc::Sender<Message>,
    end: Shutdown,
    running: Vec<Running>,
}

/// A task that runs, or has ended by itself.
struct Running {
    plugin: &'static str,
    args: Option<Arc<Value>>,
    stop: Shutdown,
}

impl Feeds {
    /// Starts the tasks that these profiles need, and ends those that they do not.
    pub(crate) fn follow(&mut self, profiles: &[Profile]) {
        let mut wanted: Vec<(&'static str, Option<&Value>)> = Vec::new();
        for profile in profiles {
            let plugins = profile.plugins().iter().map(|p| p.plugin.name());
            for plugin in plugins.filter(|plugin| self.tasks.contains_key(plugin)) {
                let feed = (plugin, profile.args().custom.get(plugin));
                if !wanted.contains(&feed) {
                    wanted.push(feed);
                }
            }
        }
        self.running.retain(|running| {
            let stays = wanted.contains(&(running.plugin, running.args.as_deref()));
            if !stays {
                running.stop.trigger();
            }
            stays
        });
        for (plugin, args) in wanted {
            let runs = |r: &Running| (r.plugin, r.args.as_deref()) == (plugin, args);
            if !self.running.iter().any(runs) {
                self.start(plugin, args.cloned().map(Arc::new));
            }
        }
    }

    fn start(&mut self, plugin: &'static str, args: Option<Arc<Value>>) {
        let Some(task) = self.tasks.get(plugin) else {
            return;
        };
        let stop = Shutdown::new();
        let feed = Feed {
            plugin,
            args: args.clone(),
            mailbox: self.mailbox.clone(),
            end: stop.clone(),
            wires: Wires::default(),
        };
        tokio::spawn(watch_over(plugin, task(feed), stop.clone(), self.end.clone()));
        self.running.push(Running { plugin, args, stop });
    }
}

/// Runs a task to its end, until it is not needed or to the program's end, and says how
/// it ended.
async fn watch_over(
    plugin: &'static str,
    task: BoxFuture<'static, ()>,
    stop: Shutdown,
    end: Shutdown,
) {
    let mut task = tokio::spawn(task);
    tokio::select! {
        ended = &mut task => match ended {
            Ok(()) => info!(plugin, "the plugin's feed has ended"),
            Err(panic) => error!(plugin, "the plugin's feed is gone, its data stays: {panic}"),
        },
        () = stop.wait() => task.abort(),
        () = end.wait() => {
            stop.trigger();
            task.abort();
        }
    }
}

/// The scheduler has ended: nothing can be fed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scheduler has ended")]
pub struct Ended;

/// A plugin's own way into the core: what is fed here, the plugin reads with
/// [`NodeView::data`] and [`Cluster::data`]. Values are kept until they are replaced or
/// taken back; feeding the same again costs next to nothing.
#[derive(Clone)]
pub struct Feed {
    plugin: &'static str,
    args: Option<Arc<Value>>,
    mailbox: mpsc::Sender<Message>,
    end: Shutdown,
    wires: Wires,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("plugin", &self.plugin).finish_non_exhaustive()
    }
}

impl Feed {
    /// The plugin's arguments: those that the plugin itself was made with.
    #[must_use]
    pub fn args(&self) -> Args<'_> {
        Args::new(self.plugin, self.args.as_deref())
    }

    /// Feeds a value about a node, whether it exists or not.
    ///
    /// # Errors
    ///
    /// If the scheduler has ended.
    pub async fn node(&self, name: &str, value: impl Serialize) -> Result<(), Ended> {
        self.all([(About::Node(name.into()), json(&value))]).await
    }

    /// Feeds a value under a key of the plugin's own. All kept results are made anew
    /// by it: for what changes rarely.
    ///
    /// # Errors
    ///
    /// If the scheduler has ended.
    pub async fn key(&self, key: &str, value: impl Serialize) -> Result<(), Ended> {
        self.all([(About::Key(key.into()), json(&value))]).await
    }

    /// Feeds many values at once; `None` takes one back.
    ///
    /// # Errors
    ///
    /// If the scheduler has ended.
    pub async fn all(
        &self,
        values: impl IntoIterator<Item = (About, Option<Value>)>,
    ) -> Result<(), Ended> {
        let plugin: Arc<str> = self.plugin.into();
        let datum = |(about, value): (About, Option<Value>)| {
            let plugin = Arc::clone(&plugin);
            Input::Data(Datum { plugin, about, value: value.map(Arc::new) })
        };
        let inputs: Vec<Input> = values.into_iter().map(datum).collect();
        self.mailbox.send(Message::Inputs(inputs)).await.map_err(|_| Ended)
    }

    /// Reads JSON by a GET of an `http` or `https` URL: once, within the limit.
    ///
    /// # Errors
    ///
    /// What went wrong, for people.
    pub async fn get(&self, url: &str, limit: Duration) -> Result<Value, String> {
        let body = self.wires.call(Method::GET, url, None, Bytes::new(), limit).await?;
        serde_json::from_str(&body).map_err(|error| format!("{url}: not JSON: {error}"))
    }

    /// Says in the scheduler's log that something is wrong.
    pub fn warn(&self, what: impl fmt::Display) {
        warn!(plugin = self.plugin, "{what}");
    }

    /// Returns when the scheduler ends, or needs this feed no more.
    pub async fn ended(&self) {
        self.end.wait().await;
    }
}

/// What cannot be JSON is taken back.
fn json(value: &impl Serialize) -> Option<Value> {
    serde_json::to_value(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Idle;

    impl Plugin for Idle {
        fn name(&self) -> &'static str {
            "Idle"
        }
    }

    fn profile(name: &str, registry: &Registry, args: Option<Value>) -> Profile {
        let custom = args.map(|args| ("Idle".to_owned(), args)).into_iter().collect();
        let args = PluginArgs { custom, ..PluginArgs::default() };
        Profile::build(name, [("Idle", 0)], &args, registry.plugins()).unwrap()
    }

    #[tokio::test]
    async fn a_feed_is_started_once_for_each_set_of_arguments_and_reaches_the_core() {
        let registry =
            Registry::default().plugin("Idle", |_| Ok(Idle)).feed("Idle", |feed| async move {
                let args = feed.args().value().cloned().unwrap_or_default();
                feed.node("n1", args).await.unwrap();
                feed.key("gone", f64::NAN).await.unwrap();
                panic!("a feed that fails is no end");
            });
        let fast = Some(json!({"fast": true}));
        let profiles = [
            profile("a", &registry, None),
            profile("b", &registry, fast.clone()),
            profile("c", &registry, fast),
            Profile::default_named("d"),
        ];
        let (mailbox, mut inbox) = mpsc::channel(16);
        registry.feeds(&mailbox, &Shutdown::new()).follow(&profiles);
        drop(mailbox);
        let mut heard = Vec::new();
        while let Some(message) = inbox.recv().await {
            let Message::Inputs(inputs) = message else { panic!("not inputs") };
            heard.extend(inputs.into_iter().map(|input| match input {
                Input::Data(Datum { plugin, about, value }) => {
                    format!("{plugin} {about:?} {}", value.as_deref().unwrap_or(&Value::Null))
                }
                other => panic!("{other:?}"),
            }));
        }
        heard.sort_unstable();
        assert_eq!(
            heard,
            [
                "Idle Key(\"gone\") null",
                "Idle Key(\"gone\") null",
                "Idle Node(\"n1\") null",
                "Idle Node(\"n1\") {\"fast\":true}",
            ]
        );
    }

    /// Says when it is dropped.
    struct Guard(mpsc::UnboundedSender<Value>, Value);

    impl Drop for Guard {
        fn drop(&mut self) {
            let _ = self.0.send(self.1.clone());
        }
    }

    #[tokio::test]
    async fn other_arguments_end_a_feed_and_start_another_and_the_same_do_not() {
        let (gone, mut ended) = mpsc::unbounded_channel();
        let registry = Registry::default().plugin("Idle", |_| Ok(Idle)).feed("Idle", move |feed| {
            let gone = gone.clone();
            async move {
                let args = feed.args().value().cloned().unwrap_or_default();
                let _guard = Guard(gone, args.clone());
                feed.key("args", args).await.unwrap();
                std::future::pending::<()>().await;
            }
        });
        let (mailbox, mut inbox) = mpsc::channel(16);
        let mut feeds = registry.feeds(&mailbox, &Shutdown::new());
        let (one, two) = (json!({"v": 1}), json!({"v": 2}));
        let with = |args: &Value| [profile("a", &registry, Some(args.clone()))];
        feeds.follow(&with(&one));
        assert!(inbox.recv().await.is_some());
        feeds.follow(&with(&one));
        feeds.follow(&with(&two));
        assert_eq!(ended.recv().await, Some(one));
        assert!(inbox.recv().await.is_some());
        feeds.follow(&[]);
        assert_eq!(ended.recv().await, Some(two));
        assert!(inbox.try_recv().is_err(), "each was started once");
    }

    #[tokio::test]
    async fn feeds_end_with_the_scheduler() {
        let registry =
            Registry::default().plugin("Idle", |_| Ok(Idle)).feed("Idle", |feed| async move {
                // Without an end of its own: what it holds is dropped with it.
                let _held = feed;
                std::future::pending::<()>().await;
            });
        let (mailbox, mut inbox) = mpsc::channel(1);
        let end = Shutdown::new();
        registry.feeds(&mailbox, &end).follow(&[profile("a", &registry, None)]);
        drop(mailbox);
        end.trigger();
        assert!(inbox.recv().await.is_none());
    }
}
