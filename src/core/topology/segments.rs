//! Segments: members of consecutive ranks, each segment in one domain.
//!
//! Owns the arithmetic of which segment goes into which domain: consecutive ones into the
//! same, then into the next along the tree, and into as few as suffice. Room is counted by
//! upper bounds, as everywhere here. For segments that ask for the same number of seats an
//! answer is found if there is one; for others the larger are laid first, which may miss one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pick::{Part, pick};
use super::tree::Tree;
use crate::cluster::NodeId;

/// One kind of segments. Kinds are nested: the size of one is a multiple of the next.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// Ranks in each.
    pub(crate) size: u32,
    pub(crate) tree: Arc<Tree>,
    /// Each is in one domain of this level.
    pub(crate) level: usize,
    /// It must be; else it should.
    pub(crate) hard: bool,
}

/// Members of one segment of the smallest kind that have to be seated.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The rank of one of them.
    pub(crate) rank: u32,
    /// How many they are.
    pub(crate) need: u32,
    /// By cut: the domain in which others of the same segment are.
    pub(crate) fixed: Vec<Option<u32>>,
}

/// There is no room for all segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    /// Of which kind.
    pub(crate) cut: usize,
    /// How many segments found room, of how many.
    pub(crate) laid: usize,
    pub(crate) of: usize,
    /// How many members those have.
    pub(crate) seated: u32,
}

/// The domain of each piece, by cut; none where it should be in one and is not.
pub(crate) type Laid = Vec<Vec<Option<u32>>>;

/// Finds a domain for every segment. `pieces` are in order of their ranks, `room` says how
/// many fit on each node.
pub(crate) fn lay(cuts: &[Cut], pieces: &[Piece], room: &[(NodeId, u32)]) -> Result<Laid, Short> {
    let mut layout = Layout {
        cuts,
        pieces,
        room,
        left: room.iter().map(|(_, fits)| *fits).collect(),
        laid: vec![vec![None; cuts.len()]; pieces.len()],
    };
    let slots: Vec<usize> = (0..room.len()).collect();
    let all: Vec<usize> = (0..pieces.len()).collect();
    layout.lay(0, &slots, &all)?;
    Ok(layout.laid)
}

struct Layout<'a> {
    cuts: &'a [Cut],
    pieces: &'a [Piece],
    room: &'a [(NodeId, u32)],
    /// What is left on each node of `room`.
    left: Vec<u32>,
    laid: Laid,
}

/// Nodes of `room`, by domain.
type Bins = BTreeMap<u32, Vec<usize>>;

impl Layout<'_> {
    /// Lays pieces onto some nodes, from one kind of segments on.
    fn lay(&mut self, at: usize, slots: &[usize], pieces: &[usize]) -> Result<(), Short> {
        let Some(cut) = self.cuts.get(at) else {
            return self.take(slots, pieces);
        };
        let (hard, segments) = (cut.hard, self.segments(at, pieces));
        let bins = self.bins(at, slots);
        let fixed = |segment: &Vec<usize>| self.pieces[segment[0]].fixed[at];
        let (held, free): (Vec<_>, Vec<_>) =
            segments.iter().cloned().partition(|segment| fixed(segment).is_some());
        let mut lost: Vec<Vec<usize>> = Vec::new();
        for segment in &held {
            let domain = self.pieces[segment[0]].fixed[at];
            let bin = domain.and_then(|domain| Some((domain, bins.get(&domain)?)));
            if !bin.is_some_and(|(domain, bin)| self.lay_in(at, domain, bin, segment)) {
                lost.push(segment.clone());
            }
        }
        if lost.is_empty() || !hard {
            lost.extend(self.fill(at, slots, &bins, &free));
        } else {
            lost.extend(free);
        }
        if hard && !lost.is_empty() {
            let need = |segments: &[Vec<usize>]| segments.iter().map(|s| self.need(s)).sum::<u32>();
            let (laid, of) = (segments.len() - lost.len(), segments.len());
            return Err(Short { cut: at, laid, of, seated: need(&segments) - need(&lost) });
        }
        // What should be together and cannot be is near the others.
        let mut rest: Vec<usize> = lost.concat();
        rest.sort_unstable();
        rest.iter().for_each(|piece| self.laid[*piece][at] = None);
        if rest.is_empty() { Ok(()) } else { self.lay(at + 1, slots, &rest) }
    }

    /// Lays segments into domains; those that found none.
    fn fill(
        &mut self,
        at: usize,
        slots: &[usize],
        bins: &Bins,
        segments: &[Vec<usize>],
    ) -> Vec<Vec<usize>> {
        let before = self.save(slots);
        let mut lost = Vec::new();
        let chosen = self.choose(at, bins, segments);
        let mut next = 0;
        for segment in segments {
            // Consecutive segments are in one domain, or in the next.
            while let Some(domain) = chosen.get(next) {
                if self.lay_in(at, *domain, &bins[domain], segment) {
                    break;
                }
                next += 1;
            }
            if next == chosen.len() {
                lost.push(segment.clone());
            }
        }
        if lost.is_empty() {
            return lost;
        }
        self.restore(slots, &before);
        self.fill_tight(at, bins, segments)
    }

    /// The same, the largest first, each into the fullest domain that has room.
    fn fill_tight(&mut self, at: usize, bins: &Bins, segments: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let mut ordered: Vec<&Vec<usize>> = segments.iter().collect();
        ordered.sort_by_key(|segment| std::cmp::Reverse(self.need(segment)));
        let mut lost = Vec::new();
        for segment in ordered {
            let mut fullest: Vec<(u64, u32)> =
                bins.iter().map(|(domain, bin)| (self.sum(bin), *domain)).collect();
            fullest.retain(|(sum, _)| *sum >= u64::from(self.need(segment)));
            fullest.sort_unstable();
            let found =
                fullest.iter().any(|(_, domain)| self.lay_in(at, *domain, &bins[domain], segment));
            if !found {
                lost.push(segment.clone());
            }
        }
        lost
    }

    /// As few domains as suffice, in order of the tree.
    fn choose(&self, at: usize, bins: &Bins, segments: &[Vec<usize>]) -> Vec<u32> {
        let most = segments.iter().map(Vec::len).max().unwrap_or(1).max(1);
        let needs = segments.iter().flatten().map(|piece| self.pieces[*piece].need);
        let need = needs.max().unwrap_or(1).max(1);
        let begun = |domain: u32| self.laid.iter().any(|laid| laid[at] == Some(domain));
        let part = |(domain, bin): (&u32, &Vec<usize>)| Part {
            id: *domain,
            fits: u32::try_from(self.fits(at + 1, bin, segments, need) / most as u64)
                .unwrap_or(u32::MAX),
            whole: false,
            begun: begun(*domain),
        };
        let parts: Vec<Part> = bins.iter().map(part).collect();
        let count = u32::try_from(segments.len()).unwrap_or(u32::MAX);
        let mut chosen: Vec<u32> = pick(&parts, count).iter().map(|part| part.id).collect();
        chosen.sort_unstable();
        chosen
    }

    /// How many pieces of `need` fit onto some nodes, if segments of kinds from `at` on are
    /// whole.
    fn fits(&self, at: usize, slots: &[usize], segments: &[Vec<usize>], need: u32) -> u64 {
        match self.cuts.get(at) {
            None => self.sum(slots) / u64::from(need),
            Some(cut) if cut.hard => {
                let inner = segments.iter().flat_map(|segment| self.segments(at, segment));
                let most = inner.map(|segment| segment.len()).max().unwrap_or(1).max(1) as u64;
                let bins = self.bins(at, slots);
                let each = bins.values().map(|bin| self.fits(at + 1, bin, segments, need));
                each.map(|fits| fits / most * most).sum()
            }
            Some(_) => self.fits(at + 1, slots, segments, need),
        }
    }

    /// Lays a segment into a domain, or leaves all as it was.
    fn lay_in(&mut self, at: usize, domain: u32, bin: &[usize], segment: &[usize]) -> bool {
        let before = self.save(bin);
        if self.lay(at + 1, bin, segment).is_err() {
            self.restore(bin, &before);
            return false;
        }
        for piece in segment {
            self.laid[*piece][at] = Some(domain);
        }
        true
    }

    /// Takes seats for pieces, wherever there are any.
    fn take(&mut self, slots: &[usize], pieces: &[usize]) -> Result<(), Short> {
        let mut need = self.need(pieces);
        if self.sum(slots) < u64::from(need) {
            return Err(Short { cut: self.cuts.len(), laid: 0, of: 1, seated: 0 });
        }
        for slot in slots {
            let here = need.min(self.left[*slot]);
            self.left[*slot] -= here;
            need -= here;
        }
        Ok(())
    }

    /// Pieces by the segment that they are in, in order.
    fn segments(&self, at: usize, pieces: &[usize]) -> Vec<Vec<usize>> {
        let size = self.cuts[at].size.max(1);
        let same =
            |a: &usize, b: &usize| self.pieces[*a].rank / size == self.pieces[*b].rank / size;
        pieces.chunk_by(same).map(<[usize]>::to_vec).collect()
    }

    fn bins(&self, at: usize, slots: &[usize]) -> Bins {
        let cut = &self.cuts[at];
        let mut bins = Bins::new();
        for &slot in slots {
            if let Some(domain) = cut.tree.domain_of(cut.level, self.room[slot].0) {
                bins.entry(domain).or_default().push(slot);
            }
        }
        bins
    }

    fn need(&self, pieces: &[usize]) -> u32 {
        pieces.iter().map(|piece| self.pieces[*piece].need).sum()
    }

    fn sum(&self, slots: &[usize]) -> u64 {
        slots.iter().map(|slot| u64::from(self.left[*slot])).sum()
    }

    fn save(&self, slots: &[usize]) -> Vec<u32> {
        slots.iter().map(|slot| self.left[*slot]).collect()
    }

    fn restore(&mut self, slots: &[usize], before: &[u32]) {
        for (slot, left) in slots.iter().zip(before) {
            self.left[*slot] = *left;
        }
    }
}
