//! The scheduler's configuration: a `KubeSchedulerConfiguration` file, or none.
//!
//! Owns: reading, defaults, rules, and the words of a refusal. A file that works
//! with kube-scheduler works here: the same fields, defaults and rules. Must
//! never: guess (an unknown field or version is an error); stop at the first
//! error; act on what it read.
//!
//! Without a file Muster is itself: profile `muster`, Lease `muster` in its own
//! namespace, no client-side rate limit. With a file upstream's defaults hold.

mod decode;
mod duration;
mod error;
#[cfg(test)]
mod tests;
mod types;
mod v1;
mod validate;

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

pub use duration::{DurationError, GoDuration};
pub use error::{ConfigError, FieldError, Problem};
pub use types::{
    ClientConnection, Configuration, Extender, ExtenderTls, LeaderElection, ManagedResource,
    PluginConfig, PluginRef, PluginSet, Plugins, ProfileConfig,
};

use decode::Object;

/// The only version that is read.
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
        let Some(path) = path else {
            return Ok(Self::without_file(&own_namespace()));
        };
        let text = read(path)?;
        Self::parse(path, &text)
    }

    /// Reads the text of a file; the path is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file = path.to_owned();
        let document =
            document(text).map_err(|message| ConfigError::Yaml { file: file.clone(), message })?;
        let errors = RefCell::new(Vec::new());
        let read = document_of_v1(&document, &errors);
        let mut errors = errors.into_inner();
        if let Some(config) = read {
            // A user corrects a file in one go; but where a value could not be
            // read its default stands, about which nothing is to be said.
            if errors.iter().all(|error| error.problem == Problem::Unknown) {
                errors.extend(validate::configuration(&config));
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
            profiles: vec![ProfileConfig {
                scheduler_name: DEFAULT_NAME.to_owned(),
                ..ProfileConfig::default()
            }],
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
        serde_saphyr::from_str_multiple(text).map_err(|error| error.to_string())?;
    documents.retain(|document| !document.is_null());
    match documents.len() {
        0 => Ok(Value::Null),
        1 => Ok(documents.remove(0)),
        many => Err(format!("{many} documents; keep one, without `---` after it")),
    }
}

/// The document, if it is of the kind and version that are read.
fn document_of_v1<'v>(document: &'v Value, errors: &'v decode::Errors) -> Option<Configuration> {
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
    Object::new(String::new(), document, errors).map(v1::configuration)
}

fn bad_version(version: Option<&Value>) -> FieldError {
    let Some(version) = version.filter(|version| !version.is_null()) else {
        return FieldError::required("apiVersion", "").remedy(format!("write {API_VERSION}"));
    };
    let supported = format!("supported values: {API_VERSION:?}");
    let error = FieldError::unsupported("apiVersion", version, supported);
    let old = version.as_str().is_some_and(|version| {
        version.starts_with("kubescheduler.config.k8s.io/")
            || version.starts_with("componentconfig/")
    });
    error.remedy(if old {
        "this version was removed from Kubernetes; rewrite the file for v1"
    } else {
        "is this the right file?"
    })
}

fn bad_kind(kind: Option<&Value>) -> FieldError {
    let remedy = format!("write {KIND}");
    match kind.filter(|kind| !kind.is_null()) {
        None => FieldError::required("kind", "").remedy(remedy),
        Some(kind) => {
            let supported = format!("supported values: {KIND:?}");
            FieldError::unsupported("kind", kind, supported).remedy("is this the right file?")
        }
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
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
