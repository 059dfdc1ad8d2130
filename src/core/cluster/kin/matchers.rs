//! Matchers and terms: who asks about which pods.

use std::sync::Arc;

use super::{GroupId, Kin, MatchKey, Matcher, MatcherId, Term, post, unpost};
use crate::model::{AffinityTerm, TermId, TermKind};

impl Kin {
    /// The matcher of that key, if anybody uses it.
    pub(crate) fn matcher(&self, key: &MatchKey) -> Option<MatcherId> {
        self.matcher_index.get(key).copied()
    }

    #[cfg(test)]
    pub(crate) fn live_matchers(&self) -> impl Iterator<Item = (MatcherId, &MatchKey)> {
        let slots = self.matchers.iter().enumerate();
        slots.filter_map(|(i, m)| Some((MatcherId(i as u32), &*m.as_ref()?.key)))
    }

    #[cfg(test)]
    pub(crate) fn live_terms(&self) -> impl Iterator<Item = TermId> {
        self.terms.keys().copied()
    }

    /// One user more of a matcher; the groups it matches if it is new.
    pub(in crate::cluster) fn watch(&mut self, key: MatchKey) -> (MatcherId, Option<Vec<GroupId>>) {
        if let Some(&id) = self.matcher_index.get(&key) {
            if let Some(matcher) = &mut self.matchers[id.0 as usize] {
                matcher.users += 1;
            }
            return (id, None);
        }
        let groups: Vec<GroupId> = self.groups_of(&key).collect();
        self.by_namespace_label += u32::from(key.reads_namespaces());
        let key = Arc::new(key);
        let matcher = Matcher { key: Arc::clone(&key), users: 1, terms: Vec::new() };
        let id = match self.free_matchers.pop() {
            Some(id) => {
                self.matchers[id.0 as usize] = Some(matcher);
                id
            }
            None => {
                self.matchers.push(Some(matcher));
                MatcherId(u32::try_from(self.matchers.len() - 1).expect("fewer than 2^32 matchers"))
            }
        };
        match key.anchor() {
            Some((label, values)) => {
                values.iter().for_each(|v| post(&mut self.anchored, label, v, id));
            }
            None => {
                self.unanchored.insert(id);
            }
        }
        for group in &groups {
            let group = &mut self.groups[group.0 as usize];
            let mut matchers = group.matchers.to_vec();
            matchers.push(id);
            matchers.sort_unstable();
            group.matchers = matchers.into();
        }
        self.matcher_index.insert(key, id);
        (id, Some(groups))
    }

    /// One user less; true if the matcher is gone.
    pub(in crate::cluster) fn unwatch(&mut self, id: MatcherId) -> bool {
        let Some(matcher) = &mut self.matchers[id.0 as usize] else {
            return false;
        };
        matcher.users -= 1;
        if matcher.users > 0 {
            return false;
        }
        let key = Arc::clone(&matcher.key);
        self.by_namespace_label -= u32::from(key.reads_namespaces());
        let groups: Vec<GroupId> = self.groups_of(&key).collect();
        for group in groups {
            let group = &mut self.groups[group.0 as usize];
            group.matchers = group.matchers.iter().copied().filter(|m| *m != id).collect();
        }
        match key.anchor() {
            Some((label, values)) => {
                values.iter().for_each(|v| unpost(&mut self.anchored, label, v, id));
            }
            None => {
                self.unanchored.remove(&id);
            }
        }
        self.matcher_index.remove(&key);
        self.matchers[id.0 as usize] = None;
        self.free_matchers.push(id);
        true
    }

    // ---- terms -------------------------------------------------------------

    /// A live term.
    pub(crate) fn term(&self, id: TermId) -> Option<&Term> {
        self.terms.get(&id)
    }

    /// The live term that says this.
    pub(crate) fn find_term(&self, term: &(TermKind, AffinityTerm)) -> Option<TermId> {
        self.term_index.get(term).copied()
    }

    /// One user more of a term; the matcher's groups if that is new.
    pub(in crate::cluster) fn add_term(
        &mut self,
        kind: TermKind,
        term: &AffinityTerm,
    ) -> (TermId, Option<(MatcherId, Vec<GroupId>)>) {
        let key = Arc::new((kind, term.clone()));
        if let Some(&id) = self.term_index.get(&key) {
            if let Some(term) = self.terms.get_mut(&id) {
                term.users += 1;
            }
            return (id, None);
        }
        let all = vec![(term.scope.clone(), term.selector.clone())];
        let (matcher, groups) = self.watch(MatchKey { all, living: false, lenient: true });
        let id = TermId(self.next_term);
        self.next_term += 1;
        if let Some(matcher) = &mut self.matchers[matcher.0 as usize] {
            matcher.terms.push(id);
        }
        let topology_key = term.topology_key.clone();
        let key_of = Arc::clone(&key);
        self.terms.insert(id, Term { kind, topology_key, matcher, users: 1, key: key_of });
        self.term_index.insert(key, id);
        self.epoch += 1;
        (id, groups.map(|g| (matcher, g)))
    }

    /// One user less; what is gone with it.
    pub(in crate::cluster) fn drop_term(&mut self, id: TermId) -> (bool, Option<MatcherId>) {
        let Some(term) = self.terms.get_mut(&id) else {
            return (false, None);
        };
        term.users -= 1;
        if term.users > 0 {
            return (false, None);
        }
        let (matcher, key) = (term.matcher, Arc::clone(&term.key));
        self.terms.remove(&id);
        self.term_index.remove(&key);
        if let Some(matcher) = &mut self.matchers[matcher.0 as usize] {
            matcher.terms.retain(|t| *t != id);
        }
        self.epoch += 1;
        (true, self.unwatch(matcher).then_some(matcher))
    }
}
