//! Which domain a group got, by the labels of the nodes that its members are on.

use muster_api::muster::{Domain, PodGroupSpec, PodGroupStatus, TopologyLevel, TopologyRequest};
use muster_core::gang::status::{Member, Says};
use muster_core::model::Selector;

use super::ground::Ground;
use super::nodes::Nodes;
use crate::topology::domain_of;

/// What the status of a group is made from, as far as domains are concerned.
pub(super) struct Domains<'a> {
    pub(super) ground: &'a Ground,
    pub(super) nodes: &'a Nodes,
    pub(super) levels: &'a [&'a [TopologyLevel]],
}

impl Domains<'_> {
    /// What the scheduler says, with the domains that members are in. Where nobody is
    /// bound, what was said holds.
    pub(super) fn said<'m>(
        &self,
        spec: &PodGroupSpec,
        members: impl Iterator<Item = &'m Member> + Clone,
        previous: &mut PodGroupStatus,
        says: &Says,
    ) -> Option<Says> {
        let asks = spec.topology.is_some() || spec.roles.iter().any(|r| r.topology.is_some());
        let bound = |m: &&Member| {
            !m.node.is_empty()
                && !m.terminating
                && !m.has_ended()
                && self.nodes.lost(&m.node).is_none()
        };
        let members = members.filter(bound);
        if !asks || members.clone().next().is_none() {
            return None;
        }
        let mut said = says.clone();
        if let Some(request) = &spec.topology {
            let on: Vec<&str> = members.clone().map(|m| &*m.node).collect();
            said.domain = self.of(request, &on, [previous.domain.take(), said.domain]);
        }
        // The server refuses selectors that cannot be compiled.
        let compile = |s| Selector::compile(Some(s)).unwrap_or_else(|_| Selector::nothing());
        let selectors: Vec<Selector> = spec.roles.iter().map(|r| compile(&r.selector)).collect();
        for (i, role) in spec.roles.iter().enumerate() {
            let Some(request) = &role.topology else { continue };
            let is_of =
                |m: &&Member| selectors.iter().position(|s| s.matches(&m.labels)) == Some(i);
            let on: Vec<&str> = members.clone().filter(is_of).map(|m| &*m.node).collect();
            if on.is_empty() {
                continue;
            }
            let before = previous.roles.iter_mut().find(|r| r.name == role.name);
            let at = said.role_domains.iter().position(|(name, _)| *name == role.name);
            let told = at.map(|at| said.role_domains.swap_remove(at).1);
            let domain = self.of(request, &on, [before.and_then(|r| r.domain.take()), told]);
            said.role_domains.extend(domain.map(|domain| (role.name.clone(), domain)));
        }
        Some(said)
    }

    /// The domain of these nodes. One that was known before stays as long as it is true,
    /// even if nobody knows its level any more.
    fn of(
        &self,
        request: &TopologyRequest,
        on: &[&str],
        before: [Option<Domain>; 2],
    ) -> Option<Domain> {
        let label = |node: &str, key: &str| self.ground.label(node, key);
        let still =
            |domain: &Domain| on.iter().all(|node| label(node, &domain.key) == Some(&domain.value));
        let found = domain_of(request, self.levels, on, label);
        found.or_else(|| before.into_iter().flatten().find(still))
    }
}
