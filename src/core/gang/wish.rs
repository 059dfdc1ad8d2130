//! Where members shall be, relative to each other, whatever API says so.

use muster_api::muster::TopologyRequest;

/// Where members shall be, relative to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// All must be in one domain of this level.
    pub required: Option<LevelName>,
    /// They should be in one domain of this level, or in as few and as near as possible.
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

impl Wish {
    /// What a request of Muster's own kinds asks for; none if it names no level.
    #[must_use]
    pub fn of(request: Option<&TopologyRequest>) -> Option<Self> {
        let request = request?;
        let named = |name: &Option<String>| {
            let name = name.as_deref().filter(|name| !name.is_empty())?;
            Some(LevelName { name: name.into(), is_label: false })
        };
        let wish =
            Self { required: named(&request.required), preferred: named(&request.preferred) };
        (wish.required.is_some() || wish.preferred.is_some()).then_some(wish)
    }

    /// All within one domain of a node label; none if there is no label.
    #[must_use]
    pub fn of_label(key: Option<&str>) -> Option<Self> {
        let name = key.filter(|key| !key.is_empty())?;
        let required = Some(LevelName { name: name.into(), is_label: true });
        Some(Self { required, preferred: None })
    }
}
