//! The arithmetic of domains, held against an exhaustive search on small trees.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_api::muster::ClusterTopology;
use serde_json::json;

use super::pick::{Part, pick};
use super::room::Cost;
use super::{Asked, Cut, Piece, Room, Topologies, Tree, Worth, lay};
use crate::cluster::{Cluster, NodeId};
use crate::gang::{LevelName, Wish};
use crate::testing::{NodeExt, node, wire};

/// A small generator of our own: what is drawn is the same on every run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }
}

fn topology(name: &str, levels: &[(&str, &str)]) -> ClusterTopology {
    let levels: Vec<_> =
        levels.iter().map(|(n, key)| json!({"name": n, "nodeLabel": key})).collect();
    wire(json!({"metadata": {"name": name}, "spec": {"levels": levels}}))
}

fn named(name: &str) -> Option<LevelName> {
    Some(LevelName { name: name.into(), is_label: false })
}

#[test]
fn names_become_levels_labels_or_a_clear_message() {
    let mut all = Topologies::default();
    all.upsert(&topology("net", &[("block", "x/block"), ("rack", "x/rack")]), 0);
    all.upsert(&topology("power", &[("row", "x/row"), ("rack", "y/rack")]), 0);
    let of = |required: Option<LevelName>, preferred: Option<LevelName>| {
        let asked =
            Asked::of(&Wish { required, preferred, ..Wish::default() }, &all, |key| key == "zone");
        asked.map(|asked| {
            let asked = asked.expect("a level");
            (asked.keys.join(" "), asked.required, asked.first)
        })
    };
    // The first topology by name, unless another has both levels.
    assert_eq!(of(named("rack"), None), Ok(("x/block x/rack".into(), Some(1), 1)));
    assert_eq!(of(named("block"), None), Ok(("x/block x/rack".into(), Some(0), 1)));
    assert_eq!(of(named("row"), named("rack")), Ok(("x/row y/rack".into(), Some(0), 1)));
    assert_eq!(of(None, named("block")), Ok(("x/block x/rack".into(), None, 0)));
    // Of two topologies: a tree of their own.
    assert_eq!(of(named("row"), named("block")), Ok(("x/row x/block".into(), Some(0), 1)));
    // Labels: with a slash, or where a node has one.
    assert_eq!(of(named("z/zone"), None), Ok(("z/zone".into(), Some(0), 0)));
    assert_eq!(of(named("zone"), None), Ok(("zone".into(), Some(0), 0)));
    assert_eq!(of(named("z/zone"), named("rack")), Ok(("z/zone x/rack".into(), Some(0), 1)));
    // What is required is within the wider levels too, whatever is preferred.
    assert_eq!(
        of(named("rack"), named("z/zone")),
        Ok(("x/block x/rack z/zone".into(), Some(1), 2))
    );
    assert_eq!(of(named("rack"), named("x/rack")), Ok(("x/block x/rack".into(), Some(1), 1)));
    // A label is a label, though a level has its name.
    let label = Some(LevelName { name: "rack".into(), is_label: true });
    assert_eq!(of(label, None), Ok(("rack".into(), Some(0), 0)));
    // A preferred level that is wider than the required one adds nothing.
    assert_eq!(of(named("rack"), named("block")), Ok(("x/block x/rack".into(), Some(1), 1)));
    assert_eq!(
        of(named("rakc"), None).unwrap_err(),
        "topology.required: \"rakc\" is neither a level of a ClusterTopology nor a label of any \
         node; levels are block, rack, row"
    );
}

/// A tree of racks in blocks with hosts, some labels missing unless it is `labelled`, and
/// what each node is worth.
fn draw(dice: &mut Dice, labelled: bool) -> (Cluster, Vec<Worth>, Vec<Box<str>>) {
    let mut cluster = Cluster::default();
    let (blocks, racks) = (1 + dice.below(3), 1 + dice.below(4));
    let count = 4 + dice.below(61);
    let keys: Vec<Box<str>> = match dice.below(3) {
        0 => vec!["rack".into()],
        1 => vec!["block".into(), "rack".into()],
        _ => vec!["block".into(), "rack".into(), "slot".into()],
    };
    let busy = dice.below(4);
    let lacking = if labelled { 0 } else { 10 };
    let mut worths = Vec::new();
    for i in 0..count {
        let mut wire = node(&format!("n{i}"));
        for (key, values) in [("block", blocks), ("rack", racks), ("slot", 2)] {
            if dice.below(100) >= lacking {
                wire = wire.label(key, &format!("{key}{}", dice.below(values)));
            }
        }
        cluster.upsert_node(&wire, 0);
        let size = 1 + dice.below(4) as u32;
        let used = if dice.below(4) < busy { dice.below(u64::from(size) + 1) as u32 } else { 0 };
        worths.push(Worth { fits: size - used, whole: used == 0 });
    }
    (cluster, worths, keys)
}

/// The least cost of seating `need` in a domain, by trying all sets of narrowest domains.
fn least(tree: &Tree, worths: &[Worth], level: usize, domain: u32, need: u32) -> Option<Cost> {
    let narrowest = tree.levels.len() - 1;
    let fits = |level: usize, d: u32| -> u32 {
        tree.domain(level, d).nodes.iter().map(|n| worths[n.0 as usize].fits).sum()
    };
    let whole = |level: usize, d: u32| {
        tree.domain(level, d).nodes.iter().all(|n| worths[n.0 as usize].whole)
    };
    let mut leaves: Vec<u32> = (0..tree.levels[narrowest].domains.len() as u32).collect();
    leaves.retain(|leaf| tree.above(narrowest, *leaf, level) == domain);
    let mut best: Option<Cost> = None;
    for set in 0..1_u32 << leaves.len() {
        let chosen: Vec<u32> = leaves
            .iter()
            .enumerate()
            .filter(|(i, _)| set >> i & 1 == 1)
            .map(|(_, leaf)| *leaf)
            .collect();
        if chosen.iter().map(|leaf| fits(narrowest, *leaf)).sum::<u32>() < need {
            continue;
        }
        let (mut used, mut broken) = (Vec::new(), 0);
        for at in 0..=narrowest {
            let touched: BTreeSet<u32> = match at <= level {
                true => [tree.above(level, domain, at)].into(),
                false => chosen.iter().map(|leaf| tree.above(narrowest, *leaf, at)).collect(),
            };
            broken += touched.iter().filter(|d| whole(at, **d)).count() as u32;
            if at > level {
                used.push(touched.len() as u32);
            }
        }
        let cost = Cost { used, broken, spare: fits(level, domain) - need };
        best = Some(best.map_or(cost.clone(), |best| best.min(cost)));
    }
    best
}

#[test]
fn the_search_agrees_with_an_exhaustive_one() {
    let (mut compared, mut nearest, mut optimal) = (0, 0, 0);
    for seed in 0..3_000 {
        let mut dice = Dice::new(seed);
        let (cluster, worths, keys) = draw(&mut dice, seed % 3 > 0);
        let tree = Tree::build(&cluster, &keys);
        let room = Room::new(&tree, |node: NodeId| worths[node.0 as usize], &[]);
        let need = 1 + dice.below(24) as u32;
        for (level, at) in tree.levels.iter().enumerate() {
            let found = room.candidates(level, need, None);
            for (domain, id) in at.domains.iter().zip(0..) {
                let fits: u32 = domain.nodes.iter().map(|n| worths[n.0 as usize].fits).sum();
                assert_eq!(found.contains(&id), fits >= need, "seed {seed}: feasibility");
            }
        }
        // The narrowest level at which all fit into one domain.
        let lowest = (0..keys.len()).rev().find(|l| !room.candidates(*l, need, None).is_empty());
        let Some(level) = lowest else { continue };
        let found = room.candidates(level, need, None);
        let least = found.iter().filter_map(|d| least(&tree, &worths, level, *d, need)).min();
        // Nodes in no narrower domain may be what makes a domain fit: nothing to compare.
        let Some(least) = least.filter(|_| seed % 3 > 0) else { continue };
        compared += 1;
        let cost = room.cost(level, found[0], need);
        assert_eq!(cost.used.first(), least.used.first(), "seed {seed}: {cost:?} {least:?}");
        nearest += usize::from(cost.used == least.used);
        optimal += usize::from(cost.broken <= least.broken);
    }
    assert!(compared > 1_000, "{compared} trees had room");
    let says = format!("of {compared}: {nearest} as near, {optimal} with as few broken");
    assert!(optimal * 100 >= compared * 99 && nearest * 100 >= compared * 98, "{says}");
}

#[test]
fn parts_hold_all_that_is_needed_if_their_domain_does() {
    for seed in 0..500 {
        let mut dice = Dice::new(seed);
        let (cluster, worths, keys) = draw(&mut dice, seed % 3 > 0);
        let tree = Tree::build(&cluster, &keys);
        let room = Room::new(&tree, |node: NodeId| worths[node.0 as usize], &[]);
        for need in [1, 3, 9, 27] {
            for domain in room.candidates(0, need, None) {
                let parts = room.parts(0, domain, need);
                let inside = |(level, part): &(usize, u32)| tree.above(*level, *part, 0) == domain;
                assert!(parts.iter().all(inside), "seed {seed}");
                let distinct: BTreeSet<_> = parts.iter().collect();
                assert_eq!(distinct.len(), parts.len(), "seed {seed}: one part twice");
            }
        }
    }
}

/// `12w` is a part with room for 12 that nobody uses, `12b` one where members are.
fn check_pick(parts: &str, need: u32, expect: &str) {
    let parts: Vec<Part> = parts
        .split_whitespace()
        .zip(0..)
        .map(|(text, id)| {
            let fits = text.trim_end_matches(['w', 'b']).parse().unwrap();
            Part { id, fits, whole: text.ends_with('w'), begun: text.ends_with('b') }
        })
        .collect();
    let chosen = pick(&parts, need);
    let text = |p: &Part| {
        let kind = if p.whole {
            "w"
        } else if p.begun {
            "b"
        } else {
            ""
        };
        format!("{}{kind}", p.fits)
    };
    let chosen: Vec<String> = chosen.iter().map(text).collect();
    assert_eq!(chosen.join(" "), expect, "{need} of {parts:?}");
}

#[test]
fn few_parts_are_used_and_whole_ones_spared() {
    // One is enough: the tightest, and not a whole one if another will do.
    check_pick("8 16w 12 4", 4, "4");
    check_pick("8w 16 4w", 5, "16");
    check_pick("8w 16w 4w", 5, "8w");
    // The fewest, then the fewest whole ones, then the smallest that do.
    check_pick("8 8 8 16w", 14, "16w");
    check_pick("8 8 8 8w", 14, "8 8");
    check_pick("8 8w 8w 5w", 13, "8 5w");
    check_pick("4 4 4", 16, "4 4 4");
    // Where members are already comes first, however small it is.
    check_pick("8 2b 16w", 6, "2b 8");
    check_pick("8 6b 16w", 6, "6b");
    check_pick("0 0w 3", 2, "3");
}

/// Segments of `size` ranks, `members` in all, into racks with so much room: feasible if and
/// only if so many whole ones fit, and each within one rack.
#[test]
fn segments_alike_are_laid_if_they_fit_and_never_across_two_domains() {
    let mut laid_out = 0;
    for seed in 0..2_000 {
        let mut dice = Dice::new(seed);
        let (cluster, worths, _) = draw(&mut dice, true);
        let tree = Arc::new(Tree::build(&cluster, &["block".into(), "rack".into()]));
        let (size, count) = (1 + dice.below(5) as u32, 1 + dice.below(6) as u32);
        let nested = dice.below(2) as u32;
        let mut cuts = vec![Cut { size, tree: Arc::clone(&tree), level: 1, hard: true }];
        if nested == 1 {
            cuts.insert(0, Cut { size: 2 * size, tree: Arc::clone(&tree), level: 0, hard: true });
        }
        let count = if nested == 1 { count * 2 } else { count };
        let piece = |i| Piece { rank: i * size, need: size, fixed: vec![None; cuts.len()] };
        let pieces: Vec<Piece> = (0..count).map(piece).collect();
        let room: Vec<(NodeId, u32)> =
            cluster.nodes().iter().map(|node| (node, worths[node.0 as usize].fits)).collect();
        let racks = tree.levels[1].domains.iter();
        let whole = racks.map(|rack| {
            let fits: u32 = rack.nodes.iter().map(|n| worths[n.0 as usize].fits).sum();
            (rack.parent, fits / size)
        });
        let mut blocks = std::collections::BTreeMap::new();
        whole.for_each(|(block, fits)| *blocks.entry(block).or_insert(0) += fits);
        let fits: u32 = match nested {
            0 => blocks.values().sum(),
            _ => blocks.values().map(|fits| fits / 2 * 2).sum(),
        };
        let found = lay(&cuts, &pieces, &room);
        assert_eq!(found.is_ok(), fits >= count, "seed {seed}: {blocks:?} {count} of {size}");
        let Ok(found) = found else { continue };
        laid_out += 1;
        // No domain has more than fit, and outer segments are whole.
        let mut used = std::collections::BTreeMap::new();
        for (i, domains) in found.iter().enumerate() {
            let rack = domains[cuts.len() - 1].expect("a rack");
            *used.entry(rack).or_insert(0) += size;
            if nested == 1 {
                assert_eq!(domains[0], found[i / 2 * 2][0], "seed {seed}");
                assert_eq!(domains[0], Some(tree.above(1, rack, 0)), "seed {seed}");
            }
        }
        for (rack, used) in used {
            let nodes = tree.domain(1, rack).nodes.iter();
            assert!(used <= nodes.map(|n| worths[n.0 as usize].fits).sum(), "seed {seed}");
        }
    }
    assert!(laid_out > 500, "{laid_out} were laid");
}
