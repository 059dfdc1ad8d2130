//! Plans against an exhaustive search, on small grounds.

use std::collections::BTreeSet;

use smallvec::smallvec;

use super::ground::{add, fits, subtract};
use super::*;
use crate::hash::scramble;
use crate::model::PodId;

/// Grounds that are looked at.
const GROUNDS: u64 = 2_000;

/// Numbers of a seed.
struct Draw {
    seed: u32,
    drawn: u32,
}

impl Draw {
    fn new(seed: u64) -> Self {
        let seed = u32::try_from(seed).unwrap();
        Self { seed: scramble(seed, 0x9e37_79b9), drawn: 0 }
    }

    fn pick(&mut self, low: i64, high: i64) -> i64 {
        self.drawn += 1;
        low + i64::from(scramble(self.drawn, self.seed)) % (high - low + 1)
    }

    fn chance(&mut self, percent: i64) -> bool {
        self.pick(0, 99) < percent
    }
}

/// A ground with at most ten pods that could go.
fn ground(draw: &mut Draw) -> Ground {
    let mut ground = Ground::default();
    let kinds = if draw.chance(20) { 2 } else { 1 };
    for _ in 0..kinds {
        let (amount, need) = (draw.pick(1, 4), draw.pick(1, if kinds == 1 { 5 } else { 2 }));
        let most = if draw.chance(10) { 1 } else { u32::MAX };
        ground.asks.push(Ask { amounts: smallvec![amount, 1], need: need as u32, most });
    }
    let domains = draw.pick(1, 2);
    let spots = draw.pick(2, 6).max(domains);
    ground.domains = vec![Vec::new(); domains as usize];
    for at in 0..spots {
        let domain = at % domains;
        let free = smallvec![draw.pick(0, 2), draw.pick(2, 8)];
        let takes = ground.asks.iter().map(|_| match draw.pick(0, 19) {
            0 => Takes::Never,
            1 => Takes::Cleared,
            _ => Takes::Plain,
        });
        let takes = takes.collect();
        ground.spots.push(Spot { free, takes, marks: Vec::new(), domain: domain as u32 });
        ground.domains[domain as usize].push(at as u32);
    }
    let gangs = draw.pick(0, 3);
    for _ in 0..gangs {
        ground.bonds.push(Bond {
            spare: if draw.chance(40) { draw.pick(1, 2) } else { 0 },
            whole: draw.chance(85),
            ..Bond::default()
        });
    }
    let budgets = draw.pick(0, 2);
    ground.budgets = (0..budgets).map(|_| draw.pick(0, 3)).collect();
    let classes = draw.pick(1, 3);
    for number in 0..draw.pick(2, 10) as u32 {
        let spot = draw.pick(0, spots - 1) as u32;
        let going = draw.chance(5);
        let outside = draw.chance(8);
        let bond = (gangs > 0 && draw.chance(60)).then(|| draw.pick(0, gangs - 1) as u32);
        let budget = (budgets > 0 && draw.chance(50)).then(|| draw.pick(0, budgets - 1) as u32);
        ground.marks.push(Mark {
            pod: PodId(number),
            spot: (!outside).then_some(spot),
            frees: smallvec![draw.pick(1, 4), 1],
            priority: if going { i32::MIN } else { draw.pick(0, classes - 1) as i32 },
            work: if going { 0 } else { draw.pick(0, 1000).unsigned_abs() },
            bond: bond.filter(|_| !going),
            role: None,
            budget: budget.filter(|_| !going),
            going,
        });
        if let Some(bond) = ground.marks[number as usize].bond {
            ground.bonds[bond as usize].marks.push(number);
        }
        if !outside {
            ground.spots[spot as usize].marks.push(number);
        }
    }
    for at in 0..ground.spots.len() {
        let marks = std::mem::take(&mut ground.spots[at].marks);
        let mut marks: Vec<u32> = marks;
        marks.sort_by_key(|mark| ground.marks[*mark as usize].work);
        ground.spots[at].marks = marks;
    }
    ground
}

/// Whether the rest of the asks fits, tried seat by seat.
fn packs(ground: &Ground, spots: &[u32], free: &mut [Amounts], left: &mut [Vec<u32>]) -> bool {
    let Some(ask) = ground
        .asks
        .iter()
        .zip(left.iter())
        .position(|(ask, on)| (on.iter().sum::<u32>()) < ask.need)
    else {
        return true;
    };
    for &at in spots {
        let at = at as usize;
        let want = &ground.asks[ask];
        if !fits(&free[at], &want.amounts) || left[ask][at] >= want.most {
            continue;
        }
        subtract(&mut free[at], &want.amounts);
        left[ask][at] += 1;
        let found = packs(ground, spots, free, left);
        left[ask][at] -= 1;
        add(&mut free[at], &want.amounts);
        if found {
            return true;
        }
    }
    false
}

/// Whether all that is asked for fits into a domain without these.
fn suffices(ground: &Ground, gone: &BTreeSet<u32>, spots: &[u32]) -> bool {
    let mut free: Vec<Amounts> = ground.spots.iter().map(|spot| spot.free.clone()).collect();
    for mark in gone.iter().map(|mark| &ground.marks[*mark as usize]) {
        if let Some(spot) = mark.spot {
            add(&mut free[spot as usize], &mark.frees);
        }
    }
    let usable = |at: &u32| ground.spots[*at as usize].takes.iter().all(|t| *t == Takes::Plain);
    let usable: Vec<u32> = spots.iter().copied().filter(usable).collect();
    let mut left = vec![vec![0; ground.spots.len()]; ground.asks.len()];
    packs(ground, &usable, &mut free, &mut left)
}

/// What it costs that these go; none if they may not.
fn cost(ground: &Ground, gone: &BTreeSet<u32>) -> Option<Cost> {
    let mut cost = Cost { priority: i32::MIN, ..Cost::default() };
    let mut spent = vec![0; ground.budgets.len()];
    for mark in gone.iter().map(|mark| &ground.marks[*mark as usize]).filter(|m| !m.going) {
        cost.priority = cost.priority.max(mark.priority);
        cost.work += mark.work;
        cost.pods += 1;
        if let Some(budget) = mark.budget {
            spent[budget as usize] += 1;
        }
    }
    for (spent, left) in spent.iter().zip(&ground.budgets) {
        cost.violations += u32::try_from((spent - left).max(0)).unwrap();
    }
    for bond in &ground.bonds {
        let lost = bond.marks.iter().filter(|mark| gone.contains(mark)).count();
        let whole = lost == bond.marks.len() && bond.whole;
        if lost > 0 && !whole && i64::try_from(lost).unwrap() > bond.spare {
            return None;
        }
        cost.gangs += u32::from(lost > 0);
    }
    Some(cost)
}

/// The cheapest of all sets of pods, budgets kept unless they must not be.
fn best(ground: &Ground, force: bool) -> Option<Cost> {
    let count = u32::try_from(ground.marks.len()).unwrap();
    let mut best: Option<Cost> = None;
    for bits in 0..1_u32 << count {
        let going = |mark: &u32| ground.marks[*mark as usize].going;
        let gone: BTreeSet<u32> = (0..count).filter(|m| bits >> m & 1 == 1 || going(m)).collect();
        let Some(cost) = cost(ground, &gone) else { continue };
        if cost.violations > 0 && !force || best.is_some_and(|best| best <= cost) {
            continue;
        }
        if ground.domains.iter().any(|spots| suffices(ground, &gone, spots)) {
            best = Some(cost);
        }
    }
    best
}

/// Only numbers matter: a search that has to guess is not what is compared.
fn plain(mut ground: Ground) -> Ground {
    for takes in ground.spots.iter_mut().flat_map(|spot| &mut spot.takes) {
        if *takes == Takes::Cleared {
            *takes = Takes::Plain;
        }
    }
    for spot in &mut ground.spots {
        // A spot takes all asks or none.
        if spot.takes.contains(&Takes::Never) {
            spot.takes.iter_mut().for_each(|takes| *takes = Takes::Never);
        }
    }
    ground
}

#[test]
fn plans_are_about_as_cheap_as_any_can_be() {
    for force in [false, true] {
        let (mut cases, mut close) = (0, 0);
        for seed in 0..GROUNDS {
            let ground = plain(ground(&mut Draw::new(seed)));
            let best = best(&ground, force);
            let plans = ground.plans(force);
            let Some(best) = best else {
                assert_eq!(plans, [], "seed {seed}: there is none");
                continue;
            };
            cases += 1;
            let plan = plans.first().unwrap_or_else(|| panic!("seed {seed}: there is one"));
            let gone: BTreeSet<u32> = plan.marks.iter().copied().collect();
            assert_eq!(cost(&ground, &gone), Some(plan.cost), "seed {seed}: its cost is right");
            let spots = &ground.domains[plan.domain];
            assert!(suffices(&ground, &gone, spots), "seed {seed}: there is room");
            assert_eq!(plan.cost.violations, best.violations, "seed {seed}: no more than need be");
            let same =
                (plan.cost.violations, plan.cost.priority) == (best.violations, best.priority);
            close += u64::from(same && plan.cost.work * 10 <= best.work * 11);
        }
        assert!(cases > GROUNDS / 4, "{cases}");
        assert!(close * 100 >= cases * 95, "force {force}: {close} of {cases}");
    }
}

#[test]
fn nobody_goes_without_need() {
    for seed in 0..GROUNDS {
        let ground = plain(ground(&mut Draw::new(seed)));
        for plan in ground.plans(false) {
            let gone: BTreeSet<u32> = plan.marks.iter().copied().collect();
            for unit in ground.units(&plan.marks) {
                let mut left = gone.clone();
                left.retain(|mark| !unit.contains(mark));
                let fits = suffices(&ground, &left, &ground.domains[plan.domain]);
                // Of members that differ only their own seats are looked at.
                let stays = ground.asks.len() == 1 && fits && cost(&ground, &left).is_some();
                assert!(!stays, "seed {seed}: {unit:?} of {plan:?}");
            }
        }
    }
}
