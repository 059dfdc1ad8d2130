//! Rules on values and between fields: upstream's, plus those that upstream
//! finds only when it is already running.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_core::model::label_key_errors;

use super::duration::GoDuration;
use super::error::FieldError;
use super::plugins::{self, MULTI_POINT};
use super::types::{
    ClientConnection, Configuration, Extender, ExtenderTls, LeaderElection, ProfileConfig,
};
use super::v1::RESOURCE_LOCK;
use super::{API_VERSION, args};

/// client-go's: the time between two attempts may be stretched by this.
const JITTER: f64 = 1.2;
/// The API counts a lease in whole seconds.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);
/// Plugins that kube-scheduler had once.
const REMOVED_PLUGINS: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];

/// Everything that is wrong with a configuration.
pub(super) fn configuration(config: &Configuration) -> Vec<FieldError> {
    let mut errors = Vec::new();
    client_connection(&config.client_connection, &mut errors);
    leader_election(&config.leader_election, &mut errors);
    if config.parallelism <= 0 {
        let rule = "should be an integer value greater than zero";
        let error = FieldError::invalid("parallelism", &config.parallelism, rule);
        errors.push(error.remedy("remove the field to use 16"));
    }
    profiles(&config.profiles, &mut errors);
    let percentage = Some(config.percentage_of_nodes_to_score);
    percentage_of_nodes("percentageOfNodesToScore", percentage, &mut errors);
    let (first, longest) = (config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds);
    if first <= 0 {
        let error =
            FieldError::invalid("podInitialBackoffSeconds", &first, "must be greater than 0");
        errors.push(error.remedy("remove the field to use 1"));
    }
    if longest < first {
        let rule = "must be greater than or equal to PodInitialBackoffSeconds";
        let error = FieldError::invalid("podMaxBackoffSeconds", &longest, rule);
        errors.push(error.remedy(format!("raise it to {first} or lower podInitialBackoffSeconds")));
    }
    extenders(&config.extenders, &mut errors);
    errors
}

fn client_connection(client: &ClientConnection, errors: &mut Vec<FieldError>) {
    if client.burst < 0 {
        let path = "clientConnection.burst";
        let error = FieldError::invalid(path, &client.burst, "must be non-negative");
        errors.push(error.remedy("remove the field to use 100"));
    }
    if !client.qps.is_finite() {
        let shown = client.qps.to_string();
        errors.push(FieldError::invalid("clientConnection.qps", &shown, "must be a finite number"));
    }
}

fn leader_election(election: &LeaderElection, errors: &mut Vec<FieldError>) {
    if !election.leader_elect {
        return;
    }
    let at = |field: &str| format!("leaderElection.{field}");
    let [lease, renew, retry] =
        [election.lease_duration, election.renew_deadline, election.retry_period].map(show);
    if election.lease_duration <= election.renew_deadline {
        let rule = "must be greater than `RenewDeadline`";
        let error = FieldError::invalid(at("leaseDuration"), &lease, rule);
        errors.push(error.remedy(format!("raise it above {renew} or lower renewDeadline")));
    }
    if election.lease_duration < SHORTEST_LEASE {
        let error = FieldError::invalid(at("leaseDuration"), &lease, "must be at least 1s");
        errors.push(error.remedy("the API counts a lease in whole seconds"));
    }
    if election.renew_deadline <= election.retry_period.mul_f64(JITTER) {
        let rule = "must be greater than `RetryPeriod` times 1.2";
        let error = FieldError::invalid(at("renewDeadline"), &renew, rule);
        errors.push(error.remedy(format!("raise it, or lower retryPeriod below {retry}")));
    }
    if election.resource_lock != RESOURCE_LOCK {
        let rule = "resourceLock value must be \"leases\"";
        let error = FieldError::invalid(at("resourceLock"), &election.resource_lock, rule);
        errors.push(error.remedy("remove the field"));
    }
}

fn show(duration: Duration) -> String {
    GoDuration::from_std(duration).to_string()
}

fn percentage_of_nodes(path: &str, percentage: Option<i32>, errors: &mut Vec<FieldError>) {
    if let Some(percentage) = percentage.filter(|p| !(0..=100).contains(p)) {
        let error = FieldError::invalid(path, &percentage, "not in valid range [0-100]");
        errors.push(error.remedy("0 lets the scheduler choose"));
    }
}

fn profiles(profiles: &[ProfileConfig], errors: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    for (i, profile) in profiles.iter().enumerate() {
        let path = format!("profiles[{i}]");
        let name = &profile.scheduler_name;
        if name.is_empty() {
            let error = FieldError::required(format!("{path}.schedulerName"), "");
            errors.push(error.remedy("only a single profile may leave its name out"));
        } else if !names.insert(name) {
            let error = FieldError::duplicate(format!("{path}.schedulerName"), name);
            errors.push(error.remedy("give every profile a name of its own"));
        }
        let percentage = profile.percentage_of_nodes_to_score;
        percentage_of_nodes(&format!("{path}.percentageOfNodesToScore"), percentage, errors);
        plugins(&path, profile, errors);
    }
    common_queue_sort(profiles, errors);
}

fn plugins(path: &str, profile: &ProfileConfig, errors: &mut Vec<FieldError>) {
    // Upstream looks for removed plugins at these points only.
    const UNCHECKED: [&str; 3] = [MULTI_POINT, "placementGenerate", "placementScore"];
    for (point, set) in profile.plugins.iter().filter(|(point, _)| !UNCHECKED.contains(point)) {
        for (i, plugin) in set.enabled.iter().enumerate() {
            removed(format!("{path}.plugins.{point}.enabled[{i}]"), &plugin.name, errors);
        }
    }
    let enabled = plugins::needed(&profile.plugins, false);
    let mut seen = BTreeSet::new();
    for (i, config) in profile.plugin_config.iter().enumerate() {
        let (path, name) = (format!("{path}.pluginConfig[{i}]"), config.name.as_str());
        if !seen.insert(name) {
            let error = FieldError::duplicate(path.clone(), &name);
            errors.push(error.remedy("put all arguments of a plugin in one item"));
        }
        if let Some(json) = &config.args {
            let path = format!("{path}.args");
            match args::check(&path, name, json, enabled.contains(name)) {
                Ok(more) => errors.extend(more),
                Err(error) => errors.push(FieldError::said(path, error.to_string())),
            }
        }
        removed(path, name, errors);
    }
}

fn removed(path: String, name: &str, errors: &mut Vec<FieldError>) {
    if REMOVED_PLUGINS.contains(&name) {
        let rule = format!(
            "was invalid in version \"v1\" (KubeSchedulerConfiguration is version {API_VERSION:?})"
        );
        let error = FieldError::invalid(path, &name, rule);
        errors.push(error.remedy("remove it: NodeVolumeLimits does its work"));
    }
}

/// There is one queue, so all profiles sort it alike.
fn common_queue_sort(profiles: &[ProfileConfig], errors: &mut Vec<FieldError>) {
    let Some((first, others)) = profiles.split_first() else {
        return;
    };
    let set = |profile: &ProfileConfig| profile.plugins.get("queueSort").cloned();
    let (canon, sort) = (set(first).unwrap_or_default(), set(first));
    let sort = sort.and_then(|set| set.enabled.first().map(|plugin| plugin.name.clone()));
    if canon.enabled.len() > 1 {
        let path = "profiles[0].plugins.queueSort.Enabled";
        let rule = "only one queue sort plugin can be enabled";
        errors.push(FieldError::invalid(path, &canon.enabled.len(), rule).remedy("keep one"));
    }
    let args = |profile: &ProfileConfig| {
        let own = profile.plugin_config.iter().find(|c| Some(&c.name) == sort.as_ref());
        own.and_then(|config| config.args.clone())
    };
    for (i, other) in others.iter().enumerate().map(|(i, other)| (i + 1, other)) {
        let own = set(other).unwrap_or_default();
        if own != canon {
            let path = format!("profiles[{i}].plugins.queueSort");
            let rule = "must be the same for all profiles";
            let error = FieldError::invalid(path, &own.to_json(), rule);
            errors.push(error.remedy("copy that of profiles[0]"));
        }
        if args(other) != args(first) {
            let path = format!("profiles[{i}].pluginConfig.args");
            let rule = "queueSort must be the same for all profiles";
            let error = FieldError::invalid(path, &args(other), rule);
            errors.push(error.remedy("copy that of profiles[0]"));
        }
    }
}

fn extenders(extenders: &[Extender], errors: &mut Vec<FieldError>) {
    let mut managed = BTreeSet::new();
    for (i, extender) in extenders.iter().enumerate() {
        let path = format!("extenders[{i}]");
        if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
            let rule = "must have a positive weight applied to it";
            let error = FieldError::invalid(format!("{path}.weight"), &extender.weight, rule);
            errors.push(error.remedy("set a weight, or remove prioritizeVerb"));
        }
        for (field, data) in extender.tls_config.iter().flat_map(ExtenderTls::data) {
            if !is_base64(data) {
                let rule = "must be base64 of PEM";
                let path = format!("{path}.tlsConfig.{field}");
                // It may be a key: not shown.
                let error = FieldError::invalid(path, &"--- REDACTED ---", rule);
                errors.push(error.remedy("encode it with `base64 -w0`"));
            }
        }
        for (j, resource) in extender.managed_resources.iter().enumerate() {
            let path = format!("{path}.managedResources[{j}].name");
            let mut rules = label_key_errors(&resource.name);
            if rules.is_empty() && !is_extended_resource(&resource.name) {
                rules.push("is an invalid extended resource name".to_owned());
            }
            for rule in rules {
                let error = FieldError::invalid(path.clone(), &resource.name, rule);
                errors.push(error.remedy("write it as example.com/thing"));
            }
            if !managed.insert(&resource.name) {
                let rule = "duplicate extender managed resource name";
                let error = FieldError::invalid(path, &resource.name, rule);
                errors.push(error.remedy("name it once"));
            }
        }
    }
    let binders = extenders.iter().filter(|extender| !extender.bind_verb.is_empty()).count();
    if binders > 1 {
        let found = format!("found {binders} extenders implementing bind");
        let error =
            FieldError::invalid("extenders", &found, "only one extender can implement bind");
        errors.push(error.remedy("remove bindVerb from the others"));
    }
}

/// Go's standard encoding: padded, line breaks allowed.
fn is_base64(text: &str) -> bool {
    let text: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let data = &text[..text.len() - padding];
    let known = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    padding <= 2 && text.len().is_multiple_of(4) && data.iter().all(known)
}

/// A qualified name with a domain that is not Kubernetes' own.
fn is_extended_resource(name: &str) -> bool {
    const LONGEST_NAME: usize = 63;
    /// 253 less `requests.`, which quotas put before it.
    const LONGEST_DOMAIN: usize = 244;
    let Some((domain, short)) = name.split_once('/') else {
        return false;
    };
    let edge = |c: char| c.is_ascii_alphanumeric();
    let ends = |text: &str| text.starts_with(edge) && text.ends_with(edge);
    let labels = |text: &str| {
        text.split('.').all(|label| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            ends(label) && label.chars().all(inner)
        })
    };
    let inner = |c: char| edge(c) || matches!(c, '-' | '_' | '.');
    domain.len() <= LONGEST_DOMAIN
        && labels(domain)
        && !domain.ends_with("kubernetes.io")
        && !name.starts_with("requests.")
        && short.len() <= LONGEST_NAME
        && ends(short)
        && short.chars().all(inner)
}
