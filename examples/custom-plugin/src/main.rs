//! Muster with the plugin GpuIdleness.

mod gpu_idleness;

fn main() -> std::process::ExitCode {
    let registry = muster::Registry::default()
        .plugin(gpu_idleness::NAME, gpu_idleness::GpuIdleness::new)
        .feed(gpu_idleness::NAME, gpu_idleness::feed);
    muster::run(registry)
}
