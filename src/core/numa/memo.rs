//! Predictions that were made before: many nodes are in the same state, and a node that is
//! looked at again mostly is in the state it was in.
//!
//! Owns a bounded store. What it answers is what [`predict`] would: it may forget anything at
//! any time.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHasher;

use super::{Machine, Pod, Prediction, Usage, predict};
use crate::hash::IdMap;

/// Most predictions of a generation; two are kept.
const GENERATION: usize = 4096;

/// A store of predictions.
#[derive(Default)]
pub struct Memo(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: IdMap<u64, Entry>,
    old: IdMap<u64, Entry>,
}

#[derive(Clone)]
struct Entry {
    machine: Arc<Machine>,
    usage: Usage,
    pod: Arc<Pod>,
    prediction: Arc<Prediction>,
}

impl Entry {
    fn is(&self, machine: &Arc<Machine>, usage: &Usage, pod: &Pod) -> bool {
        Arc::ptr_eq(&self.machine, machine) && self.usage == *usage && *self.pod == *pod
    }
}

impl Memo {
    /// As [`predict`].
    pub fn predict(
        &self,
        machine: &Arc<Machine>,
        usage: &Usage,
        pod: &Arc<Pod>,
    ) -> Arc<Prediction> {
        let mut hasher = FxHasher::default();
        (Arc::as_ptr(machine) as usize).hash(&mut hasher);
        usage.hash(&mut hasher);
        pod.hash(&mut hasher);
        let key = hasher.finish();
        if let Some(known) = self.lock().get(key, |entry| entry.is(machine, usage, pod)) {
            return known;
        }
        // Not under the lock: it may take a while.
        let prediction = Arc::new(predict(machine, usage, pod));
        let entry = Entry {
            machine: Arc::clone(machine),
            usage: usage.clone(),
            pod: Arc::clone(pod),
            prediction: Arc::clone(&prediction),
        };
        self.lock().put(key, entry);
        prediction
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn get(&mut self, key: u64, is: impl Fn(&Entry) -> bool) -> Option<Arc<Prediction>> {
        if let Some(entry) = self.young.get(&key).filter(|entry| is(entry)) {
            return Some(Arc::clone(&entry.prediction));
        }
        let entry = self.old.get(&key).filter(|entry| is(entry))?.clone();
        let prediction = Arc::clone(&entry.prediction);
        self.put(key, entry);
        Some(prediction)
    }

    /// Of two with one key the newer one is kept.
    fn put(&mut self, key: u64, entry: Entry) {
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
        let kept = memo.lock();
        assert!(kept.young.len() + kept.old.len() <= 2 * GENERATION);
    }
}
