//! Sets on machines as the node agent reports them.

use muster_api::muster;
use muster_api::muster::node_topology::{GpuState, Hardware};
use proptest::prelude::*;

use super::{Choice, Demand, GpuMask, Limit, Links, Now, Wiring, mig, positions, subsets};
use crate::model::NodeTopology;
use crate::model::node_topology::GpuHealth;

macro_rules! machine {
    ($name:literal) => {
        include_str!(concat!("../../../node-agent/tests/golden/machines/", $name, ".yaml"))
    };
}

/// What is read of a file: its conditions have no times.
#[derive(serde::Deserialize)]
struct File {
    hardware: Hardware,
    status: FileStatus,
}

#[derive(serde::Deserialize)]
struct FileStatus {
    #[serde(default)]
    gpus: Vec<GpuState>,
}

/// What the agent reports of a machine.
fn report(text: &str) -> NodeTopology {
    let file: File = serde_saphyr::from_str(text).expect("a report");
    let mut wire =
        muster::NodeTopology { hardware: Some(file.hardware), ..muster::NodeTopology::default() };
    wire.status.gpus = file.status.gpus;
    NodeTopology::compile(&wire, None).expect("a report without contradictions")
}

fn links(text: &str) -> (Links, Now) {
    let topology = report(text);
    let wiring = Wiring::of(&topology.hardware).expect("GPUs");
    let mut now = Now { free: wiring.all(), ..Now::default() };
    for (at, gpu) in topology.gpus.iter().enumerate() {
        match gpu.health {
            GpuHealth::Degraded => now.degraded |= 1 << at,
            GpuHealth::Unhealthy | GpuHealth::Lost => now.broken |= 1 << at,
            _ => {}
        }
    }
    (Links::new(wiring), now)
}

fn set(gpus: &[usize]) -> GpuMask {
    gpus.iter().fold(0, |set, gpu| set | 1 << gpu)
}

fn list(set: GpuMask) -> Vec<usize> {
    positions(set).collect()
}

/// A case: what is free (nothing said: all), how many are wanted, what is given.
type Case = (&'static str, &'static [usize], usize, &'static [usize]);

fn check(name: &str, text: &str, cases: &[Case]) {
    let (links, now) = links(text);
    for (about, free, size, expected) in cases {
        let free = if free.is_empty() { now.free } else { set(free) };
        let choice = links.choose(Now { free, ..now }, *size, &[], [5, 5, 5]);
        let given = choice.map(|choice| list(choice.set)).unwrap_or_default();
        assert_eq!(given, *expected, "{name}: {about}: {size} of {:?}: {choice:?}", list(free));
    }
}

/// The sets that the reference gives, and their neighbours.
#[test]
fn a_mesh_without_switches_gives_the_pairs_with_two_links() {
    check(
        "dgx-1v",
        machine!("dgx-1v"),
        &[
            ("double link, and the other four stay whole", &[], 2, &[0, 3]),
            ("the four with most links", &[], 4, &[0, 1, 2, 3]),
            ("in the half that is broken already", &[0, 1, 2, 4, 5, 6, 7], 2, &[1, 2]),
            ("the whole half", &[0, 1, 2, 4, 5, 6, 7], 4, &[4, 5, 6, 7]),
            ("across the sockets, but two links", &[0, 1, 4, 5], 2, &[0, 4]),
            ("one link is better than none", &[0, 2, 5, 7], 2, &[0, 2]),
            ("beside the gap", &[0, 1, 2, 4, 5, 6, 7], 1, &[0]),
            ("all", &[], 8, &[0, 1, 2, 3, 4, 5, 6, 7]),
            ("too many", &[0, 1], 3, &[]),
        ],
    );
}

#[test]
fn behind_switches_what_is_near_stays_together() {
    let cases: &[Case] = &[
        ("one side", &[], 4, &[0, 1, 2, 3]),
        ("the whole side", &[0, 1, 2, 4, 5, 6, 7], 4, &[4, 5, 6, 7]),
        ("the broken side", &[0, 1, 2, 4, 5, 6, 7], 2, &[0, 1]),
        ("what is left of a pair", &[1, 4, 5, 6, 7], 1, &[1]),
        ("all", &[], 8, &[0, 1, 2, 3, 4, 5, 6, 7]),
    ];
    check("dgx-h100", machine!("dgx-h100"), cases);
    check("b200", machine!("b200"), cases);
    check("dgx-a100", machine!("dgx-a100"), cases);
    check(
        "dgx-a100",
        machine!("dgx-a100"),
        &[
            ("below one host bridge", &[], 2, &[0, 1]),
            ("one socket, although four NUMA nodes", &[0, 1, 2, 3, 6, 7], 4, &[0, 1, 2, 3]),
            ("a pair that is left", &[1, 2, 4, 5, 6, 7], 2, &[1, 2]),
        ],
    );
    check(
        "gb200",
        machine!("gb200"),
        &[("one side", &[], 2, &[0, 1]), ("all", &[], 4, &[0, 1, 2, 3])],
    );
}

#[test]
fn what_is_not_well_goes_to_work_that_needs_no_links() {
    check(
        "b200-degraded",
        machine!("b200-degraded"),
        &[
            ("off the fabric, good for one", &[], 1, &[2]),
            ("not in a pair", &[], 2, &[0, 1]),
            ("four with links", &[], 4, &[4, 5, 6, 7]),
            ("seven with links", &[], 7, &[0, 1, 3, 4, 5, 6, 7]),
            ("if there is no other", &[2, 3], 2, &[2, 3]),
        ],
    );
    check(
        "h100-7-of-8",
        machine!("h100-7-of-8"),
        &[
            ("not the one that is lost", &[], 1, &[4]),
            ("the side that is whole", &[], 4, &[0, 1, 2, 3]),
            ("the other side", &[], 2, &[4, 6]),
        ],
    );
    let (links, now) = links(machine!("b200-degraded"));
    let eight = links.choose(now, 8, &[], [5, 5, 5]).unwrap();
    assert!(
        eight.points < 60 && !eight.aligned,
        "slow links are not as good as it gets: {eight:?}"
    );
}

#[test]
fn bridges_and_pci() {
    check(
        "a100-bridges",
        machine!("a100-bridges"),
        &[
            ("a bridge, whatever the numbers", &[], 2, &[0, 2]),
            ("a bridge that is left", &[0, 1, 4, 5], 2, &[4, 5]),
            ("two bridges on a socket", &[], 4, &[0, 1, 2, 3]),
            ("not out of a bridge", &[1, 4, 5], 1, &[1]),
        ],
    );
    check(
        "l40s",
        machine!("l40s"),
        &[("one side", &[], 2, &[0, 1]), ("the side that is left", &[1, 2, 3], 2, &[2, 3])],
    );
    check("vm", machine!("vm"), &[("nothing is known: the first", &[], 2, &[0, 1])]);
    assert_eq!(Wiring::of(&report(machine!("no-gpu")).hardware), None);
}

#[test]
fn a_kubelet_that_aligns_leaves_less_to_choose() {
    let (links, now) = links(machine!("dgx-h100"));
    let now = Now { free: set(&[0, 1, 2, 4, 5, 6, 7]), ..now };
    let sides = |left: u32, right: u32| -> Limit {
        [(0b1111, left), (0b1111_0000, right)].into_iter().collect()
    };
    let four = |limits: &[Limit]| {
        links.choose(now, 4, limits, [5, 5, 5]).map(|choice| (list(choice.set), choice.aligned))
    };
    assert_eq!(four(&[]), Some((vec![4, 5, 6, 7], true)));
    assert_eq!(four(&[sides(2, 2)]), Some((vec![0, 1, 4, 5], false)));
    assert_eq!(four(&[sides(3, 1), sides(0, 4)]), Some((vec![4, 5, 6, 7], true)));
    assert_eq!(four(&[sides(4, 0)]), None);
}

/// Shares of [2, 4, 8]; a machine of eight behind switches, sides of four.
#[test]
fn damage_is_what_others_lose() {
    let (links, now) = links(machine!("dgx-h100"));
    let damage = |free: &[usize], size: usize, shares: [u32; 3]| {
        let free = if free.is_empty() { now.free } else { set(free) };
        links.choose(Now { free, ..now }, size, &[], shares).map(|choice| choice.damage)
    };
    // One of eight: a pair, a four and the eight are gone: (2 + 4 + 8) of 24.
    assert_eq!(damage(&[], 1, [1, 1, 1]), Some(583));
    // Nobody asks for eight: (2 + 4) of 16.
    assert_eq!(damage(&[], 1, [1, 1, 0]), Some(375));
    // Four of eight: only the eight is gone: 8 of 24.
    assert_eq!(damage(&[], 4, [1, 1, 1]), Some(333));
    // Four that are alone, and one that is.
    assert_eq!(damage(&[4, 5, 6, 7], 4, [1, 1, 1]), Some(0));
    assert_eq!(damage(&[5], 1, [1, 1, 1]), Some(0));
    // One of three on a side: the pair stays.
    assert_eq!(damage(&[0, 1, 2], 1, [1, 1, 1]), Some(0));
    assert_eq!(damage(&[], 8, [1, 1, 1]), Some(0));
}

#[test]
fn what_was_asked_for_fades() {
    let mut demand = Demand::default();
    assert_eq!(demand.shares(), [5, 5, 5]);
    for second in 0..200 {
        demand.note(second, 8);
    }
    assert_eq!(demand.shares(), [5, 5, 5], "shares change at the end of a step only");
    assert!(demand.settle(300));
    assert_eq!(demand.shares(), [0, 0, 16]);
    (0..1_000).for_each(|second| demand.note(300 + second / 10, 3));
    demand.note(600, 1);
    // 1406 GPUs in eights against 2812 in pairs (three counts as a pair of three).
    assert_eq!(demand.shares(), [11, 0, 5]);
    assert!(demand.settle(300_000_000));
    assert_eq!(demand, {
        let mut new = Demand::default();
        new.settle(300_000_000);
        new
    });
    assert!(!demand.settle(0), "time does not go back");
}

#[test]
fn parts_are_taken_where_the_largest_profile_stays() {
    let topology = report(machine!("mig"));
    let gpus = &topology.hardware.gpus;
    let profiles = &gpus[2].mig.as_ref().unwrap().profiles;
    let by_name = |name: &str| profiles.iter().find(|profile| *profile.name == *name).unwrap();
    // What NVIDIA's own placement does: small parts from the end, so that 4g stays possible.
    assert_eq!(mig::start(profiles, by_name("1g.5gb"), 0), Some(6));
    assert_eq!(mig::start(profiles, by_name("1g.5gb"), mig::slices(6, 1)), Some(4));
    assert_eq!(mig::start(profiles, by_name("2g.10gb"), 0), Some(4));
    assert_eq!(mig::start(profiles, by_name("3g.20gb"), 0), Some(4));
    assert_eq!(mig::start(profiles, by_name("7g.40gb"), mig::slices(0, 1)), None);
    assert_eq!(mig::left(profiles, 0).0, 8);
    assert_eq!(mig::left(profiles, mig::slices(0, 4)).0, 4);

    // The 1g.5gb of GPU 0 (seven of them) and of GPU 1 (one, beside 4g and 2g).
    let parts: Vec<mig::Part> = gpus
        .iter()
        .enumerate()
        .flat_map(|(at, gpu)| {
            let devices = gpu.mig.iter().flat_map(|mig| &mig.devices);
            let own = devices.filter(|device| *device.profile == *"1g.5gb");
            own.filter_map(|device| device.placement)
                .map(move |(start, size)| (at, mig::slices(start, size)))
        })
        .collect();
    let divided = |used: [mig::Slices; 2]| used.map(|used| mig::Divided { profiles, used });
    let one = |used: [mig::Slices; 2], parts: &[mig::Part]| {
        let (chosen, lost) = mig::choose(&divided(used), parts, 1)?;
        let (gpu, slices) = parts[chosen[0]];
        Some((gpu, slices.trailing_zeros(), lost))
    };
    // Both empty: 8 becomes 4 anywhere; the last slice leaves most.
    assert_eq!(one([0, 0], &parts), Some((0, 6, 500)));
    // 4g of GPU 1 is in use: 3g at 4 is what it loses (4 becomes 2), GPU 0 would lose 4.
    assert_eq!(one([0, mig::slices(0, 4)], &parts), Some((1, 6, 250)));
    // GPU 1 has 4g and 2g in use: a 1g.10gb is what it loses.
    assert_eq!(one([0, mig::slices(0, 6)], &parts), Some((1, 6, 250)));
    assert_eq!(one([0, 0], &[]), None);
}

#[test]
fn sixteen_behind_switches_are_rated_at_once() {
    let wiring = Wiring {
        count: 16,
        bandwidth: vec![100; 256],
        distance: vec![1; 256],
        nics: vec![0; 16],
        down: 0,
    };
    let links = Links::new(wiring);
    assert_eq!(links.whole(GpuMask::MAX), [8, 4, 2]);
    assert_eq!(links.whole(0b0111_1111_1111_1111), [7, 3, 1]);
    let now = Now { free: GpuMask::MAX, ..Now::default() };
    assert_eq!(links.choose(now, 8, &[], [5, 5, 5]).map(|choice| choice.set), Some(0xff));
}

/// Machines of up to seven GPUs, with few distinct numbers, so that there are ties.
fn machines() -> impl Strategy<Value = Wiring> {
    (1..8_usize).prop_flat_map(|count| {
        let numbers = prop::collection::vec((0..3_u32, 0..3_u32), 21);
        let nics = prop::collection::vec(0..8_u64, count);
        let mask = GpuMask::try_from((1_u32 << count) - 1).expect("fits");
        (Just(count), numbers, nics, (0..=mask, any::<bool>())).prop_map(
            |(count, numbers, nics, (down, sound))| {
                let mut wiring = Wiring {
                    count,
                    bandwidth: vec![0; count * count],
                    distance: vec![0; count * count],
                    nics,
                    down: if sound { 0 } else { down },
                };
                let pairs = (0..count).flat_map(|a| (0..a).map(move |b| (a, b)));
                for ((a, b), (bandwidth, distance)) in pairs.zip(numbers) {
                    for at in [a * count + b, b * count + a] {
                        wiring.bandwidth[at] = bandwidth * 10;
                        wiring.distance[at] = distance;
                    }
                }
                wiring
            },
        )
    })
}

/// The slowest link of the best ring, by trying all orders.
fn ring(wiring: &Wiring, set: &[usize]) -> u32 {
    fn orders(rest: &[usize], path: &mut Vec<usize>, found: &mut dyn FnMut(&[usize])) {
        if rest.is_empty() {
            return found(path);
        }
        for (at, next) in rest.iter().enumerate() {
            let mut fewer = rest.to_vec();
            fewer.remove(at);
            path.push(*next);
            orders(&fewer, path, found);
            path.pop();
        }
    }
    let link = |a: usize, b: usize| wiring.bandwidth[a * wiring.count + b];
    let mut best = 0;
    orders(&set[1..], &mut vec![set[0]], &mut |path| {
        let inner = path.windows(2).map(|pair| link(pair[0], pair[1])).min();
        let close = link(path[path.len() - 1], path[0]);
        best = best.max(inner.unwrap_or(close).min(close));
    });
    best
}

/// The most of some sets that have nothing in common, by trying all.
fn packed(sets: &[GpuMask], free: GpuMask) -> u8 {
    let fits = sets.iter().filter(|set| **set & !free == 0);
    fits.map(|set| 1 + packed(sets, free & !set)).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The order among sets is that of their rings, sums, network devices and distances; what is
    /// chosen is the first of the best; whole sets are counted right.
    #[test]
    fn tables_agree_with_trying_everything(
        wiring in machines(), free in any::<GpuMask>(), size in 1..8_usize,
        degraded in any::<GpuMask>(),
    ) {
        let links = Links::new(wiring.clone());
        let free = free & wiring.all();
        let key = |set: GpuMask| {
            let gpus = list(set);
            let pairs = || gpus.iter().flat_map(|a| gpus.iter().filter(move |b| a < b).map(move |b| (*a, *b)));
            let sum = |square: &[u32]| -> u32 { pairs().map(|(a, b)| square[a * wiring.count + b]).sum() };
            // As many as can have a device each, by Hall: the least over all parts of the set.
            let rails = (0..=set).filter(|part| part & !set == 0).map(|part| {
                let near = positions(part).fold(0, |near, gpu| near | wiring.nics[gpu]);
                set.count_ones() - part.count_ones() + near.count_ones()
            });
            let slowest = if gpus.len() > 1 { ring(&wiring, &gpus) } else { 0 };
            (slowest, sum(&wiring.bandwidth), rails.min().unwrap_or(0), std::cmp::Reverse(sum(&wiring.distance)))
        };
        let linked = |set: GpuMask| {
            let (ring, sum, rails, _) = key(set);
            (ring, sum, rails)
        };
        let all: Vec<GpuMask> = subsets(wiring.all(), size).collect();
        prop_assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "each once");
        for pair in all.windows(2) {
            let (one, other) = (links.rank(pair[0]), links.rank(pair[1]));
            prop_assert_eq!(other.1.cmp(&one.1), key(pair[0]).cmp(&key(pair[1])), "{:?}", pair);
            let by_links = linked(pair[0]).cmp(&linked(pair[1]));
            prop_assert_eq!(other.0.cmp(&one.0), by_links, "{:?}", pair);
        }
        let now = Now { free, degraded, broken: 0 };
        let choice = links.choose(now, size, &[], [5, 5, 5]);
        prop_assert_eq!(choice.is_some(), free.count_ones() as usize >= size);
        if let Some(Choice { set, points, .. }) = choice {
            prop_assert!(set & !free == 0 && set.count_ones() as usize == size && points <= 100);
            let unwell = degraded | wiring.down;
            let ill = |set: GpuMask| (set & unwell).count_ones();
            let better = |other: &GpuMask| {
                ill(*other) < ill(set) || ill(*other) == ill(set) && linked(*other) > linked(set)
            };
            prop_assert!(size == 1 || !subsets(free, size).any(|other| better(&other)));
        }
        for (at, size) in super::SIZES.iter().enumerate() {
            let whole: Vec<GpuMask> =
                subsets(wiring.all(), *size).filter(|set| links.whole(*set)[at] > 0).collect();
            prop_assert_eq!(links.whole(free)[at], packed(&whole, free));
        }
    }
}
