//! Reads the hardware, again and again.
//!
//! Owns what must be remembered between two readings. Must never block for longer than
//! the time limit of NVML's calls.

use std::time::Instant;

use muster_api::muster::node_topology::{Hardware, Source};

use crate::Sources;
use crate::reading::Reading;
use crate::sysfs::{self, Tree};

/// Called, from another thread, when the hardware has changed and should be read again.
pub type Notify = Box<dyn Fn() + Send>;

/// Reads the hardware of one node.
pub struct Reader {
    sources: Sources,
}

impl Reader {
    /// Fails if a root is not there: then nothing could ever be read.
    pub fn new(sources: Sources, _notify: Notify) -> Result<Self, sysfs::Error> {
        Tree::open(&sources.sysfs_root, "--sysfs-root")?;
        Tree::open(&sources.proc_root, "--proc-root")?;
        Ok(Self { sources })
    }

    /// Everything as it is now. Blocks: to be called from a thread that may wait.
    pub fn hardware(&mut self, _now: Instant) -> Reading {
        let _ = &self.sources;
        let source = Source { agent: env!("CARGO_PKG_VERSION").to_owned(), ..Source::default() };
        Reading {
            hardware: Hardware { source, ..Hardware::default() }.sealed(),
            ..Reading::default()
        }
    }
}
