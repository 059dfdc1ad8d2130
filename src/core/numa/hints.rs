//! Hints: which sets of NUMA nodes could serve a request, and how the kubelet makes
//! one choice of the hints for all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::machine::{Machine, Policy};
use super::mask::Mask;

/// What a manager says of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hints {
    /// Any NUMA node will do.
    Any,
    /// These sets would do, those marked being as small as the request allows. None
    /// means that it cannot be served.
    Some(Vec<(Mask, bool)>),
}

/// A request and what a manager says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    /// `cpu`, `memory`, hugepages or a resource of a device plugin.
    pub(super) resource: Arc<str>,
    pub(super) amount: u64,
    pub(super) hints: Hints,
}

/// What the Topology Manager decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Affinity {
    /// `None`: wherever.
    pub(super) mask: Option<Mask>,
    pub(super) preferred: bool,
}

/// The choice, and whether the policy lets it pass.
pub(super) fn merge(machine: &Machine, asks: &[Ask]) -> (Affinity, bool) {
    let policy = machine.settings.policy;
    let all = machine.all_nodes();
    match policy {
        Policy::None => (Affinity::default(), true),
        Policy::BestEffort => (best(machine, all, asks), true),
        Policy::Restricted => {
            // A choice that is not preferred is refused, so it need not be known.
            match preferred(machine, all, asks) {
                Some(mask) => (Affinity { mask: Some(mask), preferred: true }, true),
                None => (Affinity { mask: Some(all), preferred: false }, false),
            }
        }
        Policy::SingleNumaNode => {
            let single: Vec<Ask> = asks.iter().map(only_single).collect();
            let found = preferred(machine, all, &single);
            let mask = found.unwrap_or(all);
            let mask = (mask != all).then_some(mask);
            (Affinity { mask, preferred: found.is_some() }, found.is_some())
        }
    }
}

pub(super) fn only_single(ask: &Ask) -> Ask {
    let mut single = ask.clone();
    if let Hints::Some(list) = &mut single.hints {
        list.retain(|(mask, good)| *good && mask.count() == 1);
    }
    single
}

/// The best set that every request marks: choices are only preferred if all masks in
/// them are the same.
fn preferred(machine: &Machine, all: Mask, asks: &[Ask]) -> Option<Mask> {
    let mut common: Option<Vec<Mask>> = None;
    for ask in asks {
        let Hints::Some(list) = &ask.hints else { continue };
        let marked = |mask: &Mask| list.contains(&(*mask, true));
        common = Some(match common {
            None => list.iter().filter(|(_, good)| *good).map(|(mask, _)| *mask).collect(),
            Some(masks) => masks.into_iter().filter(marked).collect(),
        });
    }
    let Some(common) = common else { return (!all.is_empty()).then_some(all) };
    let masks = common.into_iter().map(|mask| mask.and(all)).filter(|mask| !mask.is_empty());
    masks.reduce(|best, mask| if closer(machine, mask, best) { mask } else { best })
}

/// The best choice, preferred or not.
fn best(machine: &Machine, all: Mask, asks: &[Ask]) -> Affinity {
    if let Some(mask) = preferred(machine, all, asks) {
        return Affinity { mask: Some(mask), preferred: true };
    }
    let mut reached = BTreeSet::from([all]);
    let mut wanted = 0;
    for ask in asks {
        let Hints::Some(list) = &ask.hints else { continue };
        // An empty list leaves every mask as it is, and no choice preferred.
        let Some(least) = list.iter().map(|(mask, _)| mask.count()).min() else { continue };
        wanted = wanted.max(least);
        reached = reached
            .iter()
            .flat_map(|reached| list.iter().map(|(mask, _)| reached.and(*mask)))
            .collect();
    }
    // As many nodes as the widest request needs, or the most below that, or else the
    // fewest above.
    let rank = |mask: Mask| match mask.count() {
        count if count <= wanted => (0, wanted - count),
        count => (1, count),
    };
    let masks = reached.into_iter().filter(|mask| !mask.is_empty());
    let found = masks.reduce(|best, mask| {
        let better = match rank(mask).cmp(&rank(best)) {
            std::cmp::Ordering::Equal => closer(machine, mask, best),
            order => order.is_lt(),
        };
        if better { mask } else { best }
    });
    Affinity { mask: Some(found.unwrap_or(all)), preferred: false }
}

/// Whether the kubelet would rather have `mask`: fewer nodes, then (if it is told to)
/// nearer ones, then lower ids.
fn closer(machine: &Machine, mask: Mask, than: Mask) -> bool {
    let settings = &machine.settings;
    let by_distance = settings.prefer_closest && settings.policy != Policy::SingleNumaNode;
    if by_distance && mask.count() == than.count() {
        let (here, there) = (average_distance(machine, mask), average_distance(machine, than));
        return if here == there { mask.0 < than.0 } else { here < there };
    }
    mask.narrower(than)
}

/// The average distance between the nodes of a set in whole numbers, at least 10, which is a
/// node's distance to itself.
#[must_use]
pub fn spread(machine: &Machine, mask: Mask) -> u32 {
    let average = average_distance(machine, mask).clamp(10.0, 1000.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 10 and 1000"
    )]
    let whole = average.round() as u32;
    whole
}

/// The average distance between the nodes of a set, themselves included.
fn average_distance(machine: &Machine, mask: Mask) -> f64 {
    if mask.is_empty() {
        return 0.0;
    }
    let mut sum = 0;
    for node in machine.nodes.iter().filter(|node| mask.has(node.id)) {
        let distance = |id: u8| node.distances.get(usize::from(id)).copied().unwrap_or(0);
        sum += mask.ids().map(distance).sum::<u64>();
    }
    #[expect(clippy::cast_precision_loss, reason = "sums of distances, far below 2^52")]
    let (sum, pairs) = (sum as f64, (mask.count() * mask.count()) as f64);
    sum / pairs
}
