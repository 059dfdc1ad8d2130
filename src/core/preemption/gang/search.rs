//! The search: member by member where it costs least, then back with whoever is not needed.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use smallvec::{SmallVec, smallvec};

use super::Plan;
use super::exact::cheapest;
use super::ground::{Amounts, Ground, Takes, add, fits, subtract, times};
use super::trade::{Price, Trade, Unit};
use crate::hash::IdMap;

/// Most pods that are taken off their nodes to see whether a gang fits without them.
pub(crate) const MAX_LIFTED: usize = 8_192;
/// Priorities that are tried, from the lowest at which there could be room.
const MAX_TIERS: usize = 16;
/// Pods of a domain up to which it is tried without all of them, too.
const MAX_EMPTIED: usize = 512;
/// Plans that are handed out, one per domain.
const MAX_PLANS: usize = 8;

/// What a gang that is taken whole costs the member that needs a part of its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// All of it.
    Full,
    /// Its share.
    Shared,
    /// Nothing: all that may go is gone at first, and comes back, the most important first.
    Emptied,
}

/// What it takes to seat one more member on a spot.
type Offer = (Price, SmallVec<[Unit; 4]>);

/// Members seated on a spot.
#[derive(Clone, Debug)]
struct Seats {
    used: Amounts,
    /// By ask.
    count: SmallVec<[u32; 2]>,
}

pub(super) struct Search<'t, 'g> {
    pub(super) trade: &'t mut Trade<'g>,
    spots: &'g [u32],
    style: Style,
    /// Whether the last ask goes first.
    backwards: bool,
    seats: IdMap<u32, Seats>,
}

impl Ground {
    /// Plans, the best first: at most one per domain, all of the lowest priority at which
    /// there is any. `force`: budgets may be broken if there is none that keeps them.
    pub(crate) fn plans(&self, force: bool) -> Vec<Plan> {
        let mut found = self.plans_by(false);
        if found.is_empty() && force {
            found = self.plans_by(true);
        }
        found
    }

    fn plans_by(&self, force: bool) -> Vec<Plan> {
        let tiers = self.tiers();
        let first = tiers.partition_point(|tier| {
            let trade = Trade::new(self, *tier, force);
            !self.domains.iter().any(|spots| could(&trade, spots))
        });
        let mut found: Vec<Plan> = Vec::new();
        for &tier in tiers[first..].iter().take(MAX_TIERS) {
            let mut trade = Trade::new(self, tier, force);
            for (domain, spots) in self.domains.iter().enumerate() {
                if !could(&trade, spots) {
                    continue;
                }
                let pods: usize = spots.iter().map(|at| self.spots[*at as usize].marks.len()).sum();
                let emptied = (pods <= MAX_EMPTIED).then_some(Style::Emptied);
                let styles = [Style::Full, Style::Shared].into_iter().chain(emptied);
                // Of members that differ, either may be the harder to seat.
                let orders = if self.asks.len() > 1 { &[false, true][..] } else { &[false] };
                let ways = styles.flat_map(|style| orders.iter().map(move |back| (style, *back)));
                let plans = ways.filter_map(|way| {
                    let plan = Search::new(&mut trade, spots, way).run(domain);
                    trade.reset();
                    plan
                });
                let plan = plans.min_by_key(|plan| plan.cost);
                let exact = cheapest(&mut trade, spots, domain, plan.as_ref().map(|p| p.cost));
                found.extend(exact.or(plan));
            }
            // Of plans that break budgets a more important victim may be the lesser evil.
            let last = !force || found.iter().any(|plan| plan.cost.violations == 0);
            if !found.is_empty() && last {
                break;
            }
        }
        found.sort_by_key(|plan| (plan.cost, plan.domain));
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        found.retain(|plan| seen.insert(plan.domain));
        found.truncate(MAX_PLANS);
        found
    }

    /// All that may go from a domain, those with the least work first where budgets do not
    /// allow all; none if that is too much to try.
    pub(crate) fn everything(&self, domain: usize, force: bool) -> Option<Plan> {
        let tier = self.tiers().last().copied()?;
        let mut trade = Trade::new(self, tier, force);
        trade.empty(&self.domains[domain]);
        let marks = trade.victims();
        let some = !marks.is_empty() && marks.len() <= MAX_LIFTED;
        some.then(|| Plan { cost: trade.cost(), marks, domain })
    }
}

/// Whether there would be room if all that may go went: rather too often than too seldom.
fn could(trade: &Trade<'_>, spots: &[u32]) -> bool {
    let ground = trade.ground;
    let mut room: SmallVec<[u64; 2]> = smallvec![0; ground.asks.len()];
    for &at in spots {
        let spot = &ground.spots[at as usize];
        let mut free = trade.free[at as usize].clone();
        for &mark in &spot.marks {
            if trade.unit_of(mark).is_some() {
                add(&mut free, &ground.marks[mark as usize].frees);
            }
        }
        for ((ask, takes), room) in ground.asks.iter().zip(&spot.takes).zip(&mut room) {
            if *takes != Takes::Never {
                *room += u64::from(times(&free, &ask.amounts).min(ask.most));
            }
        }
    }
    ground.asks.iter().zip(&room).all(|(ask, room)| *room >= u64::from(ask.need))
}

impl<'t, 'g> Search<'t, 'g> {
    fn new(trade: &'t mut Trade<'g>, spots: &'g [u32], (style, backwards): (Style, bool)) -> Self {
        Self { trade, spots, style, backwards, seats: IdMap::default() }
    }

    /// One that has nobody seated.
    pub(super) fn plain(trade: &'t mut Trade<'g>, spots: &'g [u32]) -> Self {
        Self::new(trade, spots, (Style::Full, false))
    }

    pub(super) fn spots(&self) -> &'g [u32] {
        self.spots
    }

    fn run(mut self, domain: usize) -> Option<Plan> {
        if self.style == Style::Emptied {
            self.trade.empty(self.spots);
        }
        let asks = self.trade.ground.asks.len();
        for number in 0..asks {
            let ask = if self.backwards { asks - 1 - number } else { number };
            if !self.seat_all(ask) {
                return None;
            }
        }
        self.give_back();
        let (marks, cost) = (self.trade.victims(), self.trade.cost());
        (marks.len() <= MAX_LIFTED).then_some(Plan { marks, cost, domain })
    }

    /// Seats all members of an ask, each where it costs least.
    fn seat_all(&mut self, ask: usize) -> bool {
        let mut heap: BinaryHeap<Reverse<(Price, u32)>> = BinaryHeap::new();
        let spots = self.spots;
        heap.extend(spots.iter().filter_map(|at| Some(Reverse((self.offer(*at, ask)?.0, *at)))));
        let mut left = self.trade.ground.asks[ask].need;
        while left > 0 {
            let Some(Reverse((price, at))) = heap.pop() else {
                return false;
            };
            // What others have taken meanwhile may have made it dearer.
            let Some((now, units)) = self.offer(at, ask) else {
                continue;
            };
            if now > price {
                heap.push(Reverse((now, at)));
                continue;
            }
            let mut freed = BTreeSet::from([at]);
            if self.take(&units, &mut freed) {
                self.seat(at, ask);
                left -= 1;
            }
            heap.extend(
                freed.into_iter().filter_map(|at| Some(Reverse((self.offer(at, ask)?.0, at)))),
            );
        }
        true
    }

    /// Takes units; false if one of them cannot be taken after all, because another has
    /// used up what a gang or a budget had to spare.
    fn take(&mut self, units: &[Unit], freed: &mut BTreeSet<u32>) -> bool {
        for &unit in units {
            let unit = match unit {
                Unit::One(mark) if self.trade.is_taken(mark) => continue,
                Unit::One(mark) => self.trade.unit_of(mark),
                Unit::Whole(bond) if self.trade.is_whole(bond) => continue,
                whole @ Unit::Whole(_) => Some(whole),
            };
            let Some(unit) = unit.filter(|unit| self.trade.price(*unit).is_some()) else {
                return false;
            };
            if let Unit::Whole(bond) = unit {
                let ground = self.trade.ground;
                let marks = ground.bonds[bond as usize].marks.iter();
                let spots = marks.filter_map(|m| ground.marks[*m as usize].spot);
                let domain = ground.spots[self.spots[0] as usize].domain;
                freed.extend(spots.filter(|at| ground.spots[*at as usize].domain == domain));
            }
            self.trade.take(unit);
        }
        true
    }

    fn seat(&mut self, at: u32, ask: usize) {
        let ground = self.trade.ground;
        let amounts = &ground.asks[ask].amounts;
        let seats = self.seats.entry(at).or_insert_with(|| Seats {
            used: amounts.iter().map(|_| 0).collect(),
            count: ground.asks.iter().map(|_| 0).collect(),
        });
        add(&mut seats.used, amounts);
        seats.count[ask] += 1;
    }

    /// What it takes to seat one more on a spot; none if that cannot be.
    fn offer(&self, at: u32, ask: usize) -> Option<Offer> {
        let ground = self.trade.ground;
        let (spot, want) = (&ground.spots[at as usize], &ground.asks[ask]);
        let seats = self.seats.get(&at);
        if spot.takes[ask] == Takes::Never || seats.is_some_and(|s| s.count[ask] >= want.most) {
            return None;
        }
        let cleared = spot.takes[ask] == Takes::Cleared;
        let mut free = self.trade.free[at as usize].clone();
        if let Some(seats) = seats {
            subtract(&mut free, &seats.used);
        }
        if !cleared && fits(&free, &want.amounts) {
            return Some(Offer::default());
        }
        let mut units = self.units_on(at);
        units.sort_by_key(|(price, _, frees)| (*price, Reverse(frees.clone())));
        let mut chosen = 0;
        for (_, _, frees) in &units {
            if !cleared && fits(&free, &want.amounts) {
                break;
            }
            add(&mut free, frees);
            chosen += 1;
        }
        if !fits(&free, &want.amounts) {
            return None;
        }
        units.truncate(chosen);
        // The dearest first: who is not needed stays.
        for i in (0..units.len()).rev().filter(|_| !cleared).collect::<SmallVec<[usize; 8]>>() {
            let frees = units[i].2.clone();
            subtract(&mut free, &frees);
            if fits(&free, &want.amounts) {
                units.remove(i);
            } else {
                add(&mut free, &frees);
            }
        }
        let price = units.iter().fold(Price::default(), |sum, (price, ..)| sum.plus(*price));
        Some((price, units.into_iter().map(|(_, unit, _)| unit).collect()))
    }

    /// What could be taken from a spot, with what it costs and what it frees there.
    fn units_on(&self, at: u32) -> SmallVec<[(Price, Unit, Amounts); 8]> {
        let ground = self.trade.ground;
        let mut units: SmallVec<[(Price, Unit, Amounts); 8]> = SmallVec::new();
        let mut ones: SmallVec<[(u32, i64); 4]> = SmallVec::new();
        for &mark in ground.spots[at as usize].marks.iter().filter(|m| !self.trade.is_taken(**m)) {
            let Some(mut unit) = self.trade.unit_of(mark) else {
                continue;
            };
            let own = &ground.marks[mark as usize];
            if let (Unit::One(_), Some(bond)) = (unit, own.bond) {
                // Only as many as the gang has to spare go alone.
                let at = ones.iter().position(|(known, _)| *known == bond).unwrap_or_else(|| {
                    ones.push((bond, 0));
                    ones.len() - 1
                });
                ones[at].1 += 1;
                if ones[at].1 > self.trade.spare(bond) {
                    unit = Unit::Whole(bond);
                }
            }
            if let Some((_, _, frees)) = units.iter_mut().find(|(_, known, _)| *known == unit) {
                add(frees, &own.frees);
            } else if let Some(price) = self.trade.price(unit) {
                units.push((price, unit, own.frees.clone()));
            }
        }
        if self.style == Style::Shared {
            self.share(at, &mut units);
        }
        units
    }

    /// Each member that finds room where a gang was bears its share of what that costs.
    fn share(&self, at: u32, units: &mut [(Price, Unit, Amounts)]) {
        let ground = self.trade.ground;
        let domain = ground.spots[at as usize].domain;
        for (price, unit, _) in units {
            let Unit::Whole(bond) = *unit else { continue };
            let marks = &ground.bonds[bond as usize].marks;
            let spot = |m: &&u32| ground.marks[**m as usize].spot;
            let inside = marks
                .iter()
                .filter(|m| spot(m).is_some_and(|at| ground.spots[at as usize].domain == domain));
            let here = marks.iter().filter(|m| spot(m) == Some(at)).count() as u64;
            let need: u64 = ground.asks.iter().map(|ask| u64::from(ask.need)).sum();
            let sharing = (inside.count() as u64).min(need.max(here)).max(1);
            price.work = price.work.saturating_mul(here) / sharing;
        }
    }

    /// Gives back all that is not needed, the most important first.
    fn give_back(&mut self) {
        let ground = self.trade.ground;
        let mut units: Vec<Unit> = Vec::new();
        for mark in self.trade.victims() {
            let bond = ground.marks[mark as usize].bond.filter(|b| self.trade.is_whole(*b));
            let unit = bond.map_or(Unit::One(mark), Unit::Whole);
            if bond.is_none() || !units.contains(&unit) {
                units.push(unit);
            }
        }
        units.sort_by_cached_key(|unit| {
            Reverse(ground.weight(match unit {
                Unit::One(mark) => std::slice::from_ref(mark),
                Unit::Whole(bond) => &ground.bonds[*bond as usize].marks,
            }))
        });
        let mut room = Room::new(self);
        for unit in units {
            match unit {
                Unit::One(mark) => {
                    self.try_back(&mut room, &[mark]);
                }
                Unit::Whole(bond) => self.whole_back(&mut room, bond),
            }
        }
    }

    /// Has pods back if there is room for all members still.
    fn try_back(&mut self, room: &mut Room, marks: &[u32]) -> bool {
        let ground = self.trade.ground;
        let spots = marks.iter().filter_map(|m| ground.marks[*m as usize].spot);
        let spots: BTreeSet<u32> = spots.collect();
        marks.iter().for_each(|mark| self.trade.move_one(*mark, false));
        let stays = room.suffices(self, &spots);
        if !stays {
            marks.iter().for_each(|mark| self.trade.move_one(*mark, true));
        }
        stays
    }

    /// Has a gang back, or as many of it that it can do without the others.
    fn whole_back(&mut self, room: &mut Room, bond: u32) {
        let ground = self.trade.ground;
        let marks = &ground.bonds[bond as usize].marks;
        if self.try_back(room, marks) {
            return self.trade.set_whole(bond, false);
        }
        let mut back: Vec<u32> = marks.clone();
        back.retain(|mark| self.try_back(room, &[*mark]));
        if !back.is_empty() && self.trade.is_sound(bond) {
            return self.trade.set_whole(bond, false);
        }
        for mark in back {
            self.trade.move_one(mark, true);
            let spot = ground.marks[mark as usize].spot;
            room.suffices(self, &spot.into_iter().collect());
        }
    }
}

/// How much room there is: of members alike, how many fit wherever; of others, whether
/// all have their seats.
struct Room {
    /// By spot.
    fits: IdMap<u32, u32>,
    total: u64,
}

impl Room {
    fn new(search: &Search<'_, '_>) -> Self {
        let mut room = Self { fits: IdMap::default(), total: 0 };
        if search.trade.ground.asks.len() == 1 {
            for &at in search.spots {
                let fits = search.capacity(at);
                room.fits.insert(at, fits);
                room.total += u64::from(fits);
            }
        }
        room
    }

    /// Whether all members still have room after these spots have changed; what is known
    /// of them stays as it was if not.
    fn suffices(&mut self, search: &Search<'_, '_>, spots: &BTreeSet<u32>) -> bool {
        if search.trade.ground.asks.len() > 1 {
            return spots.iter().all(|at| search.keeps_seats(*at));
        }
        let own = spots.iter().filter(|at| self.fits.contains_key(at));
        let now: Vec<(u32, u32)> = own.map(|at| (*at, search.capacity(*at))).collect();
        let mut total = self.total;
        for (at, fits) in &now {
            total = total - u64::from(self.fits[at]) + u64::from(*fits);
        }
        let suffices = total >= u64::from(search.trade.ground.asks[0].need);
        if suffices {
            self.total = total;
            self.fits.extend(now);
        }
        suffices
    }
}

impl Search<'_, '_> {
    /// How many members fit on a spot, if all are alike.
    pub(super) fn capacity(&self, at: u32) -> u32 {
        let ground = self.trade.ground;
        let (spot, ask) = (&ground.spots[at as usize], &ground.asks[0]);
        match spot.takes[0] {
            Takes::Never => 0,
            Takes::Cleared if !self.is_clear(at) => 0,
            _ => times(&self.trade.free[at as usize], &ask.amounts).min(ask.most),
        }
    }

    pub(super) fn is_clear(&self, at: u32) -> bool {
        let marks = self.trade.ground.spots[at as usize].marks.iter();
        marks.filter(|m| !self.trade.is_taken(**m)).all(|m| self.trade.unit_of(*m).is_none())
    }

    /// Whether those who sit on a spot still can.
    fn keeps_seats(&self, at: u32) -> bool {
        let Some(seats) = self.seats.get(&at) else {
            return true;
        };
        let takes = &self.trade.ground.spots[at as usize].takes;
        let cleared = takes.iter().zip(&seats.count).any(|(t, n)| *t == Takes::Cleared && *n > 0);
        (!cleared || self.is_clear(at)) && fits(&self.trade.free[at as usize], &seats.used)
    }
}
