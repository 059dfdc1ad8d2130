//! Logs of the program: text or JSON on standard error, with klog's verbosity.
//!
//! Owns: the one verbosity of the process (`-v`, `/debug/flags/v`) and what it
//! means for `tracing`. Must never: be used by the core, which reports and does
//! not log; print a secret.
//!
//! | `-v` | what is added |
//! |---|---|
//! | 0, 1 | information, warnings, errors |
//! | 2 | the default: steady state |
//! | 4 | debug |
//! | 5 | the verdict on each node |
//! | 6 | what the libraries say about each request |
//! | 8 | trace |
//! | 10 | the score of each plugin on each node |

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

/// The verbosity of a process that was not told another.
pub const DEFAULT_VERBOSITY: u8 = 2;
/// From here on every decision says what it thought of each node.
pub const VERDICTS: u8 = 5;
/// From here on every decision says what each plugin gave to each node.
pub const SCORES: u8 = 10;

/// Prefix of the targets of our own crates; the rest are libraries.
const OWN: &str = "muster";

static VERBOSITY: AtomicU8 = AtomicU8::new(DEFAULT_VERBOSITY);
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Starts logging. A second call changes only the verbosity, so that tests may
/// each call it.
pub fn init(verbosity: u8, json: bool) {
    let (filter, handle) = reload::Layer::new(targets(verbosity));
    let format = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let format = if json {
        format.json().flatten_event(true).boxed()
    } else {
        format.with_ansi(std::io::stderr().is_terminal()).boxed()
    };
    // A subscriber that a test (or a program that embeds us) has installed
    // before stays.
    let installed = tracing_subscriber::registry().with(filter).with(format).try_init();
    if installed.is_ok() {
        let _ = FILTER.set(handle);
    }
    set_verbosity(verbosity);
}

/// The verbosity in force.
#[must_use]
pub fn verbosity() -> u8 {
    VERBOSITY.load(Ordering::Relaxed)
}

/// Changes the verbosity of the running process.
pub fn set_verbosity(verbosity: u8) {
    VERBOSITY.store(verbosity, Ordering::Relaxed);
    if let Some(handle) = FILTER.get() {
        // Fails only when the subscriber is gone, and with it the need.
        let _ = handle.reload(targets(verbosity));
    }
}

/// Whether lines of this verbosity are wanted: one relaxed load, cheap enough
/// to ask before building what would be logged.
#[must_use]
#[inline]
pub fn enabled(level: u8) -> bool {
    verbosity() >= level
}

/// Logs at information level if the verbosity is at least the first argument,
/// as klog's `V(n).Info` does.
macro_rules! v {
    ($level:expr, $($arg:tt)+) => {
        if $crate::logging::enabled($level) {
            tracing::info!($($arg)+);
        }
    };
}
pub(crate) use v;

/// What `tracing` lets through at a verbosity.
fn targets(verbosity: u8) -> Targets {
    let own = match verbosity {
        0..=3 => LevelFilter::INFO,
        4..=7 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let libraries = match verbosity {
        0..=3 => LevelFilter::WARN,
        4..=5 => LevelFilter::INFO,
        6..=9 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // What kube reports it also returns, and we log it once, with more to say.
    let kube = if verbosity < 4 { LevelFilter::OFF } else { libraries };
    Targets::new().with_default(libraries).with_targets([
        (OWN, own),
        ("kube_client", kube),
        ("kube_runtime", kube),
    ])
}

/// For tests that change the verbosity of the process they share.
#[cfg(test)]
pub(crate) static TEST_LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn verbosity_as_in_klog() {
        for (verbosity, own, library) in [
            (0, Level::INFO, Level::WARN),
            (2, Level::INFO, Level::WARN),
            (4, Level::DEBUG, Level::INFO),
            (5, Level::DEBUG, Level::INFO),
            (6, Level::DEBUG, Level::DEBUG),
            (8, Level::TRACE, Level::DEBUG),
            (10, Level::TRACE, Level::TRACE),
        ] {
            let filter = targets(verbosity);
            for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
                let case = format!("-v {verbosity}, {level}");
                assert_eq!(filter.would_enable("muster::run", &level), level <= own, "{case}");
                assert_eq!(filter.would_enable("muster_core", &level), level <= own, "{case}");
                assert_eq!(filter.would_enable("kube", &level), level <= library, "{case}");
            }
        }
    }

    #[test]
    fn can_be_changed_at_run_time() {
        let _alone = TEST_LOCK.blocking_lock();
        assert_eq!(verbosity(), DEFAULT_VERBOSITY);
        assert!(enabled(2) && !enabled(3));
        set_verbosity(SCORES);
        assert!(enabled(VERDICTS) && enabled(SCORES));
        set_verbosity(DEFAULT_VERBOSITY);
    }
}
