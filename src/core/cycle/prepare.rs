//! PreFilter and PreScore of all plugins for one shape.

use std::sync::Arc;

use super::running;
use crate::cluster::{Cluster, NodeSet, NodeView};
use crate::framework::{
    ClassKey, Code, ExtensionPoint, Normalize, PreFilterResult, PreScoreResult, Profile, State,
    Status, Survey,
};
use crate::model::PodShape;

/// A plugin's part in judging nodes, by its position in the profile.
pub(super) struct Active {
    pub(super) plugin: usize,
    pub(super) state: State,
    pub(super) by_class: bool,
}

/// A plugin's part in rating nodes.
pub(super) struct Rating {
    pub(super) plugin: usize,
    pub(super) weight: i64,
    pub(super) normalize: Normalize,
    pub(super) state: State,
    pub(super) by_class: bool,
}

/// A shape made ready: what every per-node call needs.
pub(crate) struct Prepared {
    pub(super) filters: Vec<Active>,
    pub(super) ratings: Vec<Rating>,
    /// Nodes PreFilter allows; `None` is all.
    pub(crate) allowed: Option<NodeSet>,
    /// Status of nodes outside `allowed`.
    pub(crate) outside: Option<Status>,
    /// Plugins that narrowed: they count as rejectors.
    pub(crate) narrowing: Vec<usize>,
    /// PreFilter rejected the shape: no node is looked at. No plugin is named if
    /// several contradict each other.
    pub(crate) rejected: Option<(Option<usize>, Status)>,
    /// PreScore failed: the attempt is an error if a node is feasible.
    pub(crate) score_error: Option<(usize, Status)>,
}

/// A node's scores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Raw {
    /// Weighted sum of scores that need no normalisation.
    pub(crate) fixed: i64,
    /// Raw scores that do, in the order of [`Prepared::normalizers`].
    pub(crate) open: smallvec::SmallVec<[i64; 4]>,
}

impl Prepared {
    pub(crate) fn new(profile: &Profile, shape: &PodShape, cluster: &Cluster) -> Self {
        let mut prepared = Self {
            filters: Vec::new(),
            ratings: Vec::new(),
            allowed: None,
            outside: None,
            narrowing: Vec::new(),
            rejected: None,
            score_error: None,
        };
        prepared.pre_filter(profile, shape, cluster);
        if prepared.rejected.is_none() {
            prepared.pre_score(profile, shape, cluster);
        }
        prepared
    }

    fn pre_filter(&mut self, profile: &Profile, shape: &PodShape, cluster: &Cluster) {
        let mut names: Option<Vec<Box<str>>> = None;
        let mut states: Vec<State> = profile.plugins().iter().map(|_| None).collect();
        // Bit i: the plugin at that position does not filter.
        let mut silent: u64 = 0;
        for (i, weighted) in profile.called(ExtensionPoint::PreFilter) {
            match weighted.plugin.as_pre_filter().map(|p| p.pre_filter(shape, cluster)) {
                Some(PreFilterResult::Skip) => silent |= 1 << i,
                Some(PreFilterResult::Reject(mut status)) => {
                    let says_no = [Code::Unschedulable, Code::UnschedulableAndUnresolvable];
                    if !says_no.contains(&status.code) {
                        status = Status::error(running("PreFilter", profile, i, &status));
                    }
                    let stop = status.code != Code::Unschedulable;
                    // U lets the others run on, so that preemption has their state.
                    self.rejected = Some((Some(i), status));
                    if stop {
                        return;
                    }
                    silent |= 1 << i;
                }
                Some(PreFilterResult::Go { state: own, nodes }) => {
                    states[i] = own;
                    if nodes.is_some_and(|own| !self.narrow(profile, &mut names, i, own)) {
                        return;
                    }
                }
                None => {}
            }
        }
        for (i, weighted) in profile.called(ExtensionPoint::Filter) {
            if let Some(filter) = weighted.plugin.as_filter().filter(|_| silent >> i & 1 == 0) {
                let (state, by_class) = (states[i].take(), filter.by_class().is_some());
                self.filters.push(Active { plugin: i, state, by_class });
            }
        }
        if let Some(allowed) = names {
            let mut nodes = NodeSet::default();
            allowed.iter().filter_map(|n| cluster.node_by_name(n)).for_each(|n| nodes.insert(n));
            self.allowed = Some(nodes);
            let mut names: Vec<_> =
                self.narrowing.iter().map(|&i| profile.plugins()[i].plugin.name()).collect();
            names.sort_unstable();
            let reason = format!("node(s) didn't satisfy plugin(s) [{}]", names.join(" "));
            self.outside = Some(Status::unresolvable(reason));
        }
    }

    /// Intersects with the names a plugin allows; false if none is left.
    fn narrow(
        &mut self,
        profile: &Profile,
        names: &mut Option<Vec<Box<str>>>,
        plugin: usize,
        own: Vec<Box<str>>,
    ) -> bool {
        self.narrowing.push(plugin);
        let left = match names.take() {
            None => own,
            Some(mut names) => {
                names.retain(|name| own.contains(name));
                names
            }
        };
        let some_left = !left.is_empty();
        if !some_left {
            let mut names: Vec<_> =
                self.narrowing.iter().map(|&i| profile.plugins()[i].plugin.name()).collect();
            names.sort_unstable();
            let reason = match names.as_slice() {
                [one] => format!("node(s) didn't satisfy plugin {one}"),
                many => {
                    format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", many.join(" "))
                }
            };
            self.rejected = Some((None, Status::unresolvable(reason)));
        }
        *names = Some(left);
        some_left
    }

    fn pre_score(&mut self, profile: &Profile, shape: &PodShape, cluster: &Cluster) {
        for (i, weighted) in profile.called(ExtensionPoint::Score) {
            let Some(score) = weighted.plugin.as_score() else {
                continue;
            };
            let own = shape.scoring.as_ref().and_then(|s| s.weight(weighted.plugin.name()));
            let weight = own.unwrap_or(weighted.weight);
            if weight == 0 {
                continue; // a policy says that it does not count
            }
            match score.pre_score(shape, cluster) {
                PreScoreResult::Skip => {}
                PreScoreResult::Go(state) => self.ratings.push(Rating {
                    plugin: i,
                    weight,
                    normalize: score.normalize(),
                    state,
                    by_class: score.by_class().is_some(),
                }),
                PreScoreResult::Fail(status) => {
                    self.score_error = Some((i, status));
                    self.ratings.clear();
                    return;
                }
            }
        }
    }

    /// Judges one node: the first plugin that rejects it.
    pub(crate) fn judge(
        &self,
        profile: &Profile,
        shape: &PodShape,
        node: NodeView<'_>,
    ) -> Result<(), (usize, Status)> {
        for active in &self.filters {
            let Some(filter) = profile.plugins()[active.plugin].plugin.as_filter() else {
                continue;
            };
            if let Err(status) = filter.filter(&active.state, shape, node) {
                return Err((active.plugin, worded(profile, active.plugin, status)));
            }
        }
        Ok(())
    }

    /// As `judge`, by the filters that look at shape and node only.
    pub(crate) fn judge_alone(
        &self,
        profile: &Profile,
        shape: &PodShape,
        node: NodeView<'_>,
    ) -> Result<(), (usize, Status)> {
        for active in self.filters.iter().filter(|a| !a.by_class) {
            let Some(filter) = profile.plugins()[active.plugin].plugin.as_filter() else {
                continue;
            };
            filter.filter(&active.state, shape, node).map_err(|status| (active.plugin, status))?;
        }
        Ok(())
    }

    /// Narrows `set` plugin by plugin, leaving out those that judge classes; `lost`
    /// is told which nodes each one took.
    pub(crate) fn narrow_all(
        &self,
        profile: &Profile,
        shape: &PodShape,
        cluster: &Cluster,
        set: &mut NodeSet,
        mut lost: impl FnMut(usize, &NodeSet),
    ) {
        for active in self.filters.iter().filter(|a| !a.by_class) {
            let Some(filter) = profile.plugins()[active.plugin].plugin.as_filter() else {
                continue;
            };
            let mut before = set.clone();
            filter.narrow(&active.state, shape, cluster, set);
            before.subtract(set);
            if !before.is_empty() {
                lost(active.plugin, &before);
            }
        }
    }

    /// What one plugin says of one node.
    pub(crate) fn verdict_of(
        &self,
        profile: &Profile,
        shape: &PodShape,
        plugin: usize,
        node: NodeView<'_>,
    ) -> Option<Status> {
        let active = self.filters.iter().find(|a| a.plugin == plugin)?;
        let filter = profile.plugins()[plugin].plugin.as_filter()?;
        let status = filter.filter(&active.state, shape, node).err()?;
        Some(worded(profile, plugin, status))
    }

    /// Rates one node.
    pub(crate) fn rate(&self, profile: &Profile, shape: &PodShape, node: NodeView<'_>) -> Raw {
        let mut raw = Raw::default();
        for rating in self.ratings.iter().filter(|r| !r.by_class) {
            let Some(score) = profile.plugins()[rating.plugin].plugin.as_score() else {
                continue;
            };
            let value = score.score(&rating.state, shape, node);
            match rating.normalize {
                Normalize::AsIs => {
                    raw.fixed = raw.fixed.saturating_add(value.saturating_mul(rating.weight));
                }
                _ => raw.open.push(value),
            }
        }
        raw
    }

    /// Every plugin's own score of one node: position, weight, normaliser, raw.
    /// Plugins that rate classes go by the surveys of the feasible nodes.
    pub(crate) fn scores<'a>(
        &'a self,
        profile: &'a Profile,
        shape: &'a PodShape,
        node: NodeView<'a>,
        surveys: &'a [Survey],
    ) -> impl Iterator<Item = (usize, i64, Normalize, i64)> + 'a {
        self.ratings.iter().zip(surveys).filter_map(move |(r, survey)| {
            let score = profile.plugins()[r.plugin].plugin.as_score()?;
            let raw = match score.by_class() {
                Some(by_class) if by_class.is_silent(&r.state) => return None,
                Some(by_class) => {
                    let mut key = ClassKey::new();
                    by_class.tell(&r.state, node, &mut key);
                    by_class.rate(&r.state, survey, &key)
                }
                None => score.score(&r.state, shape, node),
            };
            Some((r.plugin, r.weight, r.normalize, raw))
        })
    }

    /// What plugins say of the scores of a node, in words.
    pub(crate) fn notes<'a>(
        &'a self,
        profile: &'a Profile,
        shape: &'a PodShape,
        node: NodeView<'a>,
    ) -> impl Iterator<Item = (&'static str, String)> + 'a {
        self.ratings.iter().filter_map(move |rating| {
            let plugin = &profile.plugins()[rating.plugin].plugin;
            let note = plugin.as_score()?.note(&rating.state, shape, node)?;
            Some((plugin.name(), note))
        })
    }
}

/// A filter's verdict as upstream words it: an error names the plugin.
fn worded(profile: &Profile, plugin: usize, status: Status) -> Status {
    if status.code.is_rejected() {
        return status;
    }
    let name = profile.plugins()[plugin].plugin.name();
    Status::error(format!("running {name:?} filter plugin: {}", status.message()))
}

/// What a shape depends on beyond its nodes.
pub(crate) fn stamp(profile: &Profile, shape: &PodShape, cluster: &Cluster) -> u64 {
    let stamps = profile.plugins().iter().map(|p| p.plugin.stamp(shape, cluster));
    stamps.fold(cluster.data().generation(), |all, one| all.rotate_left(7) ^ one)
}

/// The reason when a cluster has no nodes.
pub(crate) fn no_nodes() -> Arc<str> {
    "no nodes available to schedule pods".into()
}
