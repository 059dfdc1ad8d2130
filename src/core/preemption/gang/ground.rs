//! What the search looks at.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::model::PodId;

/// Amounts of the resources that members ask for; the last is the number of pods.
pub(crate) type Amounts = SmallVec<[i64; 4]>;

/// Members alike, for which room is sought.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) amounts: Amounts,
    /// How many of them.
    pub(crate) need: u32,
    /// How many may be on one node.
    pub(crate) most: u32,
}

/// Whether a node takes members of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Whoever leaves it.
    Never,
    /// As far as there is room.
    Plain,
    /// It is not known who of its pods stands in the way: once all that may go are gone.
    Cleared,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    /// What is left of it.
    pub(crate) free: Amounts,
    /// By ask.
    pub(crate) takes: SmallVec<[Takes; 2]>,
    /// Marks on it, those with the least work first.
    pub(crate) marks: Vec<u32>,
    /// The domain it is in.
    pub(crate) domain: u32,
}

/// A pod that could go.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) pod: PodId,
    /// Where it is, of the nodes that are looked at.
    pub(crate) spot: Option<u32>,
    pub(crate) frees: Amounts,
    pub(crate) priority: i32,
    /// Seconds of work that would be lost.
    pub(crate) work: u64,
    pub(crate) bond: Option<u32>,
    pub(crate) role: Option<usize>,
    pub(crate) budget: Option<u32>,
    /// It goes anyway: nothing is lost, no gang and no budget asks for it.
    pub(crate) going: bool,
}

/// A gang of which members could go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bond {
    /// All members that would have to go with the minimum.
    pub(crate) marks: Vec<u32>,
    /// How many more it has than it needs.
    pub(crate) spare: i64,
    /// The same of each role.
    pub(crate) spare_roles: SmallVec<[i64; 2]>,
    /// Whether it may be taken whole.
    pub(crate) whole: bool,
}

/// All that the search looks at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ground {
    pub(crate) asks: Vec<Ask>,
    pub(crate) spots: Vec<Spot>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) bonds: Vec<Bond>,
    /// Evictions that each budget still allows; none below zero.
    pub(crate) budgets: Vec<i64>,
    /// Spots of each domain, all of which members may use together.
    pub(crate) domains: Vec<Vec<u32>>,
}

/// Whether all of `amounts` is there.
pub(super) fn fits(free: &Amounts, amounts: &Amounts) -> bool {
    free.iter().zip(amounts).all(|(has, wants)| has >= wants)
}

/// How many times `amounts` is there.
pub(super) fn times(free: &Amounts, amounts: &Amounts) -> u32 {
    let wanted = free.iter().zip(amounts).filter(|(_, wants)| **wants > 0);
    let least = wanted.map(|(has, wants)| (*has).max(0) / wants).min().unwrap_or(0);
    u32::try_from(least).unwrap_or(u32::MAX)
}

pub(super) fn add(to: &mut Amounts, amounts: &Amounts) {
    to.iter_mut().zip(amounts).for_each(|(to, amount)| *to = to.saturating_add(*amount));
}

pub(super) fn subtract(from: &mut Amounts, amounts: &Amounts) {
    from.iter_mut().zip(amounts).for_each(|(from, amount)| *from = from.saturating_sub(*amount));
}

impl Ground {
    /// The priority with which a gang goes that is taken whole.
    pub(super) fn bond_priority(&self, bond: &Bond) -> i32 {
        bond.marks.iter().map(|m| self.marks[*m as usize].priority).max().unwrap_or(i32::MIN)
    }

    /// Marks of a plan as they come back, the most important first: one by one, those of a
    /// gang of which all has to go together.
    pub(crate) fn units(&self, marks: &[u32]) -> Vec<Vec<u32>> {
        let mut lost = vec![0; self.bonds.len()];
        let bond = |mark: &u32| self.marks[*mark as usize].bond.map(|bond| bond as usize);
        marks.iter().filter_map(bond).for_each(|bond| lost[bond] += 1);
        let is_whole = |bond: &usize| lost[*bond] == self.bonds[*bond].marks.len();
        let mut units: Vec<Vec<u32>> = Vec::new();
        let mut wholes: Vec<Option<usize>> = vec![None; self.bonds.len()];
        for &mark in marks {
            match bond(&mark).filter(is_whole) {
                None => units.push(vec![mark]),
                Some(bond) => match wholes[bond] {
                    Some(at) => units[at].push(mark),
                    None => {
                        wholes[bond] = Some(units.len());
                        units.push(vec![mark]);
                    }
                },
            }
        }
        units.sort_by_cached_key(|unit| Reverse(self.weight(unit)));
        units
    }

    /// How much some pods matter: those that go anyway least.
    pub(super) fn weight(&self, marks: &[u32]) -> (bool, i32, u64, usize) {
        let own = || marks.iter().map(|mark| &self.marks[*mark as usize]);
        let priority = own().map(|mark| mark.priority).max().unwrap_or(i32::MIN);
        (own().all(|mark| !mark.going), priority, own().map(|mark| mark.work).sum(), marks.len())
    }

    /// Whether the gang of a mark has what it needs without these, or nothing.
    pub(crate) fn is_sound(&self, gone: &BTreeSet<u32>, of: u32) -> bool {
        let Some(bond) = self.marks[of as usize].bond.map(|bond| &self.bonds[bond as usize]) else {
            return true;
        };
        let (mut spare, mut roles, mut left) = (bond.spare, bond.spare_roles.clone(), 0);
        for mark in &bond.marks {
            if !gone.contains(mark) {
                left += 1;
                continue;
            }
            spare -= 1;
            let role = self.marks[*mark as usize].role;
            if let Some(role) = role.and_then(|role| roles.get_mut(role)) {
                *role -= 1;
            }
        }
        left == 0 || spare >= 0 && roles.iter().all(|role| *role >= 0)
    }

    /// Priorities of those that could go, the lowest first; before them that of nobody:
    /// some go anyway.
    pub(super) fn tiers(&self) -> Vec<i32> {
        let own = self.marks.iter().filter(|m| !m.going).map(|m| m.priority);
        let mut tiers: Vec<i32> = std::iter::once(i32::MIN).chain(own).collect();
        tiers.sort_unstable();
        tiers.dedup();
        tiers
    }
}
