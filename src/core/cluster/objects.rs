//! Objects of one kind, kept as the wire has them.
//!
//! Owns identity: which object is the current one under a name. Shared between
//! forks as a whole and copied on the first write after a fork; the objects
//! themselves are never copied. Must never interpret an object.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects by `name`, or `namespace/name` for namespaced kinds.
#[derive(Debug)]
pub struct Objects<T> {
    entries: Arc<BTreeMap<Box<str>, Entry<T>>>,
}

#[derive(Debug)]
struct Entry<T> {
    object: Arc<T>,
    seen: u64,
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        Self { object: Arc::clone(&self.object), seen: self.seen }
    }
}

impl<T> Clone for Objects<T> {
    fn clone(&self) -> Self {
        Self { entries: Arc::clone(&self.entries) }
    }
}

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self { entries: Arc::default() }
    }
}

impl<T> Objects<T> {
    /// The object of that name.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<T>> {
        self.entries.get(key).map(|e| &e.object)
    }

    /// All objects, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<T>)> {
        self.entries.iter().map(|(key, e)| (&**key, &e.object))
    }

    /// The objects of a namespace, sorted by name.
    pub fn under(&self, namespace: &str) -> impl Iterator<Item = &Arc<T>> {
        let (from, to) = (format!("{namespace}/"), format!("{namespace}0"));
        let range = self.entries.range::<str, _>((
            std::ops::Bound::Included(from.as_str()),
            std::ops::Bound::Excluded(to.as_str()),
        ));
        range.map(|(_, e)| &e.object)
    }

    /// Puts an object in place of the one of that name, which is returned.
    pub(crate) fn insert(&mut self, key: &str, object: Arc<T>, seen: u64) -> Option<Arc<T>> {
        let entries = Arc::make_mut(&mut self.entries);
        if let Some(entry) = entries.get_mut(key) {
            entry.seen = seen;
            return Some(std::mem::replace(&mut entry.object, object));
        }
        entries.insert(key.into(), Entry { object, seen });
        None
    }

    /// Removes the object of that name.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Arc<T>> {
        self.entries
            .contains_key(key)
            .then(|| Arc::make_mut(&mut self.entries).remove(key))?
            .map(|e| e.object)
    }

    /// Names last seen before relist `seen`.
    pub(crate) fn stale(&self, seen: u64) -> Vec<Box<str>> {
        let stale = self.entries.iter().filter(|(_, e)| e.seen < seen);
        stale.map(|(key, _)| key.clone()).collect()
    }
}
