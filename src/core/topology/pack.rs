//! Members that differ, packed into one domain: the arithmetic of which node takes which.
//!
//! Owns a bounded search over nodes with so much left of each resource. It is asked where
//! seating one after the other by scores found no room for all: an order that suits scores
//! may waste what a tighter one has room for.

/// Nodes that are looked at for a member, altogether.
pub(crate) const MAX_LOOKS: u32 = 20_000;

/// Members that are alike.
#[derive(Clone, Debug)]
pub(crate) struct Alike {
    /// How many.
    pub(crate) count: usize,
    /// What each takes, by resource.
    pub(crate) takes: Vec<i64>,
    /// Which nodes would have them.
    pub(crate) may: Vec<bool>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packed {
    /// The nodes of each kind of members, by position.
    Found(Vec<Vec<usize>>),
    /// There is no room, however they are packed.
    Nowhere,
    /// Not all ways were looked at.
    Unknown,
}

/// Finds nodes for all members. `left`: what nodes have left, by resource.
pub(crate) fn pack(kinds: &[Alike], left: Vec<Vec<i64>>) -> Packed {
    // The tightest nodes first, the largest members first.
    let mut nodes: Vec<usize> = (0..left.len()).collect();
    nodes.sort_by_key(|node| (left[*node].clone(), *node));
    let mut order: Vec<usize> = (0..kinds.len()).collect();
    order.sort_by_key(|kind| std::cmp::Reverse(kinds[*kind].takes.clone()));
    let members = order.iter().flat_map(|kind| std::iter::repeat_n(*kind, kinds[*kind].count));
    let members: Vec<usize> = members.collect();
    let mut search = Search { kinds, nodes, members, left, looks: 0, chosen: Vec::new() };
    match search.seat(0) {
        Some(true) => {
            let mut found = vec![Vec::new(); kinds.len()];
            for (kind, at) in search.members.iter().zip(&search.chosen) {
                found[*kind].push(search.nodes[*at]);
            }
            Packed::Found(found)
        }
        Some(false) => Packed::Nowhere,
        None => Packed::Unknown,
    }
}

struct Search<'a> {
    kinds: &'a [Alike],
    /// In the order in which they are looked at.
    nodes: Vec<usize>,
    /// The kind of each member.
    members: Vec<usize>,
    left: Vec<Vec<i64>>,
    looks: u32,
    /// Positions in `nodes`, of the members seated so far.
    chosen: Vec<usize>,
}

impl Search<'_> {
    /// Seats members from one on; none if it took too long.
    fn seat(&mut self, member: usize) -> Option<bool> {
        let Some(&kind) = self.members.get(member) else {
            return Some(true);
        };
        // Members that are alike are seated in order of nodes: any other order is the same.
        let alike = member > 0 && self.members[member - 1] == kind;
        let from = if alike { self.chosen[member - 1] } else { 0 };
        let mut failed: Vec<usize> = Vec::new();
        for at in from..self.nodes.len() {
            self.looks += 1;
            if self.looks > MAX_LOOKS {
                return None;
            }
            let node = self.nodes[at];
            let takes = &self.kinds[kind].takes;
            let fits = self.left[node].iter().zip(takes).all(|(left, takes)| left >= takes);
            // A node that is like one that would not do will not do either.
            let same = |other: &usize| {
                self.left[*other] == self.left[node]
                    && self.kinds.iter().all(|k| k.may[*other] == k.may[node])
            };
            if !fits || !self.kinds[kind].may[node] || failed.iter().any(same) {
                continue;
            }
            self.charge(kind, node, 1);
            self.chosen.push(at);
            if self.seat(member + 1)? {
                return Some(true);
            }
            self.chosen.pop();
            self.charge(kind, node, -1);
            failed.push(node);
        }
        Some(false)
    }

    fn charge(&mut self, kind: usize, node: usize, sign: i64) {
        for (left, takes) in self.left[node].iter_mut().zip(&self.kinds[kind].takes) {
            *left -= sign * takes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `3*2 1*1`: three members that take 2, one that takes 1.
    fn check(members: &str, nodes: &[i64], expect: &str) {
        let kinds = members.split_whitespace().map(|kind| {
            let (count, takes) = kind.split_once('*').unwrap();
            let may = vec![true; nodes.len()];
            Alike { count: count.parse().unwrap(), takes: vec![takes.parse().unwrap()], may }
        });
        let left = nodes.iter().map(|left| vec![*left]).collect();
        let found = match pack(&kinds.collect::<Vec<_>>(), left) {
            Packed::Found(found) => format!("{found:?}"),
            other => format!("{other:?}"),
        };
        assert_eq!(found, expect, "{members} on {nodes:?}");
    }

    #[test]
    fn members_that_differ_are_packed_if_there_is_a_way() {
        check("2*2 1*3", &[3, 4], "[[1, 1], [0]]");
        check("2*2 1*3", &[4, 2, 3], "[[1, 0], [2]]");
        check("3*2 1*3", &[3, 4], "Nowhere");
        check("1*4 2*3 2*2", &[5, 5, 4], "[[2], [0, 1], [0, 1]]");
        check("0*1", &[], "[[]]");
    }

    #[test]
    fn a_search_without_end_is_given_up() {
        // Sums that are just too small, in very many ways.
        let nodes: Vec<i64> = (0..24).map(|i| 97 + i % 7).collect();
        check("40*31 30*29 20*23 6*11", &nodes, "Unknown");
    }
}
