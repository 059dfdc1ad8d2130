//! Extension points by name.

use super::Plugin;

/// An extension point, in the order in which kube-scheduler sets them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the traits say what they are")]
pub enum ExtensionPoint {
    PreFilter,
    Filter,
    PostFilter,
    Reserve,
    PreScore,
    Score,
    PreBind,
    Bind,
    PostBind,
    Permit,
    PreEnqueue,
    QueueSort,
    PlacementGenerate,
    PlacementScore,
    PodGroupPostFilter,
}

impl ExtensionPoint {
    /// How many there are.
    pub const COUNT: usize = 15;

    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::Reserve,
        Self::PreScore,
        Self::Score,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
        Self::Permit,
        Self::PreEnqueue,
        Self::QueueSort,
        Self::PlacementGenerate,
        Self::PlacementScore,
        Self::PodGroupPostFilter,
    ];

    /// Its name in Go (`PreFilter`).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::PostFilter => "PostFilter",
            Self::Reserve => "Reserve",
            Self::PreScore => "PreScore",
            Self::Score => "Score",
            Self::PreBind => "PreBind",
            Self::Bind => "Bind",
            Self::PostBind => "PostBind",
            Self::Permit => "Permit",
            Self::PreEnqueue => "PreEnqueue",
            Self::QueueSort => "QueueSort",
            Self::PlacementGenerate => "PlacementGenerate",
            Self::PlacementScore => "PlacementScore",
            Self::PodGroupPostFilter => "PodGroupPostFilter",
        }
    }

    /// Its key in a configuration file (`preFilter`).
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::PreFilter => "preFilter",
            Self::Filter => "filter",
            Self::PostFilter => "postFilter",
            Self::Reserve => "reserve",
            Self::PreScore => "preScore",
            Self::Score => "score",
            Self::PreBind => "preBind",
            Self::Bind => "bind",
            Self::PostBind => "postBind",
            Self::Permit => "permit",
            Self::PreEnqueue => "preEnqueue",
            Self::QueueSort => "queueSort",
            Self::PlacementGenerate => "placementGenerate",
            Self::PlacementScore => "placementScore",
            Self::PodGroupPostFilter => "podGroupPostFilter",
        }
    }

    /// Whether a plugin has it.
    #[must_use]
    pub fn is_of(self, plugin: &dyn Plugin) -> bool {
        match self {
            Self::PreFilter => plugin.as_pre_filter().is_some(),
            Self::Filter => plugin.as_filter().is_some(),
            Self::PostFilter => plugin.as_post_filter().is_some(),
            Self::Reserve => plugin.as_reserve().is_some(),
            Self::PreScore | Self::Score => plugin.as_score().is_some(),
            Self::PreBind => plugin.as_pre_bind().is_some(),
            Self::Bind => plugin.as_bind().is_some(),
            Self::PostBind => plugin.as_post_bind().is_some(),
            Self::Permit => plugin.as_permit().is_some(),
            Self::PreEnqueue => plugin.as_pre_enqueue().is_some(),
            Self::QueueSort => plugin.as_queue_sort().is_some(),
            Self::PlacementGenerate | Self::PlacementScore => plugin.as_placement().is_some(),
            Self::PodGroupPostFilter => false,
        }
    }
}
