//! A kubelet as the predictor has it, which takes the course that chance takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::io::Object;
use crate::numa::{CpuSet, Machine, Pod, Usage, predict};

/// Chance, from a seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % end as u64) as usize
    }
}

/// What a pod has.
#[derive(Clone, Default)]
pub(super) struct Holding {
    pub(super) cpus: CpuSet,
    pub(super) gpus: Vec<usize>,
}

pub(super) struct Kubelet {
    pub(super) policy: &'static str,
    /// Of the report as it is.
    pub(super) machine: Arc<Machine>,
    pub(super) broken: Vec<usize>,
    pub(super) holdings: BTreeMap<String, Holding>,
    /// Pods that are bound here and that it has not looked at.
    pub(super) coming: Vec<String>,
    pub(super) version: u32,
    pub(super) last: Object,
    /// It refuses whatever comes.
    pub(super) sick: bool,
}

impl Kubelet {
    pub(super) fn usage(&self) -> Usage {
        let mut usage = self.machine.unused();
        for holding in self.holdings.values() {
            usage.shared = usage.shared.difference(&holding.cpus);
            for gpu in &holding.gpus {
                usage.taken[0][*gpu] = true;
            }
        }
        usage
    }

    /// What becomes of a pod, by chance where chance decides.
    pub(super) fn admit(&mut self, pod: &Pod, dice: &mut Dice) -> Result<Holding, String> {
        let usage = self.usage();
        let prediction = predict(&self.machine, &usage, pod);
        let ways = prediction.admitted.len() + prediction.refused.len();
        let way = dice.below(ways.max(1));
        let Some(course) = prediction.admitted.get(way) else {
            return Err(format!("{:?} of {usage:?}", prediction.refused));
        };
        let mut holding = Holding::default();
        for given in &course.given {
            holding.cpus = holding.cpus.union(&given.cpus);
            for (numa, count) in given.devices.iter().flat_map(|(_, near)| near) {
                let devices = self.machine.devices[0].devices.iter().enumerate();
                let free = devices.filter(|(at, device)| {
                    device.numa == *numa
                        && device.healthy
                        && !usage.taken[0][*at]
                        && !holding.gpus.contains(at)
                });
                let mut free: Vec<usize> = free.map(|(at, _)| at).collect();
                for _ in 0..*count {
                    let at = dice.below(free.len());
                    holding.gpus.push(free.swap_remove(at));
                }
            }
        }
        Ok(holding)
    }
}
