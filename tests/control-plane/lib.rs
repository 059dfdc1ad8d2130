//! A real Kubernetes control plane for tests and benches.
//!
//! Owns: the pinned servers (built once into a cache, see [`binary`]), their
//! processes, certificates, ports and files. Everything listens on loopback,
//! lives in a temporary directory and ends with the [`ControlPlane`] that
//! started it, also after a panic and when the test process is killed.
//!
//! Must never: be a dependency of the program itself; need a network, root or
//! preparation beyond a Go toolchain; sleep where it can wait for a condition;
//! know anything about Muster's scheduling.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use muster_control_plane::ControlPlane;
//! let cp = ControlPlane::builder().kwok(true).start()?;
//! let kubeconfig = cp.kubeconfig("muster", &[])?;
//! # Ok(()) }
//! ```

mod binaries;
mod certs;
mod helm;
mod objects;
mod plane;
mod process;
mod rights;
mod servers;
#[cfg(test)]
mod tests;

pub use binaries::{Binaries, Tool, binaries, binary, version};
pub use helm::helm;
pub use objects::{
    GRACE_SECONDS, RUN_SECONDS, bind, create_nodes, create_objects, create_pods, node, pod,
};
pub use plane::{Builder, ControlPlane, KUBE_SCHEDULER};
pub use process::{Process, cpu_seconds, spawn};
pub use rights::{Asked, Right, asked, rights, unused};
