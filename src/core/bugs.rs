//! Mistakes that can be switched on, to see whether the checks find them.
//!
//! Owns the list and nothing else: each mistake is one `bug!` beside the line it
//! breaks. Without the feature `seeded-bugs` no mistake can be chosen, and the
//! condition is the constant `false`.

/// A mistake somebody could make.
#[cfg_attr(
    not(any(test, feature = "seeded-bugs")),
    allow(unreachable_pub, reason = "only tests can choose one")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Memory is not charged to nodes.
    Overcommit,
    /// The bind is sent before Reserve and Permit have spoken.
    BindBeforeReserve,
    /// What happened while a pod was in flight is forgotten.
    LostEvent,
    /// An event moves only the first pod of a group.
    LostWake,
    /// Pods that failed come back at once.
    BackoffIgnored,
    /// Pods that met an error are tried as soon as nothing else is ready.
    ErrorTriedEarly,
    /// A binding that fails keeps its room.
    LeakAssumed,
    /// A bind without an answer is given up, and the pod planned anew.
    RebindElsewhere,
    /// Every bind is sent twice.
    DoubleBind,
    /// Kept verdicts are not refreshed when nodes change.
    StaleLedger,
    /// Kept scores are not refreshed when nodes change.
    StaleScore,
    /// Unreserve runs in the order of Reserve.
    UnreserveOrder,
    /// Unreserve is not called.
    UnreserveForgotten,
    /// Host ports stay taken when their pod is gone.
    PortsLeaked,
    /// Host ports are not noted when a pod is placed.
    PortsIgnored,
    /// Gates are not looked at.
    GatedScheduled,
    /// Pods of other schedulers are ours too.
    ForeignScheduled,
    /// A pod that changes while it backs off is in no queue any more.
    LostOnUpdate,
    /// Room of a pod that left is not free again.
    RoomNotFreed,
    /// What a relist no longer shows is kept.
    RelistKeeps,
    /// A node's taints are those it had at first.
    TaintIgnored,
    /// The least important pod goes first.
    OrderInverted,
    /// Waits at Permit never end by themselves.
    PermitForever,
    /// The first explanation stays.
    ExplanationStale,
    /// The pod's condition is never written.
    ConditionForgotten,
    /// Victims are chosen whatever their budgets allow.
    BudgetIgnored,
    /// Victims are evicted without being asked for dry first.
    DryRunSkipped,
    /// A dry run that a budget refuses counts as allowed.
    RefusalIgnored,
    /// Pods of the same priority are victims too.
    VictimOfEqualPriority,
    /// Nobody is reprieved.
    SuperfluousVictim,
    /// The last victim is not asked to go.
    VictimForgotten,
    /// A pod that waits for its victims' answers is tried again meanwhile.
    PlanNotHeld,
    /// `preemptionPolicy: Never` is not looked at.
    NeverIgnored,
    /// Members of gangs are victims like any pod, whatever their gang needs.
    VictimGangCut,
    /// Nobody is reprieved by a gang.
    GangVictimSuperfluous,
    /// A gang chooses victims whatever their budgets allow.
    GangBudgetIgnored,
    /// A gang plans again while victims of its last plan are leaving.
    GangPlansTwice,
    /// Protections of victims are not looked at.
    ShieldIgnored,
    /// Evictions are not counted against what a policy allows.
    RateIgnored,
    /// Others are pushed out at once, whatever a policy says of delay.
    DelayIgnored,
    /// What is only to be simulated is carried out.
    SimulateIgnored,
    /// Nobody is asked to save its work before it is pushed out.
    CheckpointSkipped,
    /// The nomination of a pod that is gone stays.
    NominationLeaked,
    /// A pod that waits keeps its rejecting plugins over a reload.
    RejectorsKept,
    /// An attempt ends under another version of its profile than it began with.
    EndsUnderAnother,
    /// Members that found room are bound, however many did not.
    GangPartial,
    /// A member is bound as soon as its own PreBind is over.
    GangBarrierSkipped,
    /// A gang that gives up keeps the room of its first member.
    GangRoomLeaked,
    /// A gang that found no room for all keeps what it found.
    GangUndoForgotten,
    /// Further members go alone while the minimum still waits.
    GangExtrasEarly,
    /// Members that are being deleted count.
    GangCountsDeleting,
    /// Roles have no minimum.
    GangRoleIgnored,
    /// A gang that waits hears of no event.
    GangEventLost,
    /// A round that lost a member goes on.
    GangLossIgnored,
    /// Domains that gangs have for themselves are open to others.
    ExclusiveIgnored,
    /// Members of consecutive ranks sit anywhere.
    SegmentsIgnored,
    /// What a policy says of a gang stays as it was at first.
    PolicyStale,
    /// Members that find no seat in their domain may sit elsewhere.
    TopologyIgnored,
    /// Labels and levels that change while members wait at barriers are not looked at.
    TopologyNotRechecked,
    /// Pods that the agent has not seen count for nothing.
    UnseenIgnored,
    /// What pods had that are gone is never free.
    GoneHolds,
    /// Pods are taken to arrive in the order in which they were made.
    OrderIgnored,
    /// What a kubelet may do is taken for what it does.
    ChanceIgnored,
    /// Pods that others bound ask kubelets for nothing.
    StrangersIgnored,
    /// What a node's agent says later changes nothing of its machine.
    MachineStale,
    /// Refusals of kubelets are not counted.
    RefusalsIgnored,
    /// Devices that pods on their way are expected to get are free for others.
    PredictionsIgnored,
    /// Devices that pods have are free for others.
    HoldersIgnored,
}

#[cfg(any(test, feature = "seeded-bugs"))]
impl Bug {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Overcommit,
        Self::BindBeforeReserve,
        Self::LostEvent,
        Self::LostWake,
        Self::BackoffIgnored,
        Self::ErrorTriedEarly,
        Self::LeakAssumed,
        Self::RebindElsewhere,
        Self::DoubleBind,
        Self::StaleLedger,
        Self::StaleScore,
        Self::UnreserveOrder,
        Self::UnreserveForgotten,
        Self::PortsLeaked,
        Self::PortsIgnored,
        Self::GatedScheduled,
        Self::ForeignScheduled,
        Self::LostOnUpdate,
        Self::RoomNotFreed,
        Self::RelistKeeps,
        Self::TaintIgnored,
        Self::OrderInverted,
        Self::PermitForever,
        Self::ExplanationStale,
        Self::ConditionForgotten,
        Self::BudgetIgnored,
        Self::DryRunSkipped,
        Self::RefusalIgnored,
        Self::VictimOfEqualPriority,
        Self::SuperfluousVictim,
        Self::VictimForgotten,
        Self::PlanNotHeld,
        Self::NeverIgnored,
        Self::VictimGangCut,
        Self::GangVictimSuperfluous,
        Self::GangBudgetIgnored,
        Self::GangPlansTwice,
        Self::ShieldIgnored,
        Self::RateIgnored,
        Self::DelayIgnored,
        Self::SimulateIgnored,
        Self::CheckpointSkipped,
        Self::NominationLeaked,
        Self::RejectorsKept,
        Self::EndsUnderAnother,
        Self::GangPartial,
        Self::GangBarrierSkipped,
        Self::GangRoomLeaked,
        Self::GangUndoForgotten,
        Self::GangExtrasEarly,
        Self::GangCountsDeleting,
        Self::GangRoleIgnored,
        Self::GangEventLost,
        Self::GangLossIgnored,
        Self::ExclusiveIgnored,
        Self::SegmentsIgnored,
        Self::PolicyStale,
        Self::TopologyIgnored,
        Self::TopologyNotRechecked,
    ];

    /// Mistakes with what nodes are inside. Histories and worlds have no kubelets that could
    /// refuse a pod: streams of pods on model kubelets find them.
    pub const ALIGNED: &[Self] = &[
        Self::UnseenIgnored,
        Self::GoneHolds,
        Self::OrderIgnored,
        Self::ChanceIgnored,
        Self::StrangersIgnored,
        Self::MachineStale,
        Self::RefusalsIgnored,
    ];

    /// Mistakes that worlds with GPUs that have ids find, and histories without them do not.
    pub const DEVICES: &[Self] = &[Self::PredictionsIgnored, Self::HoldersIgnored];
}

/// The mistake that is switched on, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bugs {
    #[cfg(any(test, feature = "seeded-bugs"))]
    pub(crate) on: Option<Bug>,
}

impl Bugs {
    #[cfg(any(test, feature = "seeded-bugs"))]
    pub(crate) fn has(self, bug: Bug) -> bool {
        self.on == Some(bug)
    }

    /// Never.
    #[cfg(not(any(test, feature = "seeded-bugs")))]
    #[inline(always)]
    pub(crate) const fn has(self, _: Bug) -> bool {
        false
    }
}

/// Whether a mistake is switched on; false for good without `seeded-bugs`.
macro_rules! bug {
    ($bugs:expr, $name:ident) => {
        $bugs.has($crate::bugs::Bug::$name)
    };
}
pub(crate) use bug;
