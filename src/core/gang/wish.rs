//! Where members shall be, relative to each other, whatever API says so.

use muster_api::muster::{MAX_SEGMENTS, Segment, TopologyRequest, labels};

/// Where members shall be, relative to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// All must be in one domain of this level.
    pub required: Option<LevelName>,
    /// They should be in one domain of this level, or in as few and as near as possible.
    pub preferred: Option<LevelName>,
    /// No other gang may be in the domain that is required.
    pub exclusive: bool,
    /// Members of consecutive ranks that are kept together, the largest first.
    pub segments: Vec<SegmentWish>,
    /// The pod label that holds a member's rank; empty: the usual one.
    pub rank_label: Box<str>,
}

/// Where members of consecutive ranks shall be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentWish {
    /// How many ranks each segment has.
    pub size: u32,
    /// Each must be in one domain of this level.
    pub required: Option<LevelName>,
    /// Each should be in one domain of this level.
    pub preferred: Option<LevelName>,
}

/// A level, as it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelName {
    /// The name of a level, or a node label.
    pub name: Box<str>,
    /// It is a node label for certain.
    pub is_label: bool,
}

impl LevelName {
    fn of(name: Option<&str>) -> Option<Self> {
        let name = name.filter(|name| !name.is_empty())?;
        Some(Self { name: name.into(), is_label: false })
    }
}

impl SegmentWish {
    fn of(segment: &Segment) -> Option<Self> {
        let size = u32::try_from(segment.size).ok().filter(|size| *size > 0)?;
        let required = LevelName::of(segment.required.as_deref());
        let preferred = LevelName::of(segment.preferred.as_deref());
        let named = required.is_some() || preferred.is_some();
        named.then_some(Self { size, required, preferred })
    }

    /// What the members of one segment ask for.
    #[must_use]
    pub fn wish(&self) -> Wish {
        let (required, preferred) = (self.required.clone(), self.preferred.clone());
        Wish { required, preferred, ..Wish::default() }
    }
}

impl Wish {
    /// What a request of Muster's own kinds asks for; none if it names no level. Segments
    /// without more are as near to each other as segments are within.
    #[must_use]
    pub fn of(request: Option<&TopologyRequest>) -> Option<Self> {
        let request = request?;
        let mut segments: Vec<SegmentWish> = Vec::new();
        for segment in request.segments.iter().take(MAX_SEGMENTS).filter_map(SegmentWish::of) {
            // The API server refuses others; a list without it may have them.
            if segments.last().is_none_or(|last| last.size % segment.size == 0) {
                segments.push(segment);
            }
        }
        let required = LevelName::of(request.required.as_deref());
        let mut preferred = LevelName::of(request.preferred.as_deref());
        if required.is_none() && preferred.is_none() {
            let first = segments.first()?;
            preferred = first.required.clone().or_else(|| first.preferred.clone());
        }
        let exclusive = request.exclusive && required.is_some();
        let rank_label = request.rank_label.as_deref().unwrap_or_default().into();
        Some(Self { required, preferred, exclusive, segments, rank_label })
    }

    /// The pod label that holds a member's rank.
    #[must_use]
    pub fn rank_label(&self) -> &str {
        if self.rank_label.is_empty() { labels::DEFAULT_RANK } else { &self.rank_label }
    }

    /// All within one domain of a node label; none if there is no label.
    #[must_use]
    pub fn of_label(key: Option<&str>) -> Option<Self> {
        let name = key.filter(|key| !key.is_empty())?;
        let required = Some(LevelName { name: name.into(), is_label: true });
        Some(Self { required, ..Self::default() })
    }
}
