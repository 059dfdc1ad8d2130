//! The model API server on its own, for tests that compare it with a real one.
//!
//! The same store that simulations run on, with its controllers driven by hand:
//! time passes when the caller says so ([`Server::elapse`]), budgets are counted
//! when asked ([`Server::reconcile_budgets`]). Every refusal is an [`ApiError`]
//! with the code, reason and cause that a real server gives.
//!
//! ```
//! use muster_sim::model::server::Server;
//! use muster_api::k8s::Pod;
//!
//! let mut server = Server::new();
//! let mut pod = Pod::default();
//! pod.metadata.name = "a".into();
//! pod.metadata.namespace = "default".into();
//! server.create_pod(pod).unwrap();
//! server.bind("default", "a", None, "node-1").unwrap();
//! assert_eq!(server.bind("default", "a", None, "node-2").unwrap_err().code, 409);
//! ```

use muster_api::k8s::{Node, Pod, PodCondition};
use muster_core::io::{Kind, PodRef, StatusPatch, Tick};

use super::api::{Api, Facts, Notice, PodId, put_condition};
use super::budget::{Budget, BudgetStatus};
use super::errors::{ApiError, stale};
use super::eviction::DeleteOptions;
use super::log::Listing;
use crate::time::{EPOCH, SECOND};

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent<T> {
    /// The object is new or changed.
    Applied(T),
    /// The object is gone; this is its last version.
    Deleted(T),
}

/// A model API server.
#[derive(Debug)]
pub struct Server {
    api: Api,
    now: Tick,
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// An empty server.
    #[must_use]
    pub fn new() -> Self {
        Self { api: Api::with_history(), now: EPOCH }
    }

    /// Time passes; kubelets end the pods whose grace is over.
    pub fn elapse(&mut self, seconds: i64) {
        self.now = self.now.after_secs(seconds);
        let over = |pod: &Pod| {
            let due = pod.metadata.deletion_timestamp;
            due.is_some_and(|due| due.0 <= self.now.secs() * SECOND)
        };
        let ended: Vec<PodId> =
            self.api.pods().filter(|(_, p)| over(&p.object)).map(|(id, _)| id).collect();
        for id in ended {
            self.api.delete_pod(id);
        }
    }

    fn find(&self, namespace: &str, name: &str) -> Result<PodId, ApiError> {
        let found = self.api.pod_named(namespace, name);
        found.ok_or_else(|| ApiError::not_found("pods", name))
    }

    // ---- nodes -------------------------------------------------------------

    /// POST of a node.
    ///
    /// # Errors
    ///
    /// 409 `AlreadyExists`.
    pub fn create_node(&mut self, node: Node) -> Result<(), ApiError> {
        let name = &node.metadata.name;
        if self.api.node(name).is_some() {
            return Err(ApiError::already_exists("nodes", name));
        }
        self.api.put_node(self.now, node);
        Ok(())
    }

    /// GET of a node.
    ///
    /// # Errors
    ///
    /// 404.
    pub fn node(&self, name: &str) -> Result<Node, ApiError> {
        let node = self.api.node(name).map(|node| Node::clone(node));
        node.ok_or_else(|| ApiError::not_found("nodes", name))
    }

    /// PUT of a node; a `resourceVersion` must be the current one.
    ///
    /// # Errors
    ///
    /// 404, 409 `Conflict`.
    pub fn update_node(&mut self, node: Node) -> Result<(), ApiError> {
        let name = &node.metadata.name;
        let current = self.node(name)?.metadata.resource_version;
        let asked = &node.metadata.resource_version;
        if !asked.is_empty() && *asked != current {
            return Err(stale("nodes", name));
        }
        self.api.put_node(self.now, node);
        Ok(())
    }

    /// DELETE of a node.
    ///
    /// # Errors
    ///
    /// 404.
    pub fn delete_node(&mut self, name: &str) -> Result<(), ApiError> {
        self.node(name)?;
        self.api.delete_node(name);
        Ok(())
    }

    // ---- pods --------------------------------------------------------------

    /// POST of a pod.
    ///
    /// # Errors
    ///
    /// 409 `AlreadyExists`.
    pub fn create_pod(&mut self, mut pod: Pod) -> Result<(), ApiError> {
        let meta = &pod.metadata;
        if self.api.pod_named(&meta.namespace, &meta.name).is_some() {
            return Err(ApiError::already_exists("pods", &meta.name));
        }
        if pod.status.phase.is_empty() {
            "Pending".clone_into(&mut pod.status.phase);
        }
        self.api.create_pod(self.now, pod, Facts::default());
        Ok(())
    }

    /// GET of a pod.
    ///
    /// # Errors
    ///
    /// 404.
    pub fn pod(&self, namespace: &str, name: &str) -> Result<Pod, ApiError> {
        let stored = self.api.pod(self.find(namespace, name)?);
        let pod = stored.map(|stored| Pod::clone(&stored.object));
        pod.ok_or_else(|| ApiError::not_found("pods", name))
    }

    /// PUT of a pod: labels and scheduling gates; a `resourceVersion` must be the
    /// current one.
    ///
    /// # Errors
    ///
    /// 404, 409 `Conflict`.
    pub fn update_pod(&mut self, pod: &Pod) -> Result<(), ApiError> {
        let meta = &pod.metadata;
        let id = self.find(&meta.namespace, &meta.name)?;
        let current = self.pod(&meta.namespace, &meta.name)?.metadata.resource_version;
        if !meta.resource_version.is_empty() && meta.resource_version != current {
            return Err(stale("pods", &meta.name));
        }
        self.api.update_pod(id, |stored| {
            stored.metadata.labels.clone_from(&meta.labels);
            stored.spec.scheduling_gates.clone_from(&pod.spec.scheduling_gates);
        });
        Ok(())
    }

    /// The binding subresource, with the UID as precondition if one is given.
    ///
    /// # Errors
    ///
    /// 404; 409 `Conflict` if the pod is taken, going, gated or another.
    pub fn bind(
        &mut self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        node: &str,
    ) -> Result<(), ApiError> {
        let current = self.pod(namespace, name)?.metadata.uid;
        let uid = uid.unwrap_or(&current).into();
        let pod = PodRef { namespace: namespace.into(), name: name.into(), uid };
        self.api.bind(&pod, node, None).map(drop)
    }

    /// The status subresource, as a scheduler patches it.
    ///
    /// # Errors
    ///
    /// 404; 422 `Invalid` if it is another pod by that name.
    pub fn patch_status(&mut self, patch: &StatusPatch) -> Result<(), ApiError> {
        self.api.patch_status(patch).map(drop)
    }

    /// The status subresource, as a kubelet writes it; `Running` is ready.
    ///
    /// # Errors
    ///
    /// 404.
    pub fn set_phase(&mut self, namespace: &str, name: &str, phase: &str) -> Result<(), ApiError> {
        let id = self.find(namespace, name)?;
        self.api.set_phase(self.now, id, phase);
        Ok(())
    }

    /// A running pod that is not ready.
    ///
    /// # Errors
    ///
    /// 404.
    pub fn set_unready(&mut self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let id = self.find(namespace, name)?;
        let (kind, status) = ("Ready".to_owned(), "False".to_owned());
        let ready = PodCondition { kind, status, ..PodCondition::default() };
        self.api.update_pod(id, |pod| {
            "Running".clone_into(&mut pod.status.phase);
            put_condition(pod, ready);
        });
        Ok(())
    }

    /// DELETE of a pod.
    ///
    /// # Errors
    ///
    /// 404; 409 `Conflict` if a precondition fails.
    pub fn delete_pod(
        &mut self,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let id = self.find(namespace, name)?;
        self.api.delete(self.now, id, options)
    }

    /// The eviction subresource.
    ///
    /// # Errors
    ///
    /// 404; 409 if a precondition fails; 429 with cause `DisruptionBudget` if a budget
    /// forbids it; 500 for a pod under two budgets.
    pub fn evict(
        &mut self,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let id = self.find(namespace, name)?;
        self.api.evict(self.now, id, options)
    }

    // ---- budgets -----------------------------------------------------------

    /// POST of a PodDisruptionBudget; its status is empty until the controller looks.
    pub fn create_budget(&mut self, budget: Budget) {
        self.api.add_budget(budget);
    }

    /// The disruption controller looks at every budget.
    pub fn reconcile_budgets(&mut self) {
        self.api.reconcile_budgets(self.now);
    }

    /// The status of a budget.
    #[must_use]
    pub fn budget(&self, namespace: &str, name: &str) -> Option<&BudgetStatus> {
        let mut all = self.api.budgets().iter();
        all.find(|b| b.spec.namespace == namespace && b.spec.name == name).map(|b| &b.status)
    }

    // ---- lists and watches -------------------------------------------------

    /// The version of the last write.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.api.revision()
    }

    /// Forgets all versions but the present one.
    pub fn compact(&mut self) {
        let revision = self.api.revision();
        if let Some(log) = self.api.log_mut() {
            log.compact(revision);
        }
    }

    /// LIST of all pods, as of `revision` or now.
    ///
    /// # Errors
    ///
    /// 410 `Expired` if that version is compacted.
    pub fn list_pods(&self, revision: Option<u64>) -> Result<Vec<Pod>, ApiError> {
        let revision = revision.unwrap_or_else(|| self.api.revision());
        let Some(log) = self.api.log() else {
            return Ok(Vec::new());
        };
        log.since(Kind::Pod, revision)?;
        Ok(match log.list(Kind::Pod, revision) {
            Listing::Pods(pods) => pods.into_iter().map(|(pod, _)| Pod::clone(&pod)).collect(),
            Listing::Nodes(_) | Listing::Objects(_) => Vec::new(),
        })
    }

    /// WATCH of all pods from after `revision` to now.
    ///
    /// # Errors
    ///
    /// 410 `Expired` if that version is compacted.
    pub fn watch_pods(&self, revision: u64) -> Result<Vec<WatchEvent<Pod>>, ApiError> {
        let Some(log) = self.api.log() else {
            return Ok(Vec::new());
        };
        let events = log.since(Kind::Pod, revision)?.iter();
        Ok(events
            .filter_map(|(_, notice)| match notice {
                Notice::Pod { object, deleted: true, .. } => {
                    Some(WatchEvent::Deleted(Pod::clone(object)))
                }
                Notice::Pod { object, .. } => Some(WatchEvent::Applied(Pod::clone(object))),
                Notice::Node { .. } | Notice::Object { .. } => None,
            })
            .collect())
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
