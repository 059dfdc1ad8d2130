//! Which pods are matched by which selectors.
//!
//! Owns groups (pods alike in namespace and labels), matchers (the selectors that
//! anybody asks about) and terms (what pods with affinity do to others). A group
//! knows its matchers, so placing a pod touches the counters it is in and no
//! others. Must never hold a matcher or a group that nobody uses, and never
//! walk all pods: a new matcher finds its groups by posting lists per label.

mod matchers;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster::owners::Owners;
use crate::hash::{IdMap, TextMap};
use crate::model::{AffinityTerm, LabelSet, Scope, Selector, TermId, TermKind};

/// A group: a dense index, reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(crate) u32);

/// A matcher: a dense index, reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MatcherId(pub(crate) u32);

/// By which selectors can tell pods apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupKey {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Labels.
    pub labels: LabelSet,
    /// Terminating: spreading does not count such pods.
    pub deleting: bool,
}

#[derive(Clone, Default)]
struct Group {
    key: Arc<GroupKey>,
    users: u32,
    /// Of those, pods of our schedulers.
    ours: u32,
    matchers: Arc<[MatcherId]>,
}

/// Which pods a counter counts: those that satisfy all of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatchKey {
    pub(crate) all: Vec<(Scope, Selector)>,
    /// Whether terminating pods are left out.
    pub(crate) living: bool,
    /// Whether a namespace without an object counts as one without labels.
    pub(crate) lenient: bool,
}

impl MatchKey {
    /// Pods of one namespace, as spreading counts them.
    pub(crate) fn spread(namespace: &str, selector: &Selector) -> Self {
        let scope = Scope { names: [namespace.into()].into(), selector: Selector::nothing() };
        Self { all: vec![(scope, selector.clone())], living: true, lenient: false }
    }

    /// Pods that satisfy all these terms of an incoming pod.
    pub(crate) fn terms<'a>(terms: impl IntoIterator<Item = &'a AffinityTerm>) -> Self {
        let all = terms.into_iter().map(|t| (t.scope.clone(), t.selector.clone())).collect();
        Self { all, living: false, lenient: false }
    }

    /// Whether it asks for labels of namespaces.
    fn reads_namespaces(&self) -> bool {
        let asks = |s: &Selector| !s.is_nothing() && !s.is_everything();
        self.all.iter().any(|(scope, _)| asks(&scope.selector))
    }

    fn anchor(&self) -> Option<(&str, &[Box<str>])> {
        self.all.iter().find_map(|(_, selector)| selector.anchor())
    }
}

#[derive(Clone)]
struct Matcher {
    key: Arc<MatchKey>,
    users: u32,
    terms: Vec<TermId>,
}

/// A live term.
#[derive(Clone)]
pub(crate) struct Term {
    pub(crate) kind: TermKind,
    pub(crate) topology_key: Box<str>,
    matcher: MatcherId,
    users: u32,
    key: Arc<(TermKind, AffinityTerm)>,
}

type Postings<T> = TextMap<Box<str>, TextMap<Box<str>, BTreeSet<T>>>;

/// What joins or leaves a counter.
pub(in crate::cluster) type Moves = Vec<(MatcherId, GroupId, bool)>;

#[derive(Clone, Default)]
pub(crate) struct Kin {
    groups: Vec<Group>,
    group_index: TextMap<Arc<GroupKey>, GroupId>,
    free_groups: Vec<GroupId>,
    by_label: Postings<GroupId>,
    matchers: Vec<Option<Matcher>>,
    matcher_index: TextMap<Arc<MatchKey>, MatcherId>,
    free_matchers: Vec<MatcherId>,
    anchored: Postings<MatcherId>,
    unanchored: BTreeSet<MatcherId>,
    terms: IdMap<TermId, Term>,
    term_index: TextMap<Arc<(TermKind, AffinityTerm)>, TermId>,
    next_term: u32,
    namespaces: TextMap<Arc<str>, LabelSet>,
    /// How many matchers ask for labels of namespaces.
    by_namespace_label: u32,
    pub(in crate::cluster) owners: Owners,
    /// Grows when a waiting pod may have to be looked at anew.
    pub(in crate::cluster) epoch: u64,
    /// Grows when counts changed without any node's change.
    pub(in crate::cluster) generation: u64,
}

fn post<T: Ord + Copy>(postings: &mut Postings<T>, key: &str, value: &str, id: T) {
    if !postings.contains_key(key) {
        postings.insert(key.into(), TextMap::default());
    }
    if let Some(values) = postings.get_mut(key) {
        match values.get_mut(value) {
            Some(ids) => {
                ids.insert(id);
            }
            None => {
                values.insert(value.into(), BTreeSet::from([id]));
            }
        }
    }
}

fn unpost<T: Ord + Copy>(postings: &mut Postings<T>, key: &str, value: &str, id: T) {
    if let Some(values) = postings.get_mut(key) {
        if let Some(ids) = values.get_mut(value) {
            ids.remove(&id);
            if ids.is_empty() {
                values.remove(value);
            }
        }
        if values.is_empty() {
            postings.remove(key);
        }
    }
}

impl Kin {
    // ---- namespaces --------------------------------------------------------

    /// Whether a scope covers a namespace. An incoming pod's selector is asked
    /// about Namespace objects only; one of an existing pod (`lenient`) takes a
    /// namespace without an object for one without labels.
    pub(crate) fn covers(&self, scope: &Scope, namespace: &str, lenient: bool) -> bool {
        if scope.names.binary_search_by(|n| (**n).cmp(namespace)).is_ok() {
            return true;
        }
        if scope.selector.is_nothing() || scope.selector.is_everything() {
            return scope.selector.is_everything();
        }
        match self.namespaces.get(namespace) {
            Some(labels) => scope.selector.matches(labels),
            None => lenient && scope.selector.matches(&LabelSet::default()),
        }
    }

    /// Sets or removes a Namespace object; says which groups changed counters.
    pub(in crate::cluster) fn set_namespace(
        &mut self,
        name: &str,
        labels: Option<LabelSet>,
    ) -> Moves {
        if self.namespaces.get(name) == labels.as_ref() {
            return Moves::new();
        }
        match labels {
            Some(labels) => self.namespaces.insert(name.into(), labels),
            None => self.namespaces.remove(name),
        };
        let mut moves = Moves::new();
        if self.by_namespace_label == 0 {
            return moves;
        }
        for id in 0..self.groups.len() {
            let group = &self.groups[id];
            if group.users == 0 || *group.key.namespace != *name {
                continue;
            }
            let id = GroupId(id as u32);
            let now = self.matchers_of(&group.key);
            let before = std::mem::replace(&mut self.groups[id.0 as usize].matchers, now);
            let now = Arc::clone(&self.groups[id.0 as usize].matchers);
            moves.extend(before.iter().filter(|m| !now.contains(m)).map(|m| (*m, id, false)));
            moves.extend(now.iter().filter(|m| !before.contains(m)).map(|m| (*m, id, true)));
        }
        self.epoch += 1;
        self.generation += 1;
        moves
    }

    pub(in crate::cluster) fn namespace_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.namespaces.keys()
    }

    // ---- groups ------------------------------------------------------------

    /// A group.
    pub(crate) fn group(&self, id: GroupId) -> &Arc<GroupKey> {
        &self.groups[id.0 as usize].key
    }

    pub(in crate::cluster) fn matchers(&self, id: GroupId) -> &Arc<[MatcherId]> {
        &self.groups[id.0 as usize].matchers
    }

    /// One user more of the group of that key; whether it is ours.
    pub(in crate::cluster) fn join(&mut self, key: GroupKey, ours: bool) -> GroupId {
        if let Some(&id) = self.group_index.get(&key) {
            self.groups[id.0 as usize].users += 1;
            self.groups[id.0 as usize].ours += u32::from(ours);
            return id;
        }
        let (matchers, ours) = (self.matchers_of(&key), u32::from(ours));
        let group = Group { matchers, key: Arc::new(key), users: 1, ours };
        let key = Arc::clone(&group.key);
        let id = match self.free_groups.pop() {
            Some(id) => {
                self.groups[id.0 as usize] = group;
                id
            }
            None => {
                self.groups.push(group);
                GroupId(u32::try_from(self.groups.len() - 1).expect("fewer than 2^32 groups"))
            }
        };
        for (label, value) in key.labels.iter() {
            post(&mut self.by_label, label, value, id);
        }
        self.group_index.insert(key, id);
        id
    }

    /// One user less; whether it was ours.
    pub(in crate::cluster) fn leave(&mut self, id: GroupId, ours: bool) {
        let group = &mut self.groups[id.0 as usize];
        group.users -= 1;
        group.ours -= u32::from(ours);
        if group.users > 0 {
            return;
        }
        let key = std::mem::take(group).key;
        for (label, value) in key.labels.iter() {
            unpost(&mut self.by_label, label, value, id);
        }
        self.group_index.remove(&key);
        self.free_groups.push(id);
    }

    /// Matchers and how many pods of ours they match, group by group.
    pub(in crate::cluster) fn ours(&self) -> impl Iterator<Item = (&[MatcherId], u32)> {
        self.groups.iter().filter(|g| g.ours > 0).map(|g| (&*g.matchers, g.ours))
    }

    /// The matchers that match pods of such a group, in order.
    pub(in crate::cluster) fn matchers_of(&self, group: &GroupKey) -> Arc<[MatcherId]> {
        let mut found: Vec<MatcherId> = Vec::new();
        let anchored = group.labels.iter().filter_map(|(k, v)| self.anchored.get(k)?.get(v));
        for &id in anchored.flatten().chain(&self.unanchored) {
            let matcher = self.matchers[id.0 as usize].as_ref();
            if matcher.is_some_and(|m| self.matches(&m.key, group)) {
                found.push(id);
            }
        }
        found.sort_unstable();
        found.into()
    }

    /// Whether pods of a group count.
    pub(crate) fn matches(&self, key: &MatchKey, group: &GroupKey) -> bool {
        !(key.living && group.deleting)
            && key.all.iter().all(|(scope, selector)| {
                selector.matches(&group.labels) && self.covers(scope, &group.namespace, key.lenient)
            })
    }

    /// The groups that a matcher matches.
    pub(crate) fn groups_of<'a>(
        &'a self,
        key: &'a MatchKey,
    ) -> Box<dyn Iterator<Item = GroupId> + 'a> {
        let matches = |id: &GroupId| self.matches(key, self.group(*id));
        match key.anchor() {
            Some((label, values)) => {
                let values = values.iter().filter_map(move |v| self.by_label.get(label)?.get(v));
                Box::new(values.flatten().copied().filter(matches))
            }
            None => {
                let used = self.groups.iter().enumerate().filter(|(_, g)| g.users > 0);
                Box::new(used.map(|(i, _)| GroupId(i as u32)).filter(matches))
            }
        }
    }

    /// The live terms that match pods of such a group, sorted.
    pub(crate) fn terms_on(&self, group: &GroupKey) -> Box<[TermId]> {
        self.terms_by(&self.matchers_of(group))
    }

    /// As `terms_on`, for a group that exists.
    pub(crate) fn terms_on_group(&self, id: GroupId) -> Box<[TermId]> {
        self.terms_by(self.matchers(id))
    }

    fn terms_by(&self, matchers: &[MatcherId]) -> Box<[TermId]> {
        let matchers = matchers.iter().filter_map(|m| self.matchers[m.0 as usize].as_ref());
        let mut terms: Vec<TermId> = matchers.flat_map(|m| m.terms.iter().copied()).collect();
        terms.sort_unstable();
        terms.into()
    }
}
