//! Sets of nodes.

use super::NodeId;

/// A set of nodes as a bitset.
#[derive(Clone, Debug, Default)]
pub struct NodeSet {
    words: Vec<u64>,
}

/// Sets are equal if they hold the same nodes, whatever room they have.
impl PartialEq for NodeSet {
    fn eq(&self, other: &Self) -> bool {
        let (short, long) = if self.words.len() <= other.words.len() {
            (&self.words, &other.words)
        } else {
            (&other.words, &self.words)
        };
        let (head, tail) = long.split_at(short.len());
        head == short.as_slice() && tail.iter().all(|word| *word == 0)
    }
}

impl Eq for NodeSet {}

impl NodeSet {
    /// The empty set with room for `nodes` nodes.
    #[must_use]
    pub fn with_capacity(nodes: usize) -> Self {
        Self { words: vec![0; nodes.div_ceil(64)] }
    }

    /// Adds a node.
    pub fn insert(&mut self, node: NodeId) {
        let word = node.index() / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (node.index() % 64);
    }

    /// Takes a node out.
    pub fn remove(&mut self, node: NodeId) {
        if let Some(word) = self.words.get_mut(node.index() / 64) {
            *word &= !(1 << (node.index() % 64));
        }
    }

    /// Whether the node is in.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.words.get(node.index() / 64).is_some_and(|w| w >> (node.index() % 64) & 1 == 1)
    }

    /// How many are in.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether none is in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// Keeps what is also in `other`.
    pub fn intersect(&mut self, other: &Self) {
        for (i, word) in self.words.iter_mut().enumerate() {
            *word &= other.words.get(i).copied().unwrap_or(0);
        }
    }

    /// Adds what is in `other`.
    pub fn unite(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// Takes out what is in `other`.
    pub fn subtract(&mut self, other: &Self) {
        for (word, less) in self.words.iter_mut().zip(&other.words) {
            *word &= !less;
        }
    }

    /// The nodes in order.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                Some(NodeId(i as u32 * 64 + bit))
            })
        })
    }

    /// Keeps the nodes for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(NodeId) -> bool) {
        for i in 0..self.words.len() {
            let mut rest = self.words[i];
            while rest != 0 {
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                if !keep(NodeId(i as u32 * 64 + bit)) {
                    self.words[i] &= !(1 << bit);
                }
            }
        }
    }
}

/// Which nodes have something: a short list, or a bitset once it is long.
///
/// A label such as the hostname has one value per node; a bitset each would
/// grow with the square of the cluster.
#[derive(Clone, Debug)]
pub(crate) enum Posting {
    Few(Vec<NodeId>),
    Many(NodeSet, usize),
}

const FEW: usize = 64;

impl Default for Posting {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Posting {
    pub(crate) fn insert(&mut self, node: NodeId) {
        match self {
            Self::Few(list) => {
                if let Err(at) = list.binary_search(&node) {
                    list.insert(at, node);
                }
                if list.len() > FEW {
                    let mut set = NodeSet::default();
                    list.iter().for_each(|&n| set.insert(n));
                    *self = Self::Many(set, FEW + 1);
                }
            }
            Self::Many(set, len) => {
                *len += usize::from(!set.contains(node));
                set.insert(node);
            }
        }
    }

    pub(crate) fn remove(&mut self, node: NodeId) {
        match self {
            Self::Few(list) => {
                if let Ok(at) = list.binary_search(&node) {
                    list.remove(at);
                }
            }
            Self::Many(set, len) => {
                *len -= usize::from(set.contains(node));
                set.remove(node);
                if *len <= FEW / 2 {
                    *self = Self::Few(set.iter().collect());
                }
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(list) => list.len(),
            Self::Many(_, len) => *len,
        }
    }

    pub(crate) fn add_to(&self, set: &mut NodeSet) {
        match self {
            Self::Few(list) => list.iter().for_each(|&n| set.insert(n)),
            Self::Many(own, _) => set.unite(own),
        }
    }

    pub(crate) fn take_from(&self, set: &mut NodeSet) {
        match self {
            Self::Few(list) => list.iter().for_each(|&n| set.remove(n)),
            Self::Many(own, _) => set.subtract(own),
        }
    }
}
