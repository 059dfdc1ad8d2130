//! What a wish means: names become levels of a tree.

use super::{Levels, Topologies};
use crate::gang::{LevelName, Wish};

/// Most names of levels in a message.
const MAX_NAMES: usize = 16;

/// A wish whose names are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Node labels of the levels, widest first.
    pub(crate) keys: Vec<Box<str>>,
    /// The levels as people name them.
    pub(crate) names: Vec<Box<str>>,
    /// All must be in one domain of this level.
    pub(crate) required: Option<usize>,
    /// The narrowest level that is worth being in one domain of: a domain of it is sought
    /// first.
    pub(crate) first: usize,
}

/// What a name stands for.
enum Meaning<'a> {
    /// A level of a topology.
    Level(&'a Levels, usize),
    /// A node label.
    Label(&'a str),
}

impl Asked {
    /// What a wish means; none if it asks for no level. `Err` names what is required and
    /// not known; what is preferred and not known is no reason to wait.
    pub(crate) fn of(
        wish: &Wish,
        topologies: &Topologies,
        has_label: impl Fn(&str) -> bool,
    ) -> Result<Option<Self>, String> {
        let both = both(wish, topologies);
        let required = wish.required.as_ref();
        let required = required.map(|level| meaning(level, topologies, &has_label, both));
        let required = required.transpose()?;
        let preferred = wish.preferred.as_ref();
        let preferred =
            preferred.and_then(|level| meaning(level, topologies, &has_label, both).ok());
        Ok(match (required, preferred) {
            (None, None) => None,
            (Some(Meaning::Level(levels, required)), Some(Meaning::Level(other, preferred)))
                if std::ptr::eq(levels, other) =>
            {
                Some(Self::within(levels, Some(required), required.max(preferred)))
            }
            (Some(Meaning::Level(levels, required)), None) => {
                Some(Self::within(levels, Some(required), levels.0.len() - 1))
            }
            (None, Some(Meaning::Level(levels, preferred))) => {
                Some(Self::within(levels, None, preferred))
            }
            // Of different topologies, or labels: a tree of their own. What is required means
            // the same whatever is preferred.
            (required, preferred) => {
                let mut levels = match &required {
                    Some(Meaning::Level(levels, at)) => levels.0[..=*at].to_vec(),
                    Some(Meaning::Label(key)) => vec![((*key).into(), (*key).into())],
                    None => Vec::new(),
                };
                let required = levels.len().checked_sub(1);
                if let Some((key, name)) = preferred.as_ref().map(Meaning::key)
                    && levels.iter().all(|(_, own)| **own != *key)
                {
                    levels.push((name.into(), key.into()));
                }
                let first = levels.len() - 1;
                let (names, keys) = levels.into_iter().unzip();
                Some(Self { keys, names, required, first })
            }
        })
    }

    fn within(levels: &Levels, required: Option<usize>, first: usize) -> Self {
        Self {
            keys: levels.0.iter().map(|(_, key)| key.clone()).collect(),
            names: levels.0.iter().map(|(name, _)| name.clone()).collect(),
            required,
            first,
        }
    }

    /// The widest level that is worth being in one domain of.
    pub(crate) fn last(&self) -> usize {
        self.required.unwrap_or(0)
    }
}

impl Meaning<'_> {
    /// Label and name.
    fn key(&self) -> (&str, &str) {
        match self {
            Self::Level(levels, at) => (&levels.0[*at].1, &levels.0[*at].0),
            Self::Label(key) => (key, key),
        }
    }
}

/// The first topology that has both levels, if both are named.
fn both<'a>(wish: &Wish, topologies: &'a Topologies) -> Option<&'a Levels> {
    let (required, preferred) = (wish.required.as_ref()?, wish.preferred.as_ref()?);
    let has = |levels: &&Levels, level: &LevelName| {
        !level.is_label && levels.position(&level.name).is_some()
    };
    topologies.iter().find(|levels| has(levels, required) && has(levels, preferred))
}

fn meaning<'a>(
    level: &'a LevelName,
    topologies: &'a Topologies,
    has_label: impl Fn(&str) -> bool,
    beside: Option<&'a Levels>,
) -> Result<Meaning<'a>, String> {
    let name = &*level.name;
    if level.is_label {
        return Ok(Meaning::Label(name));
    }
    let mut all = beside.into_iter().chain(topologies.iter());
    if let Some((levels, at)) = all.find_map(|levels| Some((levels, levels.position(name)?))) {
        return Ok(Meaning::Level(levels, at));
    }
    if name.contains('/') || has_label(name) {
        return Ok(Meaning::Label(name));
    }
    let mut known: Vec<&str> =
        topologies.iter().flat_map(|levels| levels.0.iter().map(|(name, _)| &**name)).collect();
    known.sort_unstable();
    known.dedup();
    known.truncate(MAX_NAMES);
    let remedy = match known.is_empty() {
        true => "there is no ClusterTopology with levels".to_owned(),
        false => format!("levels are {}", known.join(", ")),
    };
    Err(format!(
        "topology.required: {name:?} is neither a level of a ClusterTopology nor a label of any \
         node; {remedy}"
    ))
}
