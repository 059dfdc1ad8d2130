//! The configuration in force: every field with its value, defaults included.
//!
//! Owns the types. How they are shown is in `show`, what the core gets of them in
//! `profiles`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use muster_core::framework::ExtensionPoint;
use serde_json::Value;

/// The scheduler's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// The file it came from.
    pub file: Option<PathBuf>,
    /// At least one, with different names.
    pub profiles: Vec<ProfileConfig>,
    /// Leader election.
    pub leader_election: LeaderElection,
    /// How to reach the API server.
    pub client_connection: ClientConnection,
    /// Threads that a decision may use; above zero.
    pub parallelism: i32,
    /// 0 to 100; 0 lets the scheduler choose.
    pub percentage_of_nodes_to_score: i32,
    /// First backoff of a pod that could not be scheduled; above zero.
    pub pod_initial_backoff_seconds: i64,
    /// Longest backoff; not below the first.
    pub pod_max_backoff_seconds: i64,
    /// Webhooks that take part in decisions.
    pub extenders: Vec<Extender>,
    /// Upstream's switch for `/debug/pprof`.
    pub enable_profiling: bool,
    /// Upstream's switch for block profiling.
    pub enable_contention_profiling: bool,
    /// Upstream's switch for cold standbys.
    pub delay_cache_until_active: bool,
    /// Fields that are set and do not act, to be told to the user.
    pub warnings: Vec<String>,
}

/// One profile: the pods that name it are scheduled by its rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileConfig {
    /// `spec.schedulerName` of its pods.
    pub scheduler_name: String,
    /// Overrides the configuration's.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// What is enabled and disabled, by extension point, on top of the defaults.
    pub plugins: Plugins,
    /// Arguments of the plugins that are enabled, defaults included, by name.
    pub plugin_config: Vec<PluginConfig>,
    /// Who is called where: what follows from [`ProfileConfig::plugins`].
    pub called: Called,
}

/// Plugin sets by extension point (`filter`, `multiPoint`).
pub type Plugins = BTreeMap<&'static str, PluginSet>;

/// Plugins by extension point in call order, with weights where scores are weighed.
pub type Called = BTreeMap<ExtensionPoint, Vec<PluginRef>>;

/// The plugins of one extension point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginSet {
    /// On, in this order.
    pub enabled: Vec<PluginRef>,
    /// Off; `*` is all.
    pub disabled: Vec<PluginRef>,
}

/// A plugin by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginRef {
    /// Name.
    pub name: String,
    /// Weight of its score.
    pub weight: Option<i32>,
}

/// Arguments of one plugin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginConfig {
    /// Plugin.
    pub name: String,
    /// Arguments; those of a plugin that kube-scheduler does not have as written.
    pub args: Option<Value>,
}

/// Leader election by Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// Whether there is one; without, this process leads from the start.
    pub leader_elect: bool,
    /// How long others wait after the last renewal they saw.
    pub lease_duration: Duration,
    /// How long the leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// Between two attempts.
    pub retry_period: Duration,
    /// Always `leases`.
    pub resource_lock: String,
    /// Name of the Lease.
    pub resource_name: String,
    /// Namespace of the Lease.
    pub resource_namespace: String,
}

/// The connection to the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConnection {
    /// Path of a kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// As written; Muster chooses by itself.
    pub accept_content_types: String,
    /// As written; Muster chooses by itself.
    pub content_type: String,
    /// Calls per second; below zero there is no limit.
    pub qps: f32,
    /// Calls at once beyond [`ClientConnection::qps`].
    pub burst: i32,
}

impl ClientConnection {
    /// Calls per second and at once, if there is a limit.
    #[must_use]
    pub fn rate_limit(&self) -> Option<(f32, u32)> {
        let burst = u32::try_from(self.burst).unwrap_or(0).max(1);
        (self.qps > 0.0).then_some((self.qps, burst))
    }
}

/// A webhook that takes part in decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extender {
    /// Where it listens.
    pub url_prefix: String,
    /// Path of the filter call; empty: none.
    pub filter_verb: String,
    /// Path of the preempt call; empty: none.
    pub preempt_verb: String,
    /// Path of the prioritize call; empty: none.
    pub prioritize_verb: String,
    /// Multiplies its scores.
    pub weight: i64,
    /// Path of the bind call; empty: none.
    pub bind_verb: String,
    /// Whether to use TLS.
    pub enable_https: bool,
    /// How to use TLS.
    pub tls_config: Option<ExtenderTls>,
    /// How long a call may take.
    pub http_timeout: Option<Duration>,
    /// Whether names of nodes suffice.
    pub node_cache_capable: bool,
    /// Only pods that ask for one of these are sent; empty: all.
    pub managed_resources: Vec<ManagedResource>,
    /// Whether its failure is ignored.
    pub ignorable: bool,
}

/// TLS towards an extender. The `data` fields are base64 of PEM.
#[derive(Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ExtenderTls {
    pub insecure: bool,
    pub server_name: String,
    pub cert_file: String,
    pub key_file: String,
    pub ca_file: String,
    pub cert_data: String,
    pub key_data: String,
    pub ca_data: String,
}

/// A resource that an extender manages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedResource {
    /// Its name.
    pub name: String,
    /// Whether NodeResourcesFit leaves it alone.
    pub ignored_by_scheduler: bool,
}

impl ExtenderTls {
    /// The fields that are base64, by name.
    pub(super) fn data(&self) -> [(&'static str, &str); 3] {
        [("certData", &*self.cert_data), ("keyData", &*self.key_data), ("caData", &*self.ca_data)]
    }
}

impl Configuration {
    /// The names that pods may have in `spec.schedulerName` to be ours.
    #[must_use]
    pub fn scheduler_names(&self) -> Vec<String> {
        self.profiles.iter().map(|profile| profile.scheduler_name.clone()).collect()
    }
}
