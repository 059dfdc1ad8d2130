//! How many fit into each domain, and which domains are worth a try in which order.

use super::pick::{Part, pick};
use super::tree::Tree;
use crate::cluster::NodeId;

/// What is known of one node, for the members that are to be seated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worth {
    /// At most so many fit now.
    pub(crate) fits: u32,
    /// As many as if nobody were there.
    pub(crate) whole: bool,
}

/// How many fit into each domain of a tree, at most.
pub(crate) struct Room<'a> {
    tree: &'a Tree,
    /// By level and domain.
    levels: Vec<Vec<Part>>,
}

/// What it costs to use a domain; less is better.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    /// Domains used of each narrower level, the next level first.
    pub(crate) used: Vec<u32>,
    /// Domains of whatever level that were whole and are not any more.
    pub(crate) broken: u32,
    /// How many more would fit.
    pub(crate) spare: u32,
}

impl<'a> Room<'a> {
    /// Counts. `worth`: of every node; `members`: nodes on which members are already.
    pub(crate) fn new(tree: &'a Tree, worth: impl Fn(NodeId) -> Worth, members: &[NodeId]) -> Self {
        let Some(narrowest) = tree.levels.len().checked_sub(1) else {
            return Self { tree, levels: Vec::new() };
        };
        let count = |nodes: &[NodeId], id: u32| {
            let mut part = Part { id, fits: 0, whole: true, begun: false };
            for worth in nodes.iter().map(|node| worth(*node)) {
                part.fits = part.fits.saturating_add(worth.fits);
                part.whole &= worth.whole;
            }
            part
        };
        let numbered = tree.levels[narrowest].domains.iter().zip(0..);
        let mut levels = vec![numbered.map(|(d, id)| count(&d.nodes, id)).collect::<Vec<_>>()];
        for level in tree.levels[..narrowest].iter().rev() {
            let below = &levels[levels.len() - 1];
            let sum = |(domain, id): (&super::tree::Domain, u32)| {
                let mut part = Part { id, fits: 0, whole: true, begun: false };
                let inside: usize =
                    domain.children.iter().map(|c| below_nodes(tree, &levels, *c)).sum();
                if inside < domain.nodes.len() {
                    // Nodes in no domain of the next level count too.
                    return count(&domain.nodes, id);
                }
                for child in domain.children.iter().map(|c| below[*c as usize]) {
                    part.fits = part.fits.saturating_add(child.fits);
                    part.whole &= child.whole;
                }
                part
            };
            let counted = level.domains.iter().zip(0..).map(sum).collect();
            levels.push(counted);
        }
        levels.reverse();
        for (level, parts) in levels.iter_mut().enumerate() {
            for domain in members.iter().filter_map(|node| tree.domain_of(level, *node)) {
                parts[domain as usize].begun = true;
            }
        }
        Self { tree, levels }
    }

    /// How many fit into a domain, at most.
    pub(crate) fn fits(&self, level: usize, domain: u32) -> u32 {
        self.levels[level][domain as usize].fits
    }

    /// Domains of a level into which `need` could fit, the best first. `within`: only
    /// inside this domain of a wider level, or of the same.
    pub(crate) fn candidates(
        &self,
        level: usize,
        need: u32,
        within: Option<(usize, u32)>,
    ) -> Vec<u32> {
        let inside = |domain: &u32| {
            within.is_none_or(|(wider, which)| self.tree.above(level, *domain, wider) == which)
        };
        let suffices = |part: &&Part| part.fits >= need;
        let ids = self.levels[level].iter().filter(suffices).map(|part| part.id);
        let mut found: Vec<(Cost, u32)> =
            ids.filter(inside).map(|id| (self.cost(level, id, need), id)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// Domains of a level and how many fit into each, those with the most room first.
    pub(crate) fn ranked(&self, level: usize) -> Vec<(u32, u32)> {
        let parts = self.levels.get(level).into_iter().flatten();
        let mut all: Vec<(u32, u32)> = parts.map(|part| (part.id, part.fits)).collect();
        all.sort_by_key(|(id, fits)| (std::cmp::Reverse(*fits), *id));
        all
    }

    /// The domain of a level with the most room; of equal ones the first.
    pub(crate) fn largest(&self, level: usize) -> Option<u32> {
        let parts = self.levels.get(level)?.iter();
        parts.max_by_key(|part| (part.fits, std::cmp::Reverse(part.id))).map(|part| part.id)
    }

    /// What it costs to put `need` members into a domain.
    pub(crate) fn cost(&self, level: usize, domain: u32, need: u32) -> Cost {
        let part = &self.levels[level][domain as usize];
        let wider = (0..level)
            .map(|wider| self.levels[wider][self.tree.above(level, domain, wider) as usize].whole);
        let mut broken = wider.map(u32::from).sum();
        let mut used = vec![0; self.levels.len() - level];
        self.descend(level, domain, need, &mut |at, part| {
            used[at - level] += 1;
            broken += u32::from(part.whole);
        });
        used.remove(0);
        Cost { used, broken, spare: part.fits.saturating_sub(need) }
    }

    /// The narrowest domains that `need` members in a domain would use, in order.
    pub(crate) fn parts(&self, level: usize, domain: u32, need: u32) -> Vec<(usize, u32)> {
        let narrowest = self.levels.len() - 1;
        let mut parts = Vec::new();
        self.descend(level, domain, need, &mut |at, part| {
            if at == narrowest {
                parts.push((at, part.id));
            }
        });
        parts
    }

    /// The same for the whole cluster.
    pub(crate) fn parts_of_all(&self, need: u32) -> Vec<(usize, u32)> {
        let (mut parts, mut left) = (Vec::new(), need);
        let Some(widest) = self.levels.first() else {
            return parts;
        };
        for part in pick(widest, need) {
            let here = left.min(part.fits);
            left -= here;
            parts.extend(self.parts(0, part.id, here));
        }
        parts
    }

    /// Walks down through the domains that are used.
    fn descend(&self, level: usize, domain: u32, need: u32, visit: &mut dyn FnMut(usize, Part)) {
        visit(level, self.levels[level][domain as usize]);
        let Some(below) = self.levels.get(level + 1) else {
            return;
        };
        let children = &self.tree.domain(level, domain).children;
        let parts: Vec<Part> = children.iter().map(|child| below[*child as usize]).collect();
        let mut left = need;
        for part in pick(&parts, need) {
            let here = left.min(part.fits);
            left -= here;
            self.descend(level + 1, part.id, here, visit);
        }
    }
}

/// How many nodes a domain has of the level that was counted last.
fn below_nodes(tree: &Tree, counted: &[Vec<Part>], domain: u32) -> usize {
    let level = tree.levels.len() - counted.len();
    tree.levels[level].domains[domain as usize].nodes.len()
}
