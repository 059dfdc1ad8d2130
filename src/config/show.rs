//! How the configuration in force is shown: as a file, the way kube-scheduler writes
//! it, and as lists of who is called where.
//!
//! Must never show a private key.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::duration::GoDuration;
use super::types::{Configuration, Extender, ExtenderTls, PluginRef, PluginSet, ProfileConfig};

/// Shown in place of a key.
const REDACTED: &str = "--- REDACTED ---";

impl Configuration {
    /// The configuration in the form of a file, as kube-scheduler writes it with
    /// `--write-config-to`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let election = &self.leader_election;
        let client = &self.client_connection;
        let kubeconfig = client.kubeconfig.as_ref().map(|path| path.display().to_string());
        let mut shown = json!({
            "apiVersion": super::API_VERSION,
            "kind": super::KIND,
            "parallelism": self.parallelism,
            "leaderElection": {
                "leaderElect": election.leader_elect,
                "leaseDuration": go(election.lease_duration),
                "renewDeadline": go(election.renew_deadline),
                "retryPeriod": go(election.retry_period),
                "resourceLock": election.resource_lock,
                "resourceName": election.resource_name,
                "resourceNamespace": election.resource_namespace,
            },
            "clientConnection": {
                "kubeconfig": kubeconfig.unwrap_or_default(),
                "acceptContentTypes": client.accept_content_types,
                "contentType": client.content_type,
                "qps": number(client.qps),
                "burst": client.burst,
            },
            "enableProfiling": self.enable_profiling,
            "enableContentionProfiling": self.enable_contention_profiling,
            "percentageOfNodesToScore": self.percentage_of_nodes_to_score,
            "podInitialBackoffSeconds": self.pod_initial_backoff_seconds,
            "podMaxBackoffSeconds": self.pod_max_backoff_seconds,
            "profiles": self.profiles.iter().map(ProfileConfig::to_json).collect::<Value>(),
        });
        if !self.extenders.is_empty() {
            shown["extenders"] = self.extenders.iter().map(Extender::to_json).collect();
        }
        if self.delay_cache_until_active {
            shown["delayCacheUntilActive"] = json!(true);
        }
        shown
    }

    /// What `/configz` shows: the configuration in force, and who is called where.
    #[must_use]
    pub fn configz(&self) -> Value {
        json!({"componentconfig": self.to_json(), "plugins": self.called_to_json()})
    }

    /// Who is called where: by profile and extension point, in call order, with
    /// weights where scores are weighed.
    #[must_use]
    pub fn called_to_json(&self) -> Value {
        let profile = |profile: &ProfileConfig| {
            let points = profile.called.iter().filter(|(_, plugins)| !plugins.is_empty());
            let points = points.map(|(point, list)| (point.key().to_owned(), plugins(list, false)));
            (profile.scheduler_name.clone(), Value::Object(points.collect()))
        };
        Value::Object(self.profiles.iter().map(profile).collect())
    }
}

impl ProfileConfig {
    fn to_json(&self) -> Value {
        let mut shown = Map::new();
        shown.insert("schedulerName".to_owned(), json!(self.scheduler_name));
        if let Some(percentage) = self.percentage_of_nodes_to_score {
            shown.insert("percentageOfNodesToScore".to_owned(), json!(percentage));
        }
        let sets = self.plugins.iter().map(|(key, set)| ((*key).to_owned(), set.to_json()));
        shown.insert("plugins".to_owned(), Value::Object(sets.collect()));
        if !self.plugin_config.is_empty() {
            let configs = self.plugin_config.iter();
            let configs: Value = configs.map(|c| json!({"name": c.name, "args": c.args})).collect();
            shown.insert("pluginConfig".to_owned(), configs);
        }
        Value::Object(shown)
    }
}

impl PluginSet {
    pub(super) fn to_json(&self) -> Value {
        let lists = [("enabled", &self.enabled), ("disabled", &self.disabled)];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        Value::Object(lists.map(|(key, list)| (key.to_owned(), plugins(list, true))).collect())
    }
}

/// Names with weights; `always`: also where there is none.
fn plugins(list: &[PluginRef], always: bool) -> Value {
    let show = |plugin: &PluginRef| match plugin.weight {
        None if !always => json!({"name": plugin.name}),
        weight => json!({"name": plugin.name, "weight": weight.unwrap_or(0)}),
    };
    list.iter().map(show).collect()
}

/// Fields that are set, as Go's `omitempty` leaves them.
struct Fields(Map<String, Value>);

impl Fields {
    fn text(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.0.insert(key.to_owned(), json!(value));
        }
    }

    fn flag(&mut self, key: &str, value: bool) {
        if value {
            self.0.insert(key.to_owned(), json!(true));
        }
    }
}

impl Extender {
    fn to_json(&self) -> Value {
        let mut shown = Fields(Map::new());
        shown.0.insert("urlPrefix".to_owned(), json!(self.url_prefix));
        for (key, verb) in [
            ("filterVerb", &self.filter_verb),
            ("preemptVerb", &self.preempt_verb),
            ("prioritizeVerb", &self.prioritize_verb),
            ("bindVerb", &self.bind_verb),
        ] {
            shown.text(key, verb);
        }
        if self.weight != 0 {
            shown.0.insert("weight".to_owned(), json!(self.weight));
        }
        shown.flag("enableHTTPS", self.enable_https);
        if let Some(tls) = &self.tls_config {
            shown.0.insert("tlsConfig".to_owned(), tls.to_json());
        }
        shown.0.insert("httpTimeout".to_owned(), json!(go(self.http_timeout.unwrap_or_default())));
        shown.flag("nodeCacheCapable", self.node_cache_capable);
        let resources = self.managed_resources.iter().map(|resource| {
            let mut shown = Fields(Map::new());
            shown.0.insert("name".to_owned(), json!(resource.name));
            shown.flag("ignoredByScheduler", resource.ignored_by_scheduler);
            Value::Object(shown.0)
        });
        if !self.managed_resources.is_empty() {
            shown.0.insert("managedResources".to_owned(), resources.collect());
        }
        shown.flag("ignorable", self.ignorable);
        Value::Object(shown.0)
    }
}

impl std::fmt::Debug for ExtenderTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExtenderTls{}", self.to_json())
    }
}

impl ExtenderTls {
    fn to_json(&self) -> Value {
        let key = if self.key_data.is_empty() { "" } else { REDACTED };
        let mut shown = Fields(Map::new());
        shown.flag("insecure", self.insecure);
        for (field, value) in [
            ("serverName", &*self.server_name),
            ("certFile", &*self.cert_file),
            ("keyFile", &*self.key_file),
            ("caFile", &*self.ca_file),
            ("certData", &*self.cert_data),
            ("keyData", key),
            ("caData", &*self.ca_data),
        ] {
            shown.text(field, value);
        }
        Value::Object(shown.0)
    }
}

fn go(duration: Duration) -> String {
    GoDuration::from_std(duration).to_string()
}

/// A number as Go prints a float32: whole ones without a fraction.
fn number(value: f32) -> Value {
    let shortest = value.to_string();
    match shortest.parse::<i64>() {
        Ok(whole) => json!(whole),
        Err(_) => json!(shortest.parse::<f64>().unwrap_or_default()),
    }
}
