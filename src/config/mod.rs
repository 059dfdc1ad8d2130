//! The scheduler's configuration: a `KubeSchedulerConfiguration` file, or none.
//!
//! Owns: reading, defaults, rules, and the words of a refusal. A file that works
//! with kube-scheduler works here: the same fields, defaults and rules. Must
//! never: guess (an unknown field or version is an error); stop at the first
//! error; act on what it read.
//!
//! Without a file Muster is itself: profile `muster`, Lease `muster` in its own
//! namespace, no client-side rate limit. With a file upstream's defaults hold.

mod args;
mod catalog;
mod decode;
mod duration;
mod error;
mod plugins;
mod profiles;
mod show;
#[cfg(test)]
mod tests;
mod types;
mod v1;
mod v1beta3;
mod validate;

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use muster_core::framework::Registry;
use serde_json::Value;

pub use duration::{DurationError, GoDuration};
pub use error::{ConfigError, FieldError, Problem};
pub use types::{
    Called, ClientConnection, Configuration, Extender, ExtenderTls, LeaderElection,
    ManagedResource, PluginConfig, PluginRef, PluginSet, Plugins, ProfileConfig,
};

use decode::Object;

/// The version that is read; `v1beta3` is turned into it.
pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// The kind of the file.
pub const KIND: &str = "KubeSchedulerConfiguration";
/// Name of the profile and of the Lease without a file.
pub const DEFAULT_NAME: &str = "muster";
/// Namespace of the Lease without a file, outside a cluster.
pub const DEFAULT_NAMESPACE: &str = "muster-system";

/// Longest file: what fits in a ConfigMap.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Where a pod finds the name of its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// No limit: the API server's own priority and fairness protects it.
const NO_LIMIT: f32 = -1.0;

impl Configuration {
    /// Reads a file; without one, Muster's own defaults.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        Self::load_with(path, &Registry::in_tree())
    }

    /// As [`Configuration::load`], with plugins beside those that ship with Muster.
    pub fn load_with(path: Option<&Path>, registry: &Registry) -> Result<Self, ConfigError> {
        let Some(path) = path else {
            return Ok(Self::without_file(&own_namespace()));
        };
        let text = read(path)?;
        Self::parse_with(path, &text, registry)
    }

    /// Reads the text of a file; the path is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::parse_with(path, text, &Registry::in_tree())
    }

    /// As [`Configuration::parse`], with plugins beside those that ship with Muster.
    pub fn parse_with(path: &Path, text: &str, registry: &Registry) -> Result<Self, ConfigError> {
        let file = path.to_owned();
        let mut document =
            document(text).map_err(|message| ConfigError::Yaml { file: file.clone(), message })?;
        let warnings = match document.get("apiVersion").and_then(Value::as_str) {
            Some(v1beta3::V1BETA3) => v1beta3::convert(&mut document),
            _ => Vec::new(),
        };
        let errors = RefCell::new(Vec::new());
        let read = document_of_v1(&document, &errors, warnings);
        let mut errors = errors.into_inner();
        if let Some(mut config) = read {
            // A user corrects a file in one go; but where a value could not be
            // read its default stands, about which nothing is to be said.
            let readable = errors.iter().all(|error| error.problem == Problem::Unknown);
            if readable {
                errors.extend(validate::configuration(&config));
                config.profiles.iter_mut().for_each(ProfileConfig::set_default_args);
            }
            if readable && errors.iter().all(|error| error.problem == Problem::Unknown) {
                errors.extend(config.resolve(registry));
            }
            if errors.is_empty() {
                return Ok(Self { file: Some(file), ..config });
            }
        }
        Err(ConfigError::Invalid { file, errors })
    }

    /// Muster's own defaults, with the Lease in this namespace.
    #[must_use]
    pub fn without_file(namespace: &str) -> Self {
        Self {
            file: None,
            profiles: vec![ProfileConfig::default_named(DEFAULT_NAME)],
            leader_election: LeaderElection {
                resource_name: DEFAULT_NAME.to_owned(),
                resource_namespace: namespace.to_owned(),
                ..v1::leader_election(None)
            },
            client_connection: ClientConnection {
                kubeconfig: None,
                accept_content_types: String::new(),
                content_type: v1::CONTENT_TYPE.to_owned(),
                qps: NO_LIMIT,
                burst: 0,
            },
            parallelism: v1::PARALLELISM,
            percentage_of_nodes_to_score: 0,
            pod_initial_backoff_seconds: v1::INITIAL_BACKOFF,
            pod_max_backoff_seconds: v1::MAX_BACKOFF,
            extenders: Vec::new(),
            enable_profiling: true,
            enable_contention_profiling: true,
            delay_cache_until_active: false,
            warnings: Vec::new(),
        }
    }
}

impl Default for Configuration {
    fn default() -> Self {
        Self::without_file(DEFAULT_NAMESPACE)
    }
}

/// The one document of a YAML text; empty ones beside it do not count.
fn document(text: &str) -> Result<Value, String> {
    let mut documents: Vec<Value> =
        serde_saphyr::from_str_multiple(text).map_err(|error| not_yaml(&error))?;
    documents.retain(|document| !document.is_null());
    match documents.len() {
        0 => Ok(Value::Null),
        1 => Ok(documents.remove(0)),
        many => {
            Err(format!("is not valid: it has {many} documents; keep one, without `---` after it"))
        }
    }
}

/// Where and why a text is not YAML; a key that is there twice in upstream's words.
fn not_yaml(error: &serde_saphyr::Error) -> String {
    match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), location } => format!(
            "strict decoding error: line {}: key {key:?} already set in map (remove one of them)",
            location.line()
        ),
        _ => format!("is not valid YAML: {error}"),
    }
}

/// The document, if it is of the kind and version that are read.
fn document_of_v1<'v>(
    document: &'v Value,
    errors: &'v decode::Errors,
    warnings: Vec<String>,
) -> Option<Configuration> {
    let (version, kind) = (document.get("apiVersion"), document.get("kind"));
    // An empty file lacks its version rather than being no mapping.
    if document.is_object() || document.is_null() {
        let wrong = [
            (version != Some(&Value::from(API_VERSION))).then(|| bad_version(version)),
            (kind != Some(&Value::from(KIND))).then(|| bad_kind(kind)),
        ];
        errors.borrow_mut().extend(wrong.into_iter().flatten());
    }
    if !errors.borrow().is_empty() {
        return None;
    }
    let file = Object::new(String::new(), document, errors)?;
    Some(v1::configuration(file, warnings))
}

fn bad_version(version: Option<&Value>) -> FieldError {
    let Some(version) = version.filter(|version| !version.is_null()) else {
        return FieldError::required("apiVersion", "").remedy(format!("write {API_VERSION}"));
    };
    let shown = version.as_str().map_or_else(|| version.to_string(), str::to_owned);
    let words = format!("no kind {KIND:?} is registered for version {shown:?}");
    let old = ["kubescheduler.config.k8s.io/", "componentconfig/"];
    let remedy = if old.iter().any(|group| shown.starts_with(group)) {
        format!("this version was removed from Kubernetes: rewrite the file for {API_VERSION}")
    } else {
        format!("is this the right file? {API_VERSION} is read")
    };
    FieldError::said("apiVersion", words).remedy(remedy)
}

fn bad_kind(kind: Option<&Value>) -> FieldError {
    let Some(kind) = kind.filter(|kind| !kind.is_null()) else {
        return FieldError::required("kind", "").remedy(format!("write {KIND}"));
    };
    let shown = kind.as_str().map_or_else(|| kind.to_string(), str::to_owned);
    let words = format!("no kind {shown:?} is registered for version {API_VERSION:?}");
    FieldError::said("kind", words).remedy(format!("is this the right file? {KIND} is read"))
}

/// The text of a file, if it is not too long.
pub(crate) fn read(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { file: path.to_owned(), source };
    let mut text = String::new();
    let mut file = File::open(path).map_err(failed)?.take(MAX_FILE_BYTES + 1);
    file.read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(ConfigError::TooLong { file: path.to_owned(), limit: MAX_FILE_BYTES });
    }
    Ok(text)
}

/// The namespace this process runs in.
#[must_use]
pub fn own_namespace() -> String {
    let found = std::fs::read_to_string(NAMESPACE_FILE).unwrap_or_default();
    let found = found.trim();
    if found.is_empty() { DEFAULT_NAMESPACE.to_owned() } else { found.to_owned() }
}
