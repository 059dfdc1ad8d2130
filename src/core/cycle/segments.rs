//! Segments of a gang: members of consecutive ranks that are kept in one domain.
//!
//! Owns which segments there are, where members of theirs are already, and the places that
//! their members may have. Where segments fit is `topology`'s arithmetic, the seats are
//! `seat`'s. Must never take room.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Core;
use super::failure::Failure;
use super::scope::{Place, Sought};
use super::seat::{Blocked, Candidate, Need, wanted};
use super::seek::{Attempted, Bounds, Scope, Wanted};
use crate::bugs::bug;
use crate::cluster::NodeId;
use crate::framework::Profile;
use crate::gang::{GangId, GangSpec, Wish};
use crate::hash::{IdMap, IdSet};
use crate::model::PodId;
use crate::topology::{Cut, Piece, Room, Worth, lay};

/// The segments of a gang, or of a role of it, as far as members of theirs wait.
pub(super) struct Segments {
    role: Option<usize>,
    first: Candidate,
    cuts: Vec<Cut>,
    /// What each cut is, in words.
    words: Vec<String>,
    pieces: Vec<Piece>,
    /// The members of each piece.
    members: Vec<Vec<PodId>>,
    /// Of every node.
    bounds: Bounds,
}

impl Core {
    /// Ranks and nodes of the members that are placed, in order of ranks.
    pub(super) fn ranked_members(&self, id: GangId, spec: &GangSpec) -> Vec<(u32, NodeId)> {
        let members = self.cluster.gang(id).into_iter().flat_map(|gang| &gang.members);
        let ranked = members.filter_map(|pod| {
            let label = spec.rank_label(self.cluster.role_of(spec, *pod));
            Some((self.cluster.rank_of(*pod, label)?, self.place_of(*pod)?))
        });
        let mut ranked: Vec<(u32, NodeId)> = ranked.collect();
        ranked.sort_unstable();
        ranked
    }

    /// The segments whose members are to be seated. `Err`: they cannot be told.
    pub(super) fn segments(
        &mut self,
        at: &Attempted<'_>,
        candidates: &[Candidate],
    ) -> Result<Vec<Segments>, Box<Blocked>> {
        let mut all = Vec::new();
        if !at.spec.has_segments() || bug!(self.bugs, SegmentsIgnored) {
            return Ok(all);
        }
        let wanted: IdSet<PodId> =
            wanted(Need::new(at.spec, at.held), candidates).iter().map(|(pod, _)| *pod).collect();
        for (role, wish) in at.spec.wishes().filter(|(_, wish)| !wish.segments.is_empty()) {
            let own = candidates.iter().filter(|c| role.is_none() || c.role == role);
            let own: Vec<&Candidate> = own.filter(|c| wanted.contains(&c.pod)).collect();
            let Some(first) = own.first() else { continue };
            let refuse = |text: String| {
                Box::new(Blocked::refused(first, Failure::topology(at.profile, text)))
            };
            let kinds = self.cuts(wish).map_err(refuse)?;
            let Some(smallest) = kinds.last().map(|(cut, ..)| cut.size) else { continue };
            let hard = kinds.iter().any(|(cut, ..)| cut.hard);
            let mut pieces: BTreeMap<u32, Vec<PodId>> = BTreeMap::new();
            for candidate in &own {
                match self.cluster.rank_of(candidate.pod, wish.rank_label()) {
                    Some(rank) => pieces.entry(rank / smallest).or_default().push(candidate.pod),
                    None if hard => {
                        return Err(refuse(self.no_rank(candidate.pod, wish.rank_label())));
                    }
                    None => {}
                }
            }
            let placed = self.placed_segments(at.id, at.spec, (role, wish), &kinds);
            let mut laid = Vec::with_capacity(pieces.len());
            for (number, members) in &pieces {
                let rank = number * smallest;
                let mut fixed = Vec::with_capacity(kinds.len());
                for (i, (cut, sought, _)) in kinds.iter().enumerate() {
                    fixed.push(match placed.get(&(i, rank / cut.size)) {
                        Some(Err(split)) if cut.hard => {
                            let from = rank / cut.size * cut.size;
                            let apart = sought.apart(cut.level, *split);
                            let text = format!("ranks {from} to {}: {apart}", from + cut.size - 1);
                            return Err(refuse(text));
                        }
                        Some(Ok(domain)) => Some(*domain),
                        _ => None,
                    });
                }
                let need = u32::try_from(members.len()).unwrap_or(u32::MAX);
                laid.push(Piece { rank, need, fixed });
            }
            let pool: Wanted = own.iter().map(|c| (c.pod, c.shape)).collect();
            let bounds = self.bounds(at.profile, &pool, own.len(), &Place::All);
            let first = (*first).clone();
            let (members, pieces) = (pieces.into_values().collect(), laid);
            let words = kinds.iter().map(|(.., word)| word.clone()).collect();
            let cuts = kinds.into_iter().map(|(cut, ..)| cut).collect();
            all.push(Segments { role, first, cuts, words, pieces, members, bounds });
        }
        Ok(all)
    }

    /// What a wish asks of segments, the largest first; what they must be before what they
    /// should be.
    fn cuts(&mut self, wish: &Wish) -> Result<Vec<(Cut, Sought, String)>, String> {
        let mut cuts = Vec::new();
        for segment in &wish.segments {
            let size = segment.size;
            let sought = self.sought(&segment.wish());
            let sought = sought.map_err(|text| format!("segments of {size} ranks: {text}"))?;
            let Some(sought) = sought else { continue };
            let (required, first) = (sought.asked.required, sought.asked.first);
            let preferred = segment.preferred.as_ref().map(|_| first);
            let preferred = preferred.filter(|level| Some(*level) != required);
            for (level, hard) in [(required, true), (preferred, false)] {
                let Some(level) = level else { continue };
                let cut = Cut { size, tree: Arc::clone(&sought.tree), level, hard };
                let word = sought.asked.names[level].to_string();
                let sought = Sought { asked: sought.asked.clone(), tree: Arc::clone(&sought.tree) };
                cuts.push((cut, sought, word));
            }
        }
        Ok(cuts)
    }

    /// The domain of each segment that has members with a node, by cut and number. `Err`: it
    /// has members in two.
    fn placed_segments(
        &self,
        id: GangId,
        spec: &GangSpec,
        (role, wish): (Option<usize>, &Wish),
        kinds: &[(Cut, Sought, String)],
    ) -> BTreeMap<(usize, u32), Result<u32, (u32, u32)>> {
        let mut found: BTreeMap<(usize, u32), Result<u32, (u32, u32)>> = BTreeMap::new();
        let members = self.cluster.gang(id).into_iter().flat_map(|gang| &gang.members);
        for pod in members {
            if role.is_some() && self.cluster.role_of(spec, *pod) != role {
                continue;
            }
            let rank = self.cluster.rank_of(*pod, wish.rank_label());
            let Some((rank, node)) = rank.zip(self.place_of(*pod)) else { continue };
            for (i, (cut, ..)) in kinds.iter().enumerate() {
                let Some(domain) = cut.tree.domain_of(cut.level, node) else { continue };
                let known = found.entry((i, rank / cut.size)).or_insert(Ok(domain));
                if let Ok(other) = *known
                    && other != domain
                {
                    *known = Err((other.min(domain), other.max(domain)));
                }
            }
        }
        found
    }

    /// Gives the members of segments their places, within what a scope leaves to them.
    pub(super) fn lay_in(
        &self,
        profile: &Profile,
        segments: &Segments,
        learned: &IdMap<NodeId, u32>,
        scope: &mut Scope,
    ) -> Result<(), Box<Blocked>> {
        let base = scope.base(segments.role);
        let fits = |node: NodeId| {
            let bound = Bounds::worth(&segments.bounds.all, node).fits;
            (node, learned.get(&node).map_or(bound, |known| bound.min(*known)))
        };
        let room: Vec<(NodeId, u32)> = match base.nodes() {
            Some(nodes) => nodes.iter().map(|node| fits(*node)).collect(),
            None => self.cluster.nodes().iter().map(fits).collect(),
        };
        let laid = lay(&segments.cuts, &segments.pieces, &room).map_err(|short| {
            let (size, word) = match segments.cuts.get(short.cut) {
                Some(cut) => (cut.size, segments.words[short.cut].as_str()),
                None => (segments.cuts.last().map_or(0, |cut| cut.size), "place"),
            };
            let text = format!(
                "room for {} of {} segments of {size} ranks, each in one {word}",
                short.laid, short.of
            );
            let seated = usize::try_from(short.seated).unwrap_or(0);
            let failure = Failure::topology(profile, text);
            Box::new(Blocked::short(&segments.first, failure, seated))
        })?;
        // Members of segments in one domain have one list, unless something else sets them
        // apart: they fill it in order of their ranks.
        let mut needs: BTreeMap<&[Option<u32>], u32> = BTreeMap::new();
        for (domains, piece) in laid.iter().zip(&segments.pieces) {
            *needs.entry(domains).or_default() += piece.need;
        }
        let worth = |node: NodeId| {
            let known = room.binary_search_by_key(&node, |(node, _)| *node);
            Worth { fits: known.map_or(0, |at| room[at].1), whole: false }
        };
        let mut lists: BTreeMap<(&[Option<u32>], usize), usize> = BTreeMap::new();
        for (domains, members) in laid.iter().zip(&segments.members) {
            if domains.iter().all(Option::is_none) {
                continue;
            }
            for pod in members {
                let role = self.role_in(segments, *pod);
                let before = scope.own(*pod).unwrap_or_else(|| scope.number(*pod, role));
                let list = *lists.entry((domains.as_slice(), before)).or_insert_with(|| {
                    let (all, need) = (scope.last_of(before), needs[domains.as_slice()]);
                    scope.add_list(places(&segments.cuts, domains, &all, (need, &worth)))
                });
                scope.set_own(*pod, list);
            }
        }
        Ok(())
    }

    fn role_in(&self, segments: &Segments, pod: PodId) -> Option<usize> {
        let gang = self.cluster.pod(pod).and_then(|p| self.cluster.gang(p.gang?));
        let spec = gang.and_then(|gang| gang.spec.as_ref());
        segments.role.or_else(|| self.cluster.role_of(spec?, pod))
    }
}

/// The places of members of segments, the best first: where they should be, or as few parts
/// as hold `need` of them along the tree, and last where they must be.
fn places(
    cuts: &[Cut],
    domains: &[Option<u32>],
    all: &Place,
    (need, worth): (u32, &dyn Fn(NodeId) -> Worth),
) -> Vec<Place> {
    let place =
        |cut: &Cut, level: usize, domain: u32| Place::Domain(Arc::clone(&cut.tree), level, domain);
    let chosen = || cuts.iter().zip(domains).filter_map(|(cut, domain)| Some((cut, (*domain)?)));
    let hard = || chosen().rev().filter(|(cut, _)| cut.hard);
    let mut bounds: Vec<Place> = hard().map(|(cut, d)| place(cut, cut.level, d)).collect();
    bounds.push(all.clone());
    let soft = chosen().rev().filter(|(cut, _)| !cut.hard);
    let mut places: Vec<Place> = soft.map(|(cut, d)| place(cut, cut.level, d)).collect();
    if let Some((cut, domain)) = hard().next().filter(|_| places.is_empty()) {
        let mut parts = Room::new(&cut.tree, worth, &[]).parts(cut.level, domain, need);
        parts.sort_unstable();
        places.extend(parts.into_iter().map(|(level, part)| place(cut, level, part)));
    }
    places.push(Place::All);
    places.into_iter().map(|place| place.within(&bounds)).collect()
}
