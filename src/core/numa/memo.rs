//! What was predicted before: many nodes are in the same state, and a node that is looked at
//! again mostly is in the state it was in, or one pod further.
//!
//! Owns a bounded store. What it answers depends on the question alone: it may forget anything at
//! any time.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHasher;

use super::orders::{Kinds, Reached};
use super::{Machine, Pod, Prediction, Usage, predict};
use crate::hash::IdMap;

/// Most answers of a generation; two are kept.
const GENERATION: usize = 4096;

/// A store of answers.
#[derive(Default)]
pub struct Memo {
    predictions: Mutex<Generations<Arc<Pod>, Arc<Prediction>>>,
    reached: Mutex<Generations<Kinds, Reached>>,
}

/// Answers `A` to questions about a machine, what is in use, and `Q`.
struct Generations<Q, A> {
    young: IdMap<u64, Entry<Q, A>>,
    old: IdMap<u64, Entry<Q, A>>,
}

#[derive(Clone)]
struct Entry<Q, A> {
    machine: Arc<Machine>,
    usage: Usage,
    question: Q,
    answer: A,
}

impl Memo {
    /// As [`predict`].
    pub fn predict(
        &self,
        machine: &Arc<Machine>,
        usage: &Usage,
        pod: &Arc<Pod>,
    ) -> Arc<Prediction> {
        let make = || Arc::new(predict(machine, usage, pod));
        answer(&self.predictions, machine, usage, pod, make)
    }

    /// See [`super::orders`].
    pub(super) fn reached(
        &self,
        machine: &Arc<Machine>,
        usage: &Usage,
        kinds: &Kinds,
        make: impl FnOnce() -> Reached,
    ) -> Reached {
        answer(&self.reached, machine, usage, kinds, make)
    }
}

fn answer<Q: Clone + PartialEq + Hash, A: Clone>(
    store: &Mutex<Generations<Q, A>>,
    machine: &Arc<Machine>,
    usage: &Usage,
    question: &Q,
    make: impl FnOnce() -> A,
) -> A {
    let mut hasher = FxHasher::default();
    (Arc::as_ptr(machine) as usize).hash(&mut hasher);
    usage.hash(&mut hasher);
    question.hash(&mut hasher);
    let key = hasher.finish();
    let is = |entry: &Entry<Q, A>| {
        Arc::ptr_eq(&entry.machine, machine) && entry.usage == *usage && entry.question == *question
    };
    if let Some(known) = lock(store).get(key, is) {
        return known;
    }
    // Not under the lock: it may take a while, and ask again.
    let answer = make();
    let entry = Entry {
        machine: Arc::clone(machine),
        usage: usage.clone(),
        question: question.clone(),
        answer: answer.clone(),
    };
    lock(store).put(key, entry);
    answer
}

fn lock<Q, A>(store: &Mutex<Generations<Q, A>>) -> MutexGuard<'_, Generations<Q, A>> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<Q, A> Default for Generations<Q, A> {
    fn default() -> Self {
        Self { young: IdMap::default(), old: IdMap::default() }
    }
}

impl<Q: Clone, A: Clone> Generations<Q, A> {
    fn get(&mut self, key: u64, is: impl Fn(&Entry<Q, A>) -> bool) -> Option<A> {
        if let Some(entry) = self.young.get(&key).filter(|entry| is(entry)) {
            return Some(entry.answer.clone());
        }
        let entry = self.old.get(&key).filter(|entry| is(entry))?.clone();
        let answer = entry.answer.clone();
        self.put(key, entry);
        Some(answer)
    }

    /// Of two with one key the newer one is kept.
    fn put(&mut self, key: u64, entry: Entry<Q, A>) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numa::{Container, DeviceResource};

    #[test]
    fn answers_are_those_of_the_predictor_and_the_store_is_bounded() {
        let memo = Memo::default();
        let device = DeviceResource { name: "d".into(), ..DeviceResource::default() };
        let machine = Arc::new(Machine { devices: vec![device], ..Machine::default() });
        let usage = machine.unused();
        let pod = |count: u32| {
            let devices = vec![("d".into(), count)];
            let container = Container { devices, ..Container::default() };
            Arc::new(Pod { containers: vec![container], ..Pod::default() })
        };
        for count in 0..3 * GENERATION as u32 {
            let asked = pod(count % 5000);
            let found = memo.predict(&machine, &usage, &asked);
            assert_eq!(*found, predict(&machine, &usage, &asked));
            assert!(Arc::ptr_eq(&found, &memo.predict(&machine, &usage, &asked)));
        }
        let kept = lock(&memo.predictions);
        assert!(kept.young.len() + kept.old.len() <= 2 * GENERATION);
    }
}
