//! GPUs that are divided by MIG: which part leaves the largest profile possible.
//!
//! A part that is in use keeps its memory slices; one that is free can be dissolved, so that what is
//! left of a GPU is judged by what could be made of all that nobody uses.

use crate::model::node_topology::MigProfile;

/// A set of memory slices: a bit for each.
pub type Slices = u32;

/// What could still be made of a GPU: the size of the largest profile, then the sizes of all
/// profiles at all places together.
pub type Left = (u32, u32);

/// The slices of a part.
#[must_use]
pub fn slices(start: u8, size: u8) -> Slices {
    let first = |count: u8| (1_u64 << count.min(32)) - 1;
    (first(size) << start.min(32)) as Slices
}

/// What can be made of a GPU of which some slices are in use.
#[must_use]
pub fn left(profiles: &[MigProfile], used: Slices) -> Left {
    let mut left = (0, 0);
    for profile in profiles {
        let room = |start: &&u8| slices(**start, profile.size) & used == 0;
        let places = profile.starts.iter().filter(room).count() as u32;
        if places > 0 {
            left.0 = left.0.max(u32::from(profile.size));
            left.1 += places * u32::from(profile.size);
        }
    }
    left
}

/// Where a new part of a profile should start: where the most can be made of the rest.
#[must_use]
pub fn start(profiles: &[MigProfile], profile: &MigProfile, used: Slices) -> Option<u8> {
    let room = |start: &u8| slices(*start, profile.size) & used == 0;
    let starts = profile.starts.iter().copied().filter(room);
    // Of equal ones the first.
    starts.rev().max_by_key(|start| left(profiles, used | slices(*start, profile.size)))
}

/// A divided GPU.
#[derive(Clone, Copy, Debug)]
pub struct Divided<'a> {
    /// What it can be divided into.
    pub profiles: &'a [MigProfile],
    /// Slices of parts that are in use.
    pub used: Slices,
}

/// A part that is free: the position of its GPU, and its slices.
pub type Part = (usize, Slices);

/// Which parts a pod should get, and what is lost by it: out of a thousand, as much as the largest
/// profiles shrink. Of equal ones that of the GPU of which the least is left, then the first.
#[must_use]
pub fn choose(gpus: &[Divided<'_>], parts: &[Part], count: usize) -> Option<(Vec<usize>, u16)> {
    let mut used: Vec<Slices> = gpus.iter().map(|gpu| gpu.used).collect();
    let mut chosen: Vec<usize> = Vec::with_capacity(count);
    let largest = |used: &[Slices]| -> u32 {
        gpus.iter().zip(used).map(|(gpu, used)| left(gpu.profiles, *used).0).sum()
    };
    let before = largest(&used);
    for _ in 0..count {
        let open = (0..parts.len()).filter(|at| !chosen.contains(at));
        let open = open.filter_map(|at| {
            let (gpu, slices) = parts[at];
            let profiles = gpus.get(gpu)?.profiles;
            let (now, then) = (left(profiles, used[gpu]), left(profiles, used[gpu] | slices));
            let lost = (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1));
            Some((lost.0, now.0, lost.1, at))
        });
        let (.., best) = open.min()?;
        used[parts[best].0] |= parts[best].1;
        chosen.push(best);
    }
    chosen.sort_unstable();
    let whole: u32 = gpus.iter().map(|gpu| left(gpu.profiles, 0).0).max().unwrap_or(0);
    let lost = before.saturating_sub(largest(&used)) * 1000;
    Some((chosen, lost.checked_div(whole).unwrap_or(0).min(1000) as u16))
}
