//! The program `muster`; everything is in the library.
#![forbid(unsafe_code)]

/// Decoding and writing objects is mostly small, short-lived allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    muster::run(muster::Registry::default())
}
