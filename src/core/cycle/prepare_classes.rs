//! The part of a prepared shape that judges and rates classes of nodes.

use std::ops::Range;

use super::prepare::{Prepared, Rating};
use crate::cluster::{Cluster, NodeId, NodeView};
use crate::framework::{ClassFilter, ClassKey, ClassScore, Normalize, Profile, Status, Survey};
use crate::model::PodShape;

/// What a class is told apart by, in order: the verdict of a filter that comes
/// after one that judges classes, raw scores, numbers of filters and of scores.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    filters: Vec<Range<usize>>,
    ratings: Vec<Range<usize>>,
}

fn class_filter(profile: &Profile, plugin: usize) -> Option<&dyn ClassFilter> {
    profile.plugins()[plugin].plugin.as_filter()?.by_class()
}

fn class_score(profile: &Profile, plugin: usize) -> Option<&dyn ClassScore> {
    profile.plugins()[plugin].plugin.as_score()?.by_class()
}

impl Prepared {
    /// The position of the first filter that judges classes.
    pub(crate) fn first_class_filter(&self) -> usize {
        self.filters.iter().find(|a| a.by_class).map_or(usize::MAX, |a| a.plugin)
    }

    /// How many plugins judge or rate classes.
    pub(crate) fn class_plugins(&self) -> usize {
        self.filters.iter().filter(|a| a.by_class).count()
            + self.ratings.iter().filter(|r| r.by_class).count()
    }

    /// How many scores are normalised that look at shape and node only.
    pub(crate) fn open_scores(&self) -> usize {
        let open = |r: &&Rating| !r.by_class && !matches!(r.normalize, Normalize::AsIs);
        self.ratings.iter().filter(open).count()
    }

    /// Appends the numbers of a node, and learns where each plugin's are.
    pub(crate) fn tell(
        &self,
        profile: &Profile,
        node: NodeView<'_>,
        key: &mut ClassKey,
        layout: &mut Layout,
    ) {
        let learn = layout.filters.is_empty() && layout.ratings.is_empty();
        for active in self.filters.iter().filter(|a| a.by_class) {
            let from = key.len();
            if let Some(filter) = class_filter(profile, active.plugin) {
                filter.tell(&active.state, node, key);
            }
            if learn {
                layout.filters.push(from..key.len());
            }
        }
        for rating in self.ratings.iter().filter(|r| r.by_class) {
            let from = key.len();
            if let Some(score) = class_score(profile, rating.plugin) {
                score.tell(&rating.state, node, key);
            }
            if learn {
                layout.ratings.push(from..key.len());
            }
        }
    }

    /// The first class filter that rejects nodes with these numbers: its position
    /// and the reason.
    pub(crate) fn judge_class(
        &self,
        profile: &Profile,
        key: &[i64],
        layout: &Layout,
    ) -> Result<(), (usize, u8)> {
        let filters = self.filters.iter().filter(|a| a.by_class);
        for (active, range) in filters.zip(&layout.filters) {
            let Some(filter) = class_filter(profile, active.plugin) else {
                continue;
            };
            filter
                .judge(&active.state, &key[range.clone()])
                .map_err(|reason| (active.plugin, reason))?;
        }
        Ok(())
    }

    /// The words of a class filter's reason.
    pub(crate) fn class_status(profile: &Profile, plugin: usize, reason: u8) -> Option<Status> {
        Some(class_filter(profile, plugin)?.status(reason))
    }

    /// Raw scores of classes, one column per plugin that normalises: weight,
    /// normaliser, raws in the order of `classes`.
    pub(crate) fn raw_columns<'k>(
        &self,
        profile: &Profile,
        layout: &Layout,
        classes: &[(&'k [i64], u32)],
    ) -> Vec<(i64, Normalize, Vec<i64>)> {
        let mut columns = Vec::with_capacity(self.ratings.len());
        let (mut dimension, mut by_class) = (1, layout.ratings.iter());
        for rating in &self.ratings {
            let raws: Vec<i64> = if rating.by_class {
                let (Some(score), Some(range)) =
                    (class_score(profile, rating.plugin), by_class.next())
                else {
                    continue;
                };
                let own = |key: &&'k [i64]| &key[range.clone()];
                let mut all = classes.iter().map(|(key, nodes)| (own(key), *nodes));
                let survey = score.survey(&rating.state, &mut all);
                classes
                    .iter()
                    .map(|(key, _)| score.rate(&rating.state, &survey, own(key)))
                    .collect()
            } else if matches!(rating.normalize, Normalize::AsIs) {
                continue;
            } else {
                dimension += 1;
                classes.iter().map(|(key, _)| key[dimension - 1]).collect()
            };
            columns.push((rating.weight, rating.normalize, raws));
        }
        columns
    }

    /// What each class score derives from the feasible nodes, by rating.
    pub(crate) fn surveys(
        &self,
        profile: &Profile,
        cluster: &Cluster,
        feasible: &[NodeId],
    ) -> Vec<Survey> {
        let survey = |plugin: usize, state| {
            let score = class_score(profile, plugin)?;
            let keys: Vec<ClassKey> = feasible
                .iter()
                .map(|&node| {
                    let mut key = ClassKey::new();
                    score.tell(state, cluster.view(node), &mut key);
                    key
                })
                .collect();
            Some(score.survey(state, &mut keys.iter().map(|k| (k.as_slice(), 1))))
        };
        self.ratings.iter().map(|r| survey(r.plugin, &r.state).unwrap_or_default()).collect()
    }

    /// Lets the class plugins follow a change of one node; `also` gets the nodes that
    /// change with it. False if the shape must be prepared anew.
    pub(crate) fn follow(
        &mut self,
        profile: &Profile,
        shape: &PodShape,
        cluster: &Cluster,
        node: NodeId,
        also: &mut Vec<NodeId>,
    ) -> bool {
        for active in self.filters.iter_mut().filter(|a| a.by_class) {
            let filter = class_filter(profile, active.plugin);
            if !filter.is_none_or(|f| f.follow(&mut active.state, shape, cluster, node, also)) {
                return false;
            }
        }
        for rating in self.ratings.iter_mut().filter(|r| r.by_class) {
            let score = class_score(profile, rating.plugin);
            if !score.is_none_or(|s| s.follow(&mut rating.state, shape, cluster, node, also)) {
                return false;
            }
        }
        true
    }
}
