//! Which parts of a domain to use: as few as possible, breaking as few whole ones as
//! possible, and none larger than need be.

use crate::hash::IdSet;

/// A part that could be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its number, for whoever asks.
    pub(crate) id: u32,
    /// How many fit.
    pub(crate) fits: u32,
    /// Nobody uses any of it.
    pub(crate) whole: bool,
    /// Members of the gang are there already: using more of it costs nothing.
    pub(crate) begun: bool,
}

/// Chooses parts for `need` members, in the order in which they are filled. If all
/// together are too small, all are chosen.
pub(crate) fn pick(parts: &[Part], need: u32) -> Vec<Part> {
    let mut usable: Vec<Part> = parts.iter().copied().filter(|part| part.fits > 0).collect();
    usable.sort_by_key(|part| (!part.begun, std::cmp::Reverse(part.fits), part.id));
    let begun = usable.iter().take_while(|part| part.begun).count();
    let mut chosen: Vec<Part> = Vec::new();
    let mut left = need;
    for part in &usable[..begun] {
        if left == 0 {
            return chosen;
        }
        chosen.push(*part);
        left = left.saturating_sub(part.fits);
    }
    if left > 0 {
        chosen.extend(pick_new(&usable[begun..], left));
    }
    chosen
}

/// Of parts sorted by size, the largest first.
fn pick_new(parts: &[Part], need: u32) -> Vec<Part> {
    let sum = |parts: &[Part]| parts.iter().map(|part| u64::from(part.fits)).sum::<u64>();
    let mut covered = 0;
    let enough = parts.iter().position(|part| {
        covered += u64::from(part.fits);
        covered >= u64::from(need)
    });
    // The fewest that suffice: no other parts do with fewer.
    let Some(fewest) = enough.map(|at| at + 1) else {
        return parts.to_vec();
    };
    let (whole, used): (Vec<Part>, Vec<Part>) = parts.iter().partition(|part| part.whole);
    let broken = (0..=fewest).find(|&broken| {
        broken <= whole.len()
            && fewest - broken <= used.len()
            && sum(&whole[..broken]) + sum(&used[..fewest - broken]) >= u64::from(need)
    });
    let broken = broken.unwrap_or(0);
    let (mut first, mut second) = (used[..fewest - broken].to_vec(), whole[..broken].to_vec());
    let mut spare = sum(&first) + sum(&second) - u64::from(need).min(sum(&first) + sum(&second));
    // Whole ones are worth more: they are made smaller first.
    for (chosen, all) in [(&mut second, &whole), (&mut first, &used)] {
        tighten(chosen, all, &mut spare);
    }
    first.extend(second);
    first
}

/// Exchanges chosen parts for the smallest that do, within what is to spare.
fn tighten(chosen: &mut [Part], all: &[Part], spare: &mut u64) {
    let mut taken: IdSet<u32> = chosen.iter().map(|part| part.id).collect();
    for at in (0..chosen.len()).rev() {
        // None is smaller than the last.
        if *spare == 0 || all.last().is_none_or(|last| last.fits >= chosen[at].fits) {
            break;
        }
        let least = u64::from(chosen[at].fits).saturating_sub(*spare);
        let fits = |part: &&Part| u64::from(part.fits) >= least && !taken.contains(&part.id);
        let smaller = all.iter().rev().find(fits).filter(|part| part.fits < chosen[at].fits);
        if let Some(smaller) = smaller {
            *spare -= u64::from(chosen[at].fits - smaller.fits);
            taken.insert(smaller.id);
            taken.remove(&chosen[at].id);
            chosen[at] = *smaller;
        }
    }
    chosen.sort_by_key(|part| (std::cmp::Reverse(part.fits), part.id));
}
