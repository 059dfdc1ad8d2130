//! The program `muster`; everything is in the library.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    muster::run(muster::Registry::default())
}
