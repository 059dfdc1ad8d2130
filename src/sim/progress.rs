//! A progress bar, as a pure function from progress to text.
//!
//! Owns no stream and no clock: the caller says whether it draws on a terminal and
//! gets the bytes to write, if there is anything new to see.

use crate::outcome::Progress;
use crate::time::show_duration;

/// Off a terminal, smaller runs than this say nothing while they run.
const QUIET_PODS: u64 = 5_000;
/// Off a terminal, a line is written at every so many percent.
const LINE_PERCENT: u64 = 25;
const BAR: usize = 30;

/// What was last drawn.
#[derive(Debug)]
pub struct Meter {
    terminal: bool,
    last: Option<u64>,
}

impl Meter {
    /// A meter; on a terminal it redraws one line, else it writes a few.
    #[must_use]
    pub const fn new(terminal: bool) -> Self {
        Self { terminal, last: None }
    }

    /// What to write now, if anything.
    pub fn update(&mut self, progress: &Progress) -> Option<String> {
        let percent = progress.percent();
        let step = if self.terminal { percent } else { percent / LINE_PERCENT };
        let first_line = !self.terminal && step == 0;
        if self.last == Some(step) || first_line || (!self.terminal && progress.pods < QUIET_PODS) {
            return None;
        }
        self.last = Some(step);
        let time = show_duration(progress.time);
        let counts = format!(
            "{} of {} pods placed, {} ended",
            progress.bound, progress.pods, progress.ended
        );
        Some(if self.terminal {
            let full = BAR * usize::try_from(percent).unwrap_or(0) / 100;
            let bar = "█".repeat(full) + &"░".repeat(BAR - full);
            format!("\r{bar} {percent:>3} %  {time:>7}  {counts}\x1b[K")
        } else {
            format!("{percent:>3} %  {time:>7}  {counts}\n")
        })
    }

    /// What to write when the run is over.
    #[must_use]
    pub fn finish(&self) -> Option<&'static str> {
        (self.terminal && self.last.is_some()).then_some("\r\x1b[K")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_a_bar_and_a_log_gets_few_lines() {
        let mut progress = Progress { pods: 10_000, finite: 10_000, ..Progress::default() };
        let mut terminal = Meter::new(true);
        let mut log = Meter::new(false);
        let (mut drawn, mut lines) = (0, Vec::new());
        for n in 0..=10_000 {
            (progress.bound, progress.ended) = (n, n);
            drawn += usize::from(terminal.update(&progress).is_some());
            lines.extend(log.update(&progress));
        }
        assert_eq!(drawn, 101);
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[3], "100 %       0s  10000 of 10000 pods placed, 10000 ended\n");
        assert_eq!((terminal.finish(), log.finish()), (Some("\r\x1b[K"), None));
    }

    #[test]
    fn a_small_run_says_nothing_in_a_log() {
        let progress = Progress { pods: 10, bound: 10, ..Progress::default() };
        assert_eq!(Meter::new(false).update(&progress), None);
    }
}
