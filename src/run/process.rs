//! What concerns the process as a whole: threads, name, panics.

use tracing::{error, warn};

/// The core's parallel parts use as many threads as the configuration says, and
/// no more than there are cores.
pub(super) fn size_pool(parallelism: i32) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = usize::try_from(parallelism).unwrap_or(1).clamp(1, cores);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    if let Err(error) = pool.thread_name(|i| format!("core-{i}")).build_global() {
        warn!("the core's thread pool keeps its size: {error}");
    }
}

/// The host's name (in a cluster the pod's), for events.
pub(super) fn hostname() -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let host = host.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    host.as_deref().map_or("unknown", str::trim).to_owned()
}

/// A panic goes to the log as well as to standard error.
pub(super) fn log_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        error!("panic: {panic}");
        default(panic);
    }));
}
