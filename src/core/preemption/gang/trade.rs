//! Who has been taken, what that costs and frees, and giving it back.

use smallvec::SmallVec;

use super::ground::{Amounts, Ground, add, subtract};
use super::{Cost, Mark};

/// What goes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// One pod.
    One(u32),
    /// All that is left of a gang.
    Whole(u32),
}

/// What taking something costs, before all is known; the smaller the better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Price {
    pub(super) violations: u32,
    pub(super) work: u64,
    pub(super) gangs: u32,
    pub(super) pods: u32,
}

impl Price {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            violations: self.violations + other.violations,
            work: self.work.saturating_add(other.work),
            gangs: self.gangs + other.gangs,
            pods: self.pods + other.pods,
        }
    }
}

/// What is left of a gang, and what it has lost.
#[derive(Clone, Debug, Default)]
struct Lot {
    spare: i64,
    spare_roles: SmallVec<[i64; 2]>,
    lost: u32,
    whole: bool,
    /// Of those that have not been taken.
    work: u64,
    pods: u32,
    budgets: SmallVec<[(u32, i64); 1]>,
}

/// The state of a search.
pub(super) struct Trade<'g> {
    pub(super) ground: &'g Ground,
    /// Pods of higher priority stay.
    pub(super) tier: i32,
    /// Whether budgets may be broken.
    pub(super) force: bool,
    taken: Vec<bool>,
    /// By spot, without members that have a seat.
    pub(super) free: Vec<Amounts>,
    left: Vec<i64>,
    lots: Vec<Lot>,
    /// By gang: whether all of it may go at this tier.
    takeable: Vec<bool>,
    /// Who has been taken at some time, in that order.
    log: Vec<u32>,
}

impl<'g> Trade<'g> {
    pub(super) fn new(ground: &'g Ground, tier: i32, force: bool) -> Self {
        let lot = |bond: &super::Bond| {
            let mut lot =
                Lot { spare: bond.spare, spare_roles: bond.spare_roles.clone(), ..Lot::default() };
            bond.marks.iter().for_each(|m| lot.count(&ground.marks[*m as usize], 1));
            lot
        };
        let takeable = |bond: &super::Bond| bond.whole && ground.bond_priority(bond) <= tier;
        Self {
            ground,
            tier,
            force,
            taken: vec![false; ground.marks.len()],
            free: ground.spots.iter().map(|spot| spot.free.clone()).collect(),
            left: ground.budgets.clone(),
            lots: ground.bonds.iter().map(lot).collect(),
            takeable: ground.bonds.iter().map(takeable).collect(),
            log: Vec::new(),
        }
    }

    fn mark(&self, mark: u32) -> &'g Mark {
        &self.ground.marks[mark as usize]
    }

    pub(super) fn is_taken(&self, mark: u32) -> bool {
        self.taken[mark as usize]
    }

    /// Whether a gang can lose one more without being taken whole.
    fn has_spare(&self, bond: u32, role: Option<usize>) -> bool {
        let lot = &self.lots[bond as usize];
        let of_role = role.and_then(|role| lot.spare_roles.get(role)).is_none_or(|left| *left > 0);
        lot.spare > 0 && of_role
    }

    /// With what a pod goes; none if it has to stay.
    pub(super) fn unit_of(&self, mark: u32) -> Option<Unit> {
        let own = self.mark(mark);
        if own.going {
            return Some(Unit::One(mark));
        }
        if own.priority > self.tier {
            return None;
        }
        match own.bond {
            None => Some(Unit::One(mark)),
            Some(bond) if self.has_spare(bond, own.role) => Some(Unit::One(mark)),
            Some(bond) => self.takeable[bond as usize].then_some(Unit::Whole(bond)),
        }
    }

    /// What taking a unit costs now; none if it may not go, or a budget forbids it.
    pub(super) fn price(&self, unit: Unit) -> Option<Price> {
        let over = |budget: u32, count: i64| {
            let left = self.left[budget as usize].max(0);
            u32::try_from((count - left).max(0)).unwrap_or(u32::MAX)
        };
        let price = match unit {
            Unit::One(mark) => {
                let own = self.mark(mark);
                if own.going {
                    return Some(Price::default());
                }
                let touched = own.bond.is_some_and(|b| self.lots[b as usize].lost == 0);
                Price {
                    violations: own.budget.map_or(0, |budget| over(budget, 1)),
                    work: own.work,
                    gangs: u32::from(touched),
                    pods: 1,
                }
            }
            Unit::Whole(bond) => {
                if !self.takeable[bond as usize] {
                    return None;
                }
                let lot = &self.lots[bond as usize];
                Price {
                    violations: lot.budgets.iter().map(|(b, count)| over(*b, *count)).sum(),
                    work: lot.work,
                    gangs: u32::from(lot.lost == 0),
                    pods: lot.pods,
                }
            }
        };
        (self.force || price.violations == 0).then_some(price)
    }

    pub(super) fn take(&mut self, unit: Unit) {
        match unit {
            Unit::One(mark) => self.move_one(mark, true),
            Unit::Whole(bond) => {
                self.lots[bond as usize].whole = true;
                for &mark in &self.ground.bonds[bond as usize].marks {
                    if !self.is_taken(mark) {
                        self.move_one(mark, true);
                    }
                }
            }
        }
    }

    /// One pod goes, or comes back.
    pub(super) fn move_one(&mut self, mark: u32, goes: bool) {
        debug_assert_ne!(self.taken[mark as usize], goes);
        self.taken[mark as usize] = goes;
        if goes {
            self.log.push(mark);
        }
        let own = self.mark(mark);
        if let Some(spot) = own.spot {
            let free = &mut self.free[spot as usize];
            if goes { add(free, &own.frees) } else { subtract(free, &own.frees) }
        }
        if own.going {
            return;
        }
        let sign = if goes { -1 } else { 1 };
        if let Some(budget) = own.budget {
            self.left[budget as usize] += sign;
        }
        if let Some(bond) = own.bond {
            let lot = &mut self.lots[bond as usize];
            lot.spare += sign;
            if let Some(left) = own.role.and_then(|role| lot.spare_roles.get_mut(role)) {
                *left += sign;
            }
            lot.lost = if goes { lot.lost + 1 } else { lot.lost - 1 };
            lot.count(own, sign);
        }
    }

    /// Whether a gang has what it needs, or nothing.
    pub(super) fn is_sound(&self, bond: u32) -> bool {
        let lot = &self.lots[bond as usize];
        lot.lost == 0 || lot.pods == 0 || lot.spare >= 0 && lot.spare_roles.iter().all(|r| *r >= 0)
    }

    pub(super) fn set_whole(&mut self, bond: u32, whole: bool) {
        self.lots[bond as usize].whole = whole;
    }

    pub(super) fn is_whole(&self, bond: u32) -> bool {
        self.lots[bond as usize].whole
    }

    /// Who has been taken, in order of numbers.
    pub(super) fn victims(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.log.iter().copied().filter(|m| self.is_taken(*m)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Takes all that may go from some spots, those with the least work first where budgets
    /// do not allow all.
    pub(super) fn empty(&mut self, spots: &[u32]) {
        let marks = spots.iter().flat_map(|at| &self.ground.spots[*at as usize].marks);
        let mut marks: Vec<u32> = marks.copied().collect();
        marks.sort_by_key(|mark| (self.mark(*mark).work, *mark));
        for mark in marks {
            if let Some(unit) = self.unit_of(mark).filter(|_| !self.is_taken(mark))
                && self.price(unit).is_some()
            {
                self.take(unit);
            }
        }
    }

    /// Gives everything back.
    pub(super) fn reset(&mut self) {
        for mark in self.victims() {
            self.move_one(mark, false);
            if let Some(bond) = self.mark(mark).bond {
                self.lots[bond as usize].whole = false;
            }
        }
        self.log.clear();
    }

    /// How many members a gang can lose without being taken whole.
    pub(super) fn spare(&self, bond: u32) -> i64 {
        self.lots[bond as usize].spare
    }

    /// What all that was taken costs.
    pub(super) fn cost(&self) -> Cost {
        let mut cost = Cost { priority: i32::MIN, ..Cost::default() };
        for mark in self.victims() {
            let own = self.mark(mark);
            if own.going {
                continue;
            }
            cost.priority = cost.priority.max(own.priority);
            cost.work = cost.work.saturating_add(own.work);
            cost.pods += 1;
        }
        let over = self.left.iter().map(|left| left.min(&0).abs());
        cost.violations = u32::try_from(over.sum::<i64>()).unwrap_or(u32::MAX);
        cost.gangs = self.lots.iter().map(|lot| u32::from(lot.lost > 0)).sum();
        cost
    }
}

impl Lot {
    /// One more is left, or one less.
    fn count(&mut self, mark: &Mark, sign: i64) {
        if sign > 0 {
            (self.work, self.pods) = (self.work.saturating_add(mark.work), self.pods + 1);
        } else {
            (self.work, self.pods) = (self.work.saturating_sub(mark.work), self.pods - 1);
        }
        if let Some(budget) = mark.budget {
            match self.budgets.iter_mut().find(|(known, _)| *known == budget) {
                Some((_, count)) => *count += sign,
                None => self.budgets.push((budget, sign)),
            }
        }
    }
}
