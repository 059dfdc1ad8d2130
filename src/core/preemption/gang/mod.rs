//! Whom a gang could push out: the cheapest set of victims over the domains it may use.
//!
//! Owns the arithmetic of the choice, on plain numbers: what every node has left of the
//! resources that members ask for, who could go and what that frees, which gangs would be
//! touched, what budgets allow. Whether members really fit is decided by seating them
//! (`cycle/gang_preempt.rs`). Must never change the state, or know what a plugin says.
//!
//! The cost of a plan is compared in this order: budgets broken, the highest priority
//! among the victims, work lost, gangs touched, pods. Priorities are tried from the lowest
//! on; among plans of one priority the search is greedy, member by member, and gives back
//! what turned out not to be needed. Gangs that have more members than they need lose
//! those first; else they are taken whole, and what that costs is shared by all members
//! that find room there. Of a domain with few pods that could go, all sets of them are tried
//! (`exact`): what the greedy search uses up for one member, a budget or what a gang has to
//! spare, another may have needed.

mod exact;
mod ground;
mod search;
#[cfg(test)]
mod tests;
mod trade;

pub(crate) use ground::{Amounts, Ask, Bond, Ground, Mark, Spot, Takes};
pub(crate) use search::MAX_LIFTED;

/// What a plan costs; the smaller the better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    /// Evictions that a budget forbids.
    pub(crate) violations: u32,
    /// The highest priority among those that have to go.
    pub(crate) priority: i32,
    /// Seconds of work, of all that have to go.
    pub(crate) work: u64,
    /// Gangs that lose members.
    pub(crate) gangs: u32,
    /// Who has to go.
    pub(crate) pods: u32,
}

/// Some pods that would make room for all that is asked for, by numbers of marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Who has to go, in order of numbers; those that go anyway among them.
    pub(crate) marks: Vec<u32>,
    pub(crate) cost: Cost,
    /// In which domain.
    pub(crate) domain: usize,
}
