//! How pods, shapes and objects move the counters.

use std::sync::Arc;

use muster_api::k8s;

use super::kin::{GroupId, GroupKey, MatchKey, MatcherId};
use super::owners::Owner;
use super::tally::{Count, Links};
use super::{Cluster, NodeId};
use crate::model::{LabelSet, PodId, PodShape, Selector, ShapeId, TermId};

/// A count of pods per node: one that is kept, or one made for a single question.
pub(crate) enum Counted {
    /// Nothing is counted.
    Nothing,
    Kept(MatcherId),
    Made(Count),
}

impl Counted {
    /// Pods on a node.
    #[inline]
    pub(crate) fn on(&self, cluster: &Cluster, node: NodeId) -> i64 {
        match self {
            Self::Nothing => 0,
            Self::Kept(matcher) => cluster.tally.matched(*matcher).on(node).into(),
            Self::Made(count) => count.on(node).into(),
        }
    }

    /// Whether it follows placements.
    pub(crate) fn is_kept(&self) -> bool {
        !matches!(self, Self::Made(_))
    }
}

impl Cluster {
    /// The pods that `key` matches, by node.
    pub(crate) fn counted(&self, key: &MatchKey) -> Counted {
        if key.all.iter().any(|(_, selector)| selector.is_nothing()) {
            return Counted::Nothing;
        }
        match self.kin.matcher(key) {
            Some(matcher) => Counted::Kept(matcher),
            None => Counted::Made(self.tally.count(&self.kin, key)),
        }
    }

    /// As `counted`, by spreading's rule: a selector of everything counts nothing.
    pub(crate) fn counted_for_spread(&self, namespace: &str, selector: &Selector) -> Counted {
        if selector.is_everything() {
            return Counted::Nothing;
        }
        self.counted(&MatchKey::spread(namespace, selector))
    }

    /// A pod's shape and group.
    pub(crate) fn kind_of(&self, pod: PodId) -> Option<(Arc<PodShape>, Arc<GroupKey>)> {
        let pod = self.pod(pod)?;
        Some((Arc::clone(self.shape(pod.shape)), Arc::clone(self.kin.group(pod.group))))
    }

    /// Changes when counts changed without any node's change.
    pub(crate) fn kin_stamp(&self) -> u64 {
        self.kin.generation
    }

    /// By which selectors tell the pod apart.
    pub(crate) fn group_key(&self, wire: &k8s::Pod) -> GroupKey {
        GroupKey {
            namespace: wire.metadata.namespace.as_str().into(),
            labels: LabelSet::of(&wire.metadata.labels),
            deleting: wire.metadata.deletion_timestamp.is_some(),
        }
    }

    /// Joins the group of a pod that is about to be added.
    pub(crate) fn join_group(&mut self, wire: &k8s::Pod, ours: bool) -> GroupId {
        let key = self.group_key(wire);
        Arc::make_mut(&mut self.kin).join(key, ours)
    }

    /// A pod's labels, or its being on the way out, may have changed. Its group
    /// before, if they have.
    pub(crate) fn regroup(&mut self, id: PodId, wire: &k8s::Pod) -> Option<Arc<GroupKey>> {
        let pod = self.pod(id)?;
        let (old, stage, shape, ours) = (pod.group, pod.stage, pod.shape, pod.ours);
        let before = Arc::clone(self.kin.group(old));
        let key = self.group_key(wire);
        if *before == key {
            return None;
        }
        let new = Arc::make_mut(&mut self.kin).join(key, ours);
        if let Some(node) = stage.node() {
            let terms = Arc::clone(self.shapes.links(shape));
            self.tally.shift(&self.kin, old, &terms.terms, node, false);
            self.tally.shift(&self.kin, new, &terms.terms, node, true);
            self.journal.push(node);
        }
        Arc::make_mut(&mut self.kin).leave(old, ours);
        if let Some(pod) = self.pod_mut(id) {
            pod.group = new;
            pod.settled = u64::MAX;
        }
        Some(before)
    }

    pub(super) fn tally_pod(&mut self, group: GroupId, shape: ShapeId, node: NodeId, more: bool) {
        let links = Arc::clone(self.shapes.links(shape));
        self.tally.shift(&self.kin, group, &links.terms, node, more);
    }

    /// Fills in what of a shape depends on other objects.
    pub(super) fn relate(&self, shape: &mut PodShape, group: &GroupKey, owner: Option<&Owner>) {
        let matched = self.kin.terms_on(group);
        let siblings = self.siblings(shape, group, owner);
        relate(shape, group, matched, siblings);
    }

    /// The selector that default spreading would use for a pod.
    fn siblings(
        &self,
        shape: &PodShape,
        group: &GroupKey,
        owner: Option<&Owner>,
    ) -> Option<(Selector, bool)> {
        if shape.related.has_spread {
            return None;
        }
        let selector = self.kin.owners.selector(&group.namespace, &group.labels, owner)?;
        let matches_self = selector.matches(&group.labels);
        Some((selector, matches_self))
    }

    /// Looks at a waiting pod anew if anything may have changed that its shape
    /// depends on. The shape it should have, if that is another one.
    pub(crate) fn settle(&mut self, id: PodId) -> Option<PodShape> {
        let epoch = self.kin.epoch;
        let pod = self.pod_mut(id)?;
        if std::mem::replace(&mut pod.settled, epoch) == epoch {
            return None;
        }
        let scoring = self.scoring_of_group(self.pod(id)?.group);
        let pod = self.pod(id)?;
        let (shape, group) = (self.shape(pod.shape), self.kin.group(pod.group));
        shape.profile?;
        let matched = self.kin.terms_on_group(pod.group);
        let siblings = self.siblings(shape, group, pod.owner.as_ref());
        if matched == shape.related.matched
            && siblings == shape.related.siblings
            && scoring == shape.scoring
        {
            return None;
        }
        let mut fresh = (**shape).clone();
        relate(&mut fresh, group, matched, siblings);
        fresh.scoring = scoring;
        Some(fresh)
    }

    /// Interns a shape and counts one user of it.
    pub(crate) fn intern_shape(&mut self, shape: PodShape) -> ShapeId {
        if let Some(id) = self.shapes.find(&shape) {
            return id;
        }
        let links = self.link(&shape);
        self.shapes.insert(shape, links)
    }

    pub(crate) fn release_shape(&mut self, shape: ShapeId) {
        for links in self.shapes.release(shape) {
            self.unlink(&links);
        }
    }

    /// Keeps the counters that a shape reads.
    fn link(&mut self, shape: &PodShape) -> Links {
        let related = &shape.related;
        let (mut terms, mut matchers) = (Vec::new(), Vec::new());
        for (kind, term) in &related.terms.all {
            let (id, seeded) = Arc::make_mut(&mut self.kin).add_term(*kind, term);
            if let Some((matcher, groups)) = seeded {
                groups.into_iter().for_each(|g| self.tally.admit(matcher, g, true));
            }
            terms.push(id);
        }
        if shape.profile.is_some() {
            for key in match_keys(shape) {
                let (id, seeded) = Arc::make_mut(&mut self.kin).watch(key);
                for group in seeded.into_iter().flatten() {
                    self.tally.admit(id, group, true);
                }
                matchers.push(id);
            }
        }
        Links { terms: terms.into(), matchers: matchers.into() }
    }

    fn unlink(&mut self, links: &Links) {
        if links.terms.is_empty() && links.matchers.is_empty() {
            return;
        }
        let kin = Arc::make_mut(&mut self.kin);
        for &term in &links.terms {
            let (gone, matcher) = kin.drop_term(term);
            if gone {
                self.tally.forget_term(term);
            }
            matcher.into_iter().for_each(|m| self.tally.forget_matcher(m));
        }
        for &matcher in &links.matchers {
            if kin.unwatch(matcher) {
                self.tally.forget_matcher(matcher);
            }
        }
    }
}

fn relate(
    shape: &mut PodShape,
    group: &GroupKey,
    matched: Box<[TermId]>,
    siblings: Option<(Selector, bool)>,
) {
    let related = &mut shape.related;
    let alone = matched.is_empty()
        && siblings.is_none()
        && related.spread.is_empty()
        && related.terms.all.is_empty();
    // Only what depends on it makes the namespace part of a shape.
    related.namespace = (!alone).then(|| Arc::clone(&group.namespace));
    (related.matched, related.siblings) = (matched, siblings);
}

/// What a shape counts.
fn match_keys(shape: &PodShape) -> Vec<MatchKey> {
    let related = &shape.related;
    let namespace = related.namespace.as_deref().unwrap_or_default();
    let spread = related.spread.iter().map(|c| &c.selector);
    let siblings = related.siblings.iter().map(|(selector, _)| selector);
    let counts = |s: &&Selector| !s.is_everything() && !s.is_nothing();
    let mut keys: Vec<MatchKey> =
        spread.chain(siblings).filter(counts).map(|s| MatchKey::spread(namespace, s)).collect();
    let terms = &related.terms;
    if terms.needs().next().is_some() {
        keys.push(MatchKey::terms(terms.needs()));
    }
    keys.extend(terms.repels().map(|t| MatchKey::terms([t])));
    keys.extend(terms.wishes().map(|(_, t)| MatchKey::terms([t])));
    keys.retain(|key| key.all.iter().all(|(_, s)| !s.is_nothing()));
    keys
}
