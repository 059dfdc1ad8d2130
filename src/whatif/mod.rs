//! What would be: a cluster as somebody sees it, and what the scheduler would do there.
//!
//! Owns the way from objects to a copy of the core's state, changes of objects that are tried
//! out on it, and what follows from them: why something waits, and what would let it run. The
//! very core that schedules is asked, so nothing here decides. Must never write to a cluster.

mod age;
mod change;
mod expand;
mod gang;
mod nodes;
mod queue;
mod stage;
mod table;
pub mod why;
mod world;

pub use age::age;
pub use change::{Change, Op, What, step};
pub use expand::{Expanded, MAX_PODS, expand};
pub use gang::{GangView, gang_table, gangs_named};
pub use nodes::{NodeView, node_table, node_views};
pub use queue::{Waiting, queue_table, waiting};
pub use stage::{Ran, Stage};
pub use table::{Column, Table};
pub use world::{Key, World, ended};
