//! The network between nodes as people see it: a tree of domains with nodes and
//! GPUs counted.
//!
//! Owns: what counts as a GPU and as a node that takes pods, the tree, kept up to
//! date node by node, and its forms: a table, JSON, a picture, the status of a
//! `ClusterTopology`. Must never do I/O, read a clock or influence a decision:
//! the core has a tree of its own for that.

mod census;
mod gpus;
mod layout;
mod order;
mod status;
mod svg;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod view;

pub use census::Census;
pub use gpus::{Gpus, idle_because, is_gpu, of_node};
pub use order::natural;
pub use status::{counted, domain_of};
pub use svg::svg;
pub use table::{Rows, table};
pub use tree::{Room, Sums, Tree};
pub use view::{DomainView, GpuCounts, Lacking, LevelView, NodeCounts, NodeView, View};
