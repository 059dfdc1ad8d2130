//! Cures: changes of which each would let it run now.
//!
//! A cure is found by trying: candidates are made from what nodes say, and those that work are
//! kept. Where how much matters (members, resources, nodes) the least that works is sought.

use std::collections::BTreeMap;

use muster_api::k8s::Pod;
use muster_core::gang::Api;
use serde::Serialize;
use serde_json::Value;

use super::cause::Goal;
use super::{Count, MAX_CURES, gang, node, pod, room};
use crate::whatif::{Change, Key, Op, Ran, Stage};

/// Most changes that are tried for one sort of cure: enough for its searches, which halve what is left.
const MAX_TRIALS: usize = 48;

/// A change that lets it run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cure {
    /// For people.
    pub what: String,
    /// The blocker that it lifts.
    #[serde(skip)]
    pub lifts: &'static str,
    /// A command that does it, where one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The change, object by object. Pods are made anew with it: most of a pod cannot be changed.
    pub changes: Vec<Change>,
    /// Where whoever was asked about goes then: node by pod.
    pub places: BTreeMap<String, String>,
}

/// Finds cures.
pub(super) struct Finder<'a> {
    pub(super) stage: &'a Stage<'a>,
    pub(super) goal: &'a Goal,
    pub(super) pods: &'a [Key],
    pub(super) ran: &'a Ran,
    counts: &'a [Count],
    tried: usize,
    /// How many may have been tried when the sort of cure at hand is given up.
    limit: usize,
    found: Vec<Cure>,
}

/// Sorts of cures, what changes least first.
const SORTS: [fn(&mut Finder<'_>); 8] = [
    pod::gates,
    gang::missing,
    node::reopen,
    gang::less,
    pod::constraints,
    pod::less,
    room::victims,
    node::more,
];

impl<'a> Finder<'a> {
    pub(super) fn new(
        stage: &'a Stage<'a>,
        goal: &'a Goal,
        pods: &'a [Key],
        ran: &'a Ran,
        counts: &'a [Count],
    ) -> Self {
        Self { stage, goal, pods, ran, counts, tried: 0, limit: MAX_TRIALS, found: Vec::new() }
    }

    /// Every cure, the least change first.
    pub(super) fn cures(&mut self) -> Vec<Cure> {
        for sort in SORTS {
            self.limit = self.tried + MAX_TRIALS;
            sort(self);
        }
        self.take()
    }

    /// With another scheduler's name.
    pub(super) fn other_scheduler(&mut self, name: &str) {
        let changes = self.for_all(|_| vec![Op::set("/spec/schedulerName", name)]);
        self.offer("SchedulerName", format!("ask for schedulerName: {name}"), changes, None);
    }

    pub(super) fn take(&mut self) -> Vec<Cure> {
        let mut found = std::mem::take(&mut self.found);
        found.truncate(MAX_CURES);
        found
    }

    pub(super) fn tried(&self) -> usize {
        self.tried
    }

    /// The pod that is asked about, or one of the gang.
    pub(super) fn subject(&self) -> Option<(&'a Key, &'a Pod, &'a Value)> {
        let key = self.pods.first()?;
        Some((key, self.stage.world().pod(key)?, self.stage.world().get(key)?))
    }

    /// Its pod group.
    pub(super) fn group(&self) -> Option<(Api, Key)> {
        let (key, pod, _) = self.subject()?;
        let (api, name) = Api::of(pod)?;
        Some((api, Key::group(api, &key.namespace, name)))
    }

    /// Whether a plugin keeps any node out, with what it says.
    pub(super) fn says(&self, plugin: &str) -> bool {
        self.counts.iter().any(|count| count.plugin == plugin)
    }

    /// Everything that is said.
    pub(super) fn reasons(&self) -> impl Iterator<Item = &str> {
        let said = self.counts.iter().map(|count| count.reason.as_str());
        said.chain(std::iter::once(self.ran.message.as_str()))
    }

    /// The same change of every pod that is tried together; of none if it does nothing.
    pub(super) fn for_all(&self, ops: impl Fn(&Value) -> Vec<Op>) -> Vec<Change> {
        let change = |key: &Key| {
            let ops = ops(self.stage.world().get(key)?);
            (!ops.is_empty()).then(|| Change::patch(key, ops))
        };
        self.pods.iter().filter_map(change).collect()
    }

    /// Whether no more changes of this sort are tried.
    pub(super) fn is_spent(&self) -> bool {
        self.tried >= self.limit
    }

    /// Whether changes let it run.
    pub(super) fn works(&mut self, changes: &[Change]) -> Option<Ran> {
        if changes.is_empty() || self.is_spent() {
            return None;
        }
        self.tried += 1;
        let ran = self.stage.try_out(changes, self.pods, false)?;
        self.goal.is_met(&ran, self.pods).then_some(ran)
    }

    /// Keeps changes if they let it run.
    pub(super) fn offer(
        &mut self,
        lifts: &'static str,
        what: String,
        changes: Vec<Change>,
        command: Option<String>,
    ) -> bool {
        match self.works(&changes) {
            Some(ran) => {
                self.keep(lifts, what, changes, command, &ran);
                true
            }
            None => false,
        }
    }

    /// Keeps what has been tried.
    pub(super) fn keep(
        &mut self,
        lifts: &'static str,
        what: String,
        changes: Vec<Change>,
        command: Option<String>,
        ran: &Ran,
    ) {
        let own = self.pods.iter().filter_map(|key| Some((key, ran.placed.get(key)?)));
        let places = own.map(|(key, node)| (key.to_string(), node.clone())).collect();
        self.found.push(Cure { what, lifts, command, changes, places });
    }

    /// The greatest of `least..=most` for which changes work, if any does; what works for a
    /// number works for less.
    pub(super) fn greatest(
        &mut self,
        least: i64,
        most: i64,
        changes: impl Fn(i64) -> Vec<Change>,
    ) -> Option<(i64, Vec<Change>, Ran)> {
        let (mut low, mut high, mut best) = (least, most, None);
        while low <= high {
            let middle = low + (high - low + 1) / 2;
            let tried = changes(middle);
            match self.works(&tried) {
                Some(ran) => {
                    best = Some((middle, tried, ran));
                    low = middle + 1;
                }
                None => high = middle - 1,
            }
        }
        best
    }

    /// The least of `1..=most` for which changes work, if any does; what works for a number works
    /// for more. Nothing if it could not be told within the trials.
    pub(super) fn least(
        &mut self,
        most: i64,
        changes: impl Fn(i64) -> Vec<Change>,
    ) -> Option<(i64, Vec<Change>, Ran)> {
        let all = changes(most);
        let ran = self.works(&all)?;
        let (mut low, mut best) = (1, (most, all, ran));
        while low < best.0 {
            let middle = low + (best.0 - low) / 2;
            let tried = changes(middle);
            match self.works(&tried) {
                Some(ran) => best = (middle, tried, ran),
                None if self.is_spent() => return None,
                None => low = middle + 1,
            }
        }
        Some(best)
    }

    /// ` for all of its 8 members`, if it is more than one pod.
    pub(super) fn each(&self) -> String {
        match self.pods.len() {
            1 => String::new(),
            n => format!(" (each of {n} members)"),
        }
    }
}
