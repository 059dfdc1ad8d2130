//! All sets of victims of a small domain, the cheapest of which is taken.
//!
//! Owns nothing but the enumeration: set by set, each larger one after the smaller ones that it
//! contains, as long as it is cheaper than the best so far and there could be room at all.

use std::ops::ControlFlow;

use super::ground::{Amounts, add, fits, subtract, times};
use super::search::Search;
use super::trade::{Trade, Unit};
use super::{Cost, Plan, Takes};

/// Pods of a domain that could go, up to which all sets of them are tried.
const MAX_MARKS: usize = 24;
/// Sets that are looked at.
const MAX_SETS: usize = 4_096;
/// Seats that are tried to see whether members that differ fit.
const MAX_SEATS: usize = 512;

struct Exact<'s, 't, 'g> {
    search: &'s mut Search<'t, 'g>,
    /// Who goes anyway.
    going: Vec<u32>,
    /// Who could go.
    marks: Vec<u32>,
    best: Option<(Cost, Vec<u32>)>,
    sets: usize,
}

/// The cheapest plan for a domain; none if it is not small, or none was found. Nothing stays
/// taken.
pub(super) fn cheapest<'g>(
    trade: &mut Trade<'g>,
    spots: &'g [u32],
    domain: usize,
    below: Option<Cost>,
) -> Option<Plan> {
    let ground = trade.ground;
    let on = spots.iter().flat_map(|at| &ground.spots[*at as usize].marks);
    let (going, mut marks): (Vec<u32>, Vec<u32>) =
        on.partition(|mark| ground.marks[**mark as usize].going);
    marks.retain(|mark| trade.unit_of(*mark).is_some());
    if marks.len() > MAX_MARKS {
        return None;
    }
    // Cheap ones first: the first set that suffices is a good one.
    marks.sort_by_key(|mark| (ground.marks[*mark as usize].work, *mark));
    going.iter().for_each(|mark| trade.take(Unit::One(*mark)));
    let mut search = Search::plain(trade, spots);
    let mut exact = Exact { search: &mut search, going, marks, best: None, sets: 0 };
    exact.best = below.map(|cost| (cost, Vec::new()));
    let _ = exact.descend(0);
    let found = exact.best.filter(|(_, marks)| !marks.is_empty());
    trade.reset();
    found.map(|(cost, marks)| Plan { marks, cost, domain })
}

impl Exact<'_, '_, '_> {
    /// Adds one more, in all ways, to what has been taken.
    fn descend(&mut self, from: usize) -> ControlFlow<()> {
        self.sets += 1;
        if self.sets > MAX_SETS {
            return ControlFlow::Break(());
        }
        let cost = self.search.trade.cost();
        if self.best.as_ref().is_some_and(|(best, _)| *best <= cost) || !self.could(from) {
            return ControlFlow::Continue(());
        }
        if self.has_room() {
            self.best = Some((cost, self.victims()));
            return ControlFlow::Continue(());
        }
        for next in from..self.marks.len() {
            let Some(taken) = self.take(self.marks[next]) else { continue };
            let flow = self.descend(next + 1);
            self.give_back(&taken);
            flow?;
        }
        ControlFlow::Continue(())
    }

    /// Who has been taken, without those that go anyway and need not be waited for.
    fn victims(&mut self) -> Vec<u32> {
        let mut spared = Vec::new();
        for i in 0..self.going.len() {
            self.search.trade.move_one(self.going[i], false);
            if self.has_room() {
                spared.push(self.going[i]);
            } else {
                self.search.trade.move_one(self.going[i], true);
            }
        }
        let victims = self.search.trade.victims();
        spared.iter().for_each(|mark| self.search.trade.move_one(*mark, true));
        victims
    }

    /// Takes a pod and who goes with it; none if that cannot be.
    fn take(&mut self, mark: u32) -> Option<(Vec<u32>, Option<u32>)> {
        let trade = &mut *self.search.trade;
        if trade.is_taken(mark) {
            return None;
        }
        let unit = trade.unit_of(mark)?;
        trade.price(unit)?;
        let (taken, bond) = match unit {
            Unit::One(mark) => (vec![mark], None),
            Unit::Whole(bond) => {
                let all = trade.ground.bonds[bond as usize].marks.iter().copied();
                (all.filter(|mark| !trade.is_taken(*mark)).collect(), Some(bond))
            }
        };
        trade.take(unit);
        Some((taken, bond))
    }

    fn give_back(&mut self, (taken, bond): &(Vec<u32>, Option<u32>)) {
        let trade = &mut *self.search.trade;
        taken.iter().for_each(|mark| trade.move_one(*mark, false));
        bond.iter().for_each(|bond| trade.set_whole(*bond, false));
    }

    /// Whether there would be room for each kind of member if all the others went too.
    fn could(&self, from: usize) -> bool {
        let trade = &*self.search.trade;
        let ground = trade.ground;
        ground.asks.iter().enumerate().all(|(ask, want)| {
            let mut room = 0_u64;
            for &at in self.search.spots() {
                let spot = &ground.spots[at as usize];
                if spot.takes[ask] == Takes::Never {
                    continue;
                }
                let mut free = trade.free[at as usize].clone();
                let later = |mark: &&u32| !trade.is_taken(**mark) && self.may_come(from, **mark);
                for mark in spot.marks.iter().filter(later) {
                    add(&mut free, &ground.marks[*mark as usize].frees);
                }
                room += u64::from(times(&free, &want.amounts).min(want.most));
            }
            room >= u64::from(want.need)
        })
    }

    /// Whether a pod may still be taken: by itself, or with its gang.
    fn may_come(&self, from: usize, mark: u32) -> bool {
        let ground = self.search.trade.ground;
        let bond = ground.marks[mark as usize].bond;
        let with = |other: &u32| {
            *other == mark || bond.is_some() && ground.marks[*other as usize].bond == bond
        };
        self.marks[from.min(self.marks.len())..].iter().any(with)
    }

    /// Whether all members have room now.
    fn has_room(&self) -> bool {
        let trade = &*self.search.trade;
        let asks = &trade.ground.asks;
        if let [ask] = asks.as_slice() {
            let room: u64 =
                self.search.spots().iter().map(|at| u64::from(self.search.capacity(*at))).sum();
            return room >= u64::from(ask.need);
        }
        let mut left: Vec<u32> = asks.iter().map(|ask| ask.need).collect();
        let spots = self.search.spots();
        let mut free: Vec<Amounts> =
            spots.iter().map(|at| trade.free[*at as usize].clone()).collect();
        let mut on = vec![vec![0; spots.len()]; asks.len()];
        let mut seats = 0;
        self.seat(&mut left, &mut free, &mut on, &mut seats)
    }

    /// Seats members that differ one by one, in all ways, within so many tries.
    fn seat(
        &self,
        left: &mut [u32],
        free: &mut [Amounts],
        on: &mut [Vec<u32>],
        seats: &mut usize,
    ) -> bool {
        let trade = &*self.search.trade;
        let ground = trade.ground;
        let Some(ask) = left.iter().position(|left| *left > 0) else {
            return true;
        };
        let want = &ground.asks[ask];
        for (i, &at) in self.search.spots().iter().enumerate() {
            let takes = ground.spots[at as usize].takes[ask];
            let closed =
                takes == Takes::Never || takes == Takes::Cleared && !self.search.is_clear(at);
            if closed || on[ask][i] >= want.most || !fits(&free[i], &want.amounts) {
                continue;
            }
            *seats += 1;
            if *seats > MAX_SEATS {
                return false;
            }
            subtract(&mut free[i], &want.amounts);
            (left[ask], on[ask][i]) = (left[ask] - 1, on[ask][i] + 1);
            let found = self.seat(left, free, on, seats);
            (left[ask], on[ask][i]) = (left[ask] + 1, on[ask][i] - 1);
            add(&mut free[i], &want.amounts);
            if found {
                return true;
            }
        }
        false
    }
}
