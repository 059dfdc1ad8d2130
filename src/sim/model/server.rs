//! The model API server for those outside: requests by name, as a client makes them.
//!
//! Owns nothing but a clock that stands still and the way from names to objects.
//! Tests run one script here and on a real API server, and compare.

use std::sync::Arc;

use muster_api::k8s::{Pod, PodCondition};
use muster_core::io::{Kind, PodRef, StatusPatch};

use super::api::{Api, Facts, Notice, PodId, put_condition};
use super::budget::{Budget, StoredBudget};
use super::errors::ApiError;
use super::eviction::DeleteOptions;
use crate::time::EPOCH;

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: &'static str,
    /// The pod then.
    pub pod: Arc<Pod>,
}

/// A model API server.
#[derive(Debug)]
pub struct Server {
    api: Api,
}

impl Default for Server {
    fn default() -> Self {
        Self { api: Api::with_history() }
    }
}

impl Server {
    fn find(&self, namespace: &str, name: &str) -> Result<PodId, ApiError> {
        let found = self.api.pod_named(namespace, name);
        found.ok_or_else(|| ApiError::not_found("pods", name))
    }

    /// The pod of that name.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Pod> {
        let id = self.api.pod_named(namespace, name)?;
        self.api.pod(id).map(|stored| &*stored.object)
    }

    /// All pods, in order of creation.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.api.pods().map(|(_, stored)| &*stored.object)
    }

    /// All budgets.
    #[must_use]
    pub fn budgets(&self) -> &[StoredBudget] {
        self.api.budgets()
    }

    /// The revision of the last write.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.api.revision()
    }

    /// Creates a pod.
    ///
    /// # Errors
    ///
    /// If there is one of that name.
    pub fn create_pod(&mut self, pod: Pod) -> Result<(), ApiError> {
        let meta = &pod.metadata;
        if self.api.pod_named(&meta.namespace, &meta.name).is_some() {
            return Err(ApiError::already_exists("pods", &meta.name));
        }
        let facts = Facts { workload: 0, round: 0, runtime: None };
        self.api.create_pod(EPOCH, pod, facts);
        Ok(())
    }

    /// Creates a PodDisruptionBudget.
    pub fn create_budget(&mut self, budget: Budget) {
        self.api.add_budget(budget);
    }

    /// Lets the disruption controller see everything.
    pub fn settle(&mut self) {
        self.api.reconcile_budgets(EPOCH);
    }

    /// The binding subresource.
    ///
    /// # Errors
    ///
    /// As a real server's.
    pub fn bind(&mut self, pod: &PodRef, node: &str) -> Result<(), ApiError> {
        self.api.bind(pod, node).map(drop)
    }

    /// The status subresource, as a scheduler patches it.
    ///
    /// # Errors
    ///
    /// As a real server's.
    pub fn patch_status(&mut self, patch: &StatusPatch) -> Result<(), ApiError> {
        self.api.patch_status(patch).map(drop)
    }

    /// The status subresource, as a kubelet writes it.
    ///
    /// # Errors
    ///
    /// If there is no such pod.
    pub fn set_phase(
        &mut self,
        namespace: &str,
        name: &str,
        phase: &str,
        ready: bool,
    ) -> Result<(), ApiError> {
        let id = self.find(namespace, name)?;
        self.api.update_pod(id, |pod| {
            phase.clone_into(&mut pod.status.phase);
            let (kind, status) = ("Ready".to_owned(), if ready { "True" } else { "False" });
            let status = status.to_owned();
            put_condition(pod, PodCondition { kind, status, ..PodCondition::default() });
        });
        Ok(())
    }

    /// Deletes a pod.
    ///
    /// # Errors
    ///
    /// As a real server's.
    pub fn delete(
        &mut self,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let id = self.find(namespace, name)?;
        self.api.delete(EPOCH, id, options)
    }

    /// The eviction subresource.
    ///
    /// # Errors
    ///
    /// As a real server's.
    pub fn evict(
        &mut self,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let id = self.find(namespace, name)?;
        self.api.evict(EPOCH, id, options)
    }

    /// What a watch of pods from that revision shows.
    ///
    /// # Errors
    ///
    /// 410 if the revision is forgotten.
    pub fn watch_pods(&self, from: u64) -> Result<Vec<WatchEvent>, ApiError> {
        let Some(log) = self.api.log() else {
            return Ok(Vec::new());
        };
        let mut seen = std::collections::BTreeSet::new();
        let events = log.since(Kind::Pod, from)?.iter();
        Ok(events
            .filter_map(|(_, notice)| match notice {
                Notice::Pod { id, object, deleted, .. } => {
                    let kind = match (deleted, seen.insert(*id)) {
                        (true, _) => "DELETED",
                        (false, true) => "ADDED",
                        (false, false) => "MODIFIED",
                    };
                    Some(WatchEvent { kind, pod: object.clone() })
                }
                Notice::Node { .. } => None,
            })
            .collect())
    }

    /// Forgets every version but the last.
    pub fn compact(&mut self) {
        let revision = self.api.revision();
        if let Some(log) = self.api.log_mut() {
            log.compact(revision);
        }
    }
}
