//! What a history is about. In a history where everything happens at the same rate few
//! things ever meet; so each seed has some things happen often, others never, and its pods
//! may come in a few kinds, as replicas do.

use super::driver::Rng;

/// What may happen in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    CreatePod,
    DeletePod,
    UpdatePod,
    UpsertNode,
    DeleteNode,
    Deliver,
    Answer,
    Reply,
    Permit,
    Sleep,
    Relist,
    AllowMore,
    Evict,
    EndOne,
    Extend,
    Schedule,
}

use Act::{
    AllowMore, Answer, CreatePod, DeleteNode, DeletePod, Deliver, EndOne, Evict, Extend, Permit,
    Relist, Reply, Schedule, Sleep, UpdatePod, UpsertNode,
};

/// How often each happens where nothing is special.
const USUAL: [(Act, u64); 16] = [
    (CreatePod, 24),
    (DeletePod, 6),
    (UpdatePod, 12),
    (UpsertNode, 6),
    (DeleteNode, 2),
    (Deliver, 36),
    (Answer, 18),
    (Reply, 6),
    (Permit, 6),
    (Sleep, 12),
    (Relist, 1),
    (AllowMore, 6),
    (Evict, 12),
    (EndOne, 6),
    (Extend, 12),
    (Schedule, 27),
];

/// Without these nothing is ever decided.
const NEEDED: [Act; 5] = [CreatePod, Deliver, Answer, Sleep, Schedule];

/// What a seed makes of it.
pub(super) struct Mix {
    weights: Vec<(Act, u64)>,
    sum: u64,
    /// Kinds of pods; none if each is its own.
    kinds: u64,
    /// What changes of pods mostly are.
    favourite: Option<u64>,
    seed: u64,
}

impl Mix {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x006d_6978);
        let special = !rng.one_in(4);
        let mut weigh = |(act, usual): (Act, u64)| {
            let factor = if !special {
                2
            } else if NEEDED.contains(&act) {
                [1, 2, 2, 4][rng.below(4) as usize]
            } else {
                [0, 1, 2, 2, 6][rng.below(5) as usize]
            };
            (act, usual * factor)
        };
        let weights: Vec<_> = USUAL.into_iter().map(&mut weigh).collect();
        let sum = weights.iter().map(|(_, weight)| weight).sum();
        let kinds = if rng.one_in(2) { 1 + rng.below(4) } else { 0 };
        let favourite = rng.one_in(3).then(|| rng.below(super::driver::CHANGES));
        Self { weights, sum, kinds, favourite, seed }
    }

    /// What happens next.
    pub(super) fn act(&self, rng: &mut Rng) -> Act {
        let mut at = rng.below(self.sum);
        for (act, weight) in &self.weights {
            if at < *weight {
                return *act;
            }
            at -= weight;
        }
        Schedule
    }

    /// By which chances a new pod gets its looks.
    pub(super) fn looks(&self, rng: &mut Rng) -> Rng {
        let own = rng.below(u64::MAX);
        if self.kinds == 0 || rng.one_in(6) {
            return Rng::new(own);
        }
        Rng::new(self.seed.wrapping_mul(31).wrapping_add(own % self.kinds))
    }

    /// Which change of a pod it is.
    pub(super) fn change(&self, rng: &mut Rng) -> u64 {
        let roll = rng.below(super::driver::CHANGES);
        self.favourite.filter(|_| rng.one_in(2)).unwrap_or(roll)
    }
}
