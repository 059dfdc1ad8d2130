//! What the probes write down, and what the test tells them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use super::probe::FIRST;

/// One call of one extension point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) plugin: &'static str,
    pub(super) point: &'static str,
    pub(super) case: String,
    pub(super) node: String,
}

/// What both plugins and the test share.
#[derive(Default)]
pub(super) struct Book {
    calls: Mutex<Vec<Call>>,
    /// Doors that the test has opened.
    open: Mutex<BTreeSet<String>>,
    /// Versions of claims, by name.
    versions: Mutex<BTreeMap<String, String>>,
}

impl Book {
    pub(super) fn note(&self, plugin: &'static str, point: &'static str, case: &str, node: &str) {
        let call = Call { plugin, point, case: case.to_owned(), node: node.to_owned() };
        self.calls.lock().unwrap().push(call);
    }

    /// The calls for one pod, in order.
    pub(super) fn calls(&self, case: &str) -> Vec<Call> {
        self.calls.lock().unwrap().iter().filter(|c| c.case == case).cloned().collect()
    }

    /// `Plugin.point` of each call for one pod that is of these points.
    pub(super) fn points(&self, case: &str, points: &[&str]) -> Vec<String> {
        let calls = self.calls(case).into_iter().filter(|c| points.contains(&c.point));
        calls.map(|c| format!("{}.{}", c.plugin, c.point)).collect()
    }

    /// The pods in the order in which this point of the first plugin met them.
    pub(super) fn order(&self, point: &str) -> Vec<String> {
        let calls = self.calls.lock().unwrap();
        let met = calls.iter().filter(|c| c.plugin == FIRST && c.point == point);
        met.map(|c| c.case.clone()).collect()
    }

    pub(super) fn open(&self, door: &str) {
        self.open.lock().unwrap().insert(door.to_owned());
    }

    pub(super) fn is_open(&self, door: &str) -> bool {
        self.open.lock().unwrap().contains(door)
    }

    pub(super) fn set_version(&self, claim: &str, version: &str) {
        self.versions.lock().unwrap().insert(claim.to_owned(), version.to_owned());
    }

    pub(super) fn version(&self, claim: &str) -> String {
        self.versions.lock().unwrap().get(claim).cloned().unwrap_or_default()
    }

    /// Whether this is the first attempt to get that far.
    pub(super) fn is_first(&self, plugin: &str, point: &str, case: &str) -> bool {
        let calls = self.calls(case);
        calls.iter().filter(|c| c.plugin == plugin && c.point == point).count() <= 1
    }
}
