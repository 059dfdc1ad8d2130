//! `/livez`, `/readyz`, `/healthz` in upstream's words.
//!
//! Owns the form of the answer. Open to everybody, so it must never say more
//! than which check failed; why is in the log and behind authorisation.

use std::fmt::Write;

/// Named checks with their results.
pub(super) type Checks = Vec<(&'static str, Result<(), String>)>;

/// What the query of a request asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    verbose: bool,
    excluded: Vec<String>,
}

/// How many `exclude` are honoured.
const MAX_EXCLUDED: usize = 16;

impl Wishes {
    /// From a query string: `verbose`, `exclude=ping`.
    pub(super) fn parse(query: &str) -> Self {
        let mut wishes = Self::default();
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match key {
                "verbose" => wishes.verbose = true,
                "exclude" if wishes.excluded.len() < MAX_EXCLUDED => {
                    wishes.excluded.push(value.to_owned());
                }
                _ => {}
            }
        }
        wishes
    }
}

/// The answer: whether all is well, and the text.
pub(super) fn answer(name: &str, checks: &Checks, wishes: &Wishes) -> (bool, String) {
    let mut text = String::new();
    let mut failed = Vec::new();
    for (check, result) in checks {
        // Writing to a string cannot fail.
        let _ = match result {
            _ if wishes.excluded.iter().any(|excluded| excluded == check) => {
                writeln!(text, "[+]{check} excluded: ok")
            }
            Ok(()) => writeln!(text, "[+]{check} ok"),
            Err(reason) => {
                failed.push(format!("{check}: {reason}"));
                writeln!(text, "[-]{check} failed: reason withheld")
            }
        };
    }
    let known = |excluded: &&String| checks.iter().all(|(check, _)| check != excluded);
    let unknown: Vec<_> = wishes.excluded.iter().filter(known).map(|e| format!("{e:?}")).collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        let _ =
            writeln!(text, "warn: some health checks cannot be excluded: no matches for {unknown}");
    }
    if !failed.is_empty() {
        tracing::debug!(check = name, reasons = failed.join("; "), "check failed");
        let _ = writeln!(text, "{name} check failed");
        return (false, text);
    }
    if !wishes.verbose {
        return (true, "ok".to_owned());
    }
    let _ = writeln!(text, "{name} check passed");
    (true, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_upstreams_words() {
        let well = || vec![("ping", Ok(())), ("shutdown", Ok(()))];
        let ill = || vec![("ping", Ok(())), ("sched-handler-sync", Err("not yet".to_owned()))];
        for (checks, query, healthy, expected) in [
            (well(), "", true, "ok"),
            (well(), "verbose", true, "[+]ping ok\n[+]shutdown ok\nreadyz check passed\n"),
            (well(), "verbose=1&x=2", true, "[+]ping ok\n[+]shutdown ok\nreadyz check passed\n"),
            (
                ill(),
                "",
                false,
                "[+]ping ok\n[-]sched-handler-sync failed: reason withheld\nreadyz check failed\n",
            ),
            (ill(), "exclude=sched-handler-sync", true, "ok"),
            (
                ill(),
                "verbose&exclude=sched-handler-sync",
                true,
                "[+]ping ok\n[+]sched-handler-sync excluded: ok\nreadyz check passed\n",
            ),
            (
                well(),
                "verbose&exclude=nothing",
                true,
                "[+]ping ok\n[+]shutdown ok\nwarn: some health checks cannot be excluded: no matches for \"nothing\"\nreadyz check passed\n",
            ),
        ] {
            let answer = answer("readyz", &checks, &Wishes::parse(query));
            assert_eq!(answer, (healthy, expected.to_owned()), "{query}");
        }
    }
}
