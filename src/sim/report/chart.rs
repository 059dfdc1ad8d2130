//! Charts made of characters.

use crate::time::{Micros, show_duration};

const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// What stands for nothing in a one-line chart.
pub(crate) const NOTHING: char = '·';

/// Eighths of `height` full blocks; anything above nothing is seen.
fn eighths(share: f64, height: usize) -> usize {
    let full = height * 8;
    if share <= 0.0 {
        return 0;
    }
    ((share.min(1.0) * full as f64).round() as usize).clamp(1, full)
}

/// One character for a share from 0 to 1.
pub(crate) fn spark(share: f64) -> char {
    match eighths(share, 1) {
        0 => NOTHING,
        n => EIGHTHS[n],
    }
}

/// One line for shares from 0 to 1.
pub(crate) fn sparkline(shares: &[f64]) -> String {
    shares.iter().copied().map(spark).collect()
}

/// `length` characters of which `share` is full.
pub(crate) fn bar(share: f64, length: usize) -> String {
    let full = eighths(share, length);
    let mut text = "█".repeat(full / 8);
    if !full.is_multiple_of(8) {
        text.push(EIGHTHS_ACROSS[full % 8]);
    }
    let drawn = text.chars().count();
    text + &NOTHING.to_string().repeat(length.saturating_sub(drawn))
}

const EIGHTHS_ACROSS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// An area chart of shares from 0 to 1, `height` lines high, with both axes.
pub(crate) fn area(shares: &[f64], height: usize, span: Micros) -> Vec<String> {
    let mut lines = Vec::new();
    for row in (0..height).rev() {
        let percent = 100 * (row + 1) / height;
        let cells: String = shares
            .iter()
            .map(|share| EIGHTHS[eighths(*share, height).saturating_sub(row * 8).min(8)])
            .collect();
        lines.push(format!("{percent:>4}% ┤{cells}").trim_end().to_owned());
    }
    lines.push(format!("   0% └{}", "─".repeat(shares.len())));
    lines.push(time_axis(shares.len(), span));
    lines
}

/// Times under a chart: at its beginning, its quarters and its end.
pub(crate) fn time_axis(width: usize, span: Micros) -> String {
    let mut line = " ".repeat(7);
    for quarter in 0..=4 {
        let label = show_duration(span * quarter / 4);
        let column = 7 + width * quarter as usize / 4;
        let length = label.chars().count();
        // The last label ends where the chart ends.
        let start = if quarter == 4 { column.saturating_sub(length) } else { column };
        let now = line.chars().count();
        if quarter > 0 && start < now + 1 {
            continue;
        }
        line.push_str(&" ".repeat(start - now));
        line.push_str(&label);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::HOUR;

    #[test]
    fn charts_are_drawn() {
        assert_eq!(sparkline(&[0.0, 0.001, 0.5, 1.0, 7.0]), "·▁▄██");
        assert_eq!(
            (bar(0.0, 4), bar(0.5, 4), bar(1.0, 4)),
            ("····".into(), "██··".into(), "████".into())
        );
        assert_eq!(bar(0.45, 4), "█▊··");
        let drawn = area(&[0.0, 0.25, 0.5, 1.0], 2, HOUR);
        assert_eq!(drawn[..3], [" 100% ┤   █", "  50% ┤ ▄██", "   0% └────"]);
    }

    #[test]
    fn the_axis_names_quarters() {
        let axis = time_axis(40, HOUR);
        assert_eq!(axis, "       0s        15m       30m       45m     1h");
    }
}
