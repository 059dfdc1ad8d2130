//! Which nodes are lost.

use std::collections::HashSet;

use muster_api::k8s::Node;
use muster_core::gang::status::Lost;

use super::Note;

/// Taints by which the node lifecycle controller says that a node is lost.
const LOST: [&str; 3] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/out-of-service",
];

/// Names of nodes, and of those that are not ready.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    known: HashSet<Box<str>>,
    not_ready: HashSet<Box<str>>,
    /// What a list has named so far.
    listing: Option<HashSet<Box<str>>>,
    listed: bool,
    /// Nodes that were lost or came back since [`Nodes::take_changed`].
    changed: HashSet<Box<str>>,
}

impl Nodes {
    /// Whether a list was complete once.
    pub(super) fn listed(&self) -> bool {
        self.listed
    }

    /// Takes a note; `true` if a node was lost or came back.
    pub(super) fn note(&mut self, note: Note<&Node>) -> bool {
        match note {
            Note::Listing => {
                self.listing = Some(HashSet::new());
                false
            }
            Note::Changed(node) => self.seen(node),
            Note::Gone(node) => self.gone(&node.metadata.name),
            Note::Listed => {
                let seen = self.listing.take().unwrap_or_default();
                let gone: Vec<_> = self.known.difference(&seen).cloned().collect();
                let mut any = !self.listed;
                self.listed = true;
                for name in gone {
                    any |= self.gone(&name);
                }
                any
            }
        }
    }

    fn seen(&mut self, node: &Node) -> bool {
        let name = node.metadata.name.as_str();
        let lost =
            |t: &muster_api::k8s::Taint| t.effect == "NoExecute" && LOST.contains(&t.key.as_str());
        let not_ready = node.spec.taints.iter().any(lost);
        if let Some(listing) = &mut self.listing {
            listing.insert(name.into());
        }
        let is_new = !self.known.contains(name) && self.known.insert(name.into());
        let was = self.not_ready.contains(name);
        if not_ready && !was {
            self.not_ready.insert(name.into());
        } else if was && !not_ready {
            self.not_ready.remove(name);
        }
        let changed = is_new || was != not_ready;
        if changed {
            self.changed.insert(name.into());
        }
        changed
    }

    fn gone(&mut self, name: &str) -> bool {
        self.not_ready.remove(name);
        let was = self.known.remove(name);
        if was {
            self.changed.insert(name.into());
        }
        was
    }

    /// What has become of a node, if it is lost.
    pub(super) fn lost(&self, name: &str) -> Option<Lost> {
        if self.not_ready.contains(name) {
            Some(Lost::NotReady)
        } else if self.known.contains(name) {
            None
        } else {
            Some(Lost::Gone)
        }
    }

    /// Nodes that were lost or came back.
    pub(super) fn take_changed(&mut self) -> HashSet<Box<str>> {
        std::mem::take(&mut self.changed)
    }
}
