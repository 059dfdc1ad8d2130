//! How long nodes are waited for, and when they are avoided.

/// What a plugin that reads what nodes are inside wants of nodes whose agents are silent and of
/// kubelets that refuse pods. The core keeps time for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCare {
    /// For how many seconds a node is waited for: of which nothing was reported since it was
    /// made, or whose agent does not see a pod that was bound to it.
    pub wait_seconds: i64,
    /// After how many refusals of pods that ask a kubelet for the same the node is avoided
    /// for such pods; 0 for never.
    pub refusals: u32,
    /// Within how many seconds they have to come.
    pub window_seconds: i64,
    /// For how many seconds the node is avoided the first time; twice as long each further time.
    pub avoid_seconds: i64,
    /// For how many seconds at most. A node that was not avoided for as long begins anew.
    pub max_avoid_seconds: i64,
}
