//! Objects and configuration files, checked without a cluster.
//!
//! Owns what is said of a file before it is applied: the schema and the CEL rules of Muster's
//! kinds, as an API server keeps them; a `KubeSchedulerConfiguration`, as the scheduler reads it;
//! and whether gangs of a manifest have the members that they ask for. Rules about changes
//! (`oldSelf`) need an API server. Must never ask one.

mod cel;
mod members;
mod schema;

use std::fmt;
use std::path::Path;

use muster_core::framework::Registry;
use serde::Serialize;
use serde_json::Value;

use crate::config::{Configuration, KIND as CONFIGURATION};
use crate::explain::{Document, decode, read_documents};

/// What is wrong with a file, or looks wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// It would be refused; otherwise it only looks wrong.
    pub error: bool,
    /// Which object: `podgroups "train" (document 2)`; empty of a whole file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// Which field; empty of a whole object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// What is wrong, and what must be.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.error { "error: " } else { "warning: " })?;
        for part in [&self.object, &self.field].into_iter().filter(|part| !part.is_empty()) {
            write!(f, "{part}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// What was found in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The file.
    pub file: String,
    /// Objects that were checked.
    pub checked: usize,
    /// Objects of kinds that are not Muster's.
    pub skipped: usize,
    /// What is wrong, in order.
    pub findings: Vec<Finding>,
}

/// Checks the text of a file.
#[must_use]
pub fn lint(file: &Path, text: &str, registry: &Registry) -> Report {
    let mut report = Report { file: file.display().to_string(), ..Report::default() };
    let documents = match read_documents(text) {
        Ok(documents) => documents,
        Err(error) => {
            report.findings.push(Finding::of_file(format!("{error:#}")));
            return report;
        }
    };
    let definitions = schema::definitions();
    for document in &documents {
        let kind = document.value["kind"].as_str().unwrap_or_default();
        if kind == CONFIGURATION {
            report.checked += 1;
            configuration(&mut report, file, text, documents.len(), registry);
            continue;
        }
        let known = definitions.iter().find(|definition| definition.is_of(&document.value));
        if let Some(definition) = known {
            report.checked += 1;
            let object = named(definition.plural(), document);
            report.findings.extend(definition.check(&document.value).into_iter().map(|wrong| {
                let (field, message) = wrong;
                Finding { error: true, object: object.clone(), field, message }
            }));
        } else if kind.is_empty() {
            let message = format!(
                "{}: kind: Required value: every object needs apiVersion and kind",
                document.place()
            );
            report.findings.push(Finding::of_file(message));
        } else {
            report.skipped += 1;
            if let Err(error) = decode(document) {
                report.findings.push(Finding::of_file(format!("{error:#}")));
            }
        }
    }
    let objects: Vec<Value> = documents.into_iter().map(|document| document.value).collect();
    report.findings.extend(members::check(&objects));
    report
}

impl Finding {
    fn of_file(message: String) -> Self {
        Self { error: true, object: String::new(), field: String::new(), message }
    }
}

fn named(plural: &str, document: &Document) -> String {
    let name = document.value["metadata"]["name"].as_str().unwrap_or_default();
    format!("{plural} {name:?} ({})", document.place())
}

/// A configuration is a file of its own.
fn configuration(
    report: &mut Report,
    file: &Path,
    text: &str,
    documents: usize,
    registry: &Registry,
) {
    if documents > 1 {
        let message =
            format!("a {CONFIGURATION} is a file of its own: put other objects elsewhere");
        return report.findings.push(Finding::of_file(message));
    }
    match Configuration::parse_with(file, text, registry) {
        Ok(configuration) => {
            let warn = |message: &String| Finding {
                error: false,
                object: String::new(),
                field: String::new(),
                message: message.clone(),
            };
            report.findings.extend(configuration.warnings.iter().map(warn));
        }
        Err(error) => {
            // The file is named once.
            let message = error.to_string();
            let prefix = format!("{}: ", file.display());
            let message = message.strip_prefix(&prefix).unwrap_or(&message).to_owned();
            report.findings.push(Finding::of_file(message));
        }
    }
}

#[cfg(test)]
mod tests;
