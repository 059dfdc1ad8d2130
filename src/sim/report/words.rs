//! Small words: numbers, lists of nodes, columns, wrapped lines.

use std::collections::BTreeMap;

/// `1234567` as `1,234,567`.
pub(crate) fn count(n: impl TryInto<i128>) -> String {
    let n = n.try_into().unwrap_or_default();
    let digits = n.unsigned_abs().to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if n < 0 { format!("-{text}") } else { text }
}

/// `1 pod`, `2 pods`.
pub(crate) fn plural(n: u64, word: &str) -> String {
    format!("{} {word}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Thousandths of a CPU as `4` or `1.5`.
pub(crate) fn cpus(milli: i64) -> String {
    let text = format!("{}.{:03}", count(milli / 1000), milli % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Bytes in the largest binary unit that is exact.
pub(crate) fn bytes(n: i64) -> String {
    let units = [(1i64 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    match units.iter().find(|(size, _)| n != 0 && n % size == 0) {
        Some((size, unit)) => format!("{}{unit}", n / size),
        None => n.to_string(),
    }
}

/// Names with runs of numbers drawn together: `gpu-0..3, cpu-1`.
pub(crate) fn node_list<'a>(names: impl Iterator<Item = &'a str>, width: usize) -> String {
    let mut runs: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut plain: Vec<&str> = Vec::new();
    let mut total = 0u64;
    for name in names {
        total += 1;
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        match name[prefix.len()..].parse() {
            Ok(number) if !name[prefix.len()..].starts_with("00") => {
                runs.entry(prefix).or_default().push(number);
            }
            _ => plain.push(name),
        }
    }
    let mut parts: Vec<(String, u64)> = plain.iter().map(|name| ((*name).to_owned(), 1)).collect();
    for (prefix, mut numbers) in runs {
        numbers.sort_unstable();
        for run in numbers.chunk_by(|a, b| *b == a + 1) {
            let (first, last) = (run[0], run[run.len() - 1]);
            let text = match run.len() {
                1 => format!("{prefix}{first}"),
                2 => format!("{prefix}{first},{last}"),
                _ => format!("{prefix}{first}..{last}"),
            };
            parts.push((text, run.len() as u64));
        }
    }
    join_within(&parts, total, width)
}

fn join_within(parts: &[(String, u64)], total: u64, width: usize) -> String {
    let mut text = String::new();
    let mut said = 0;
    for (i, (part, nodes)) in parts.iter().enumerate() {
        let separator = if i == 0 { "" } else { " " };
        if i > 0 && text.chars().count() + 1 + part.chars().count() > width {
            return format!("{text} +{} more", count(total - said));
        }
        text.push_str(separator);
        text.push_str(part);
        said += nodes;
    }
    text
}

/// Breaks a text into lines of at most `width` characters.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// Rows as aligned columns; `right` tells which columns are numbers.
pub(crate) fn columns(rows: &[Vec<String>], right: &[bool]) -> Vec<String> {
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..right.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).zip(right).map(|((cell, width), right)| {
            if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(-1_000), "-1,000");
        assert_eq!(
            (cpus(4_000), cpus(1_500), cpus(250)),
            ("4".into(), "1.5".into(), "0.25".into())
        );
        assert_eq!(
            (bytes(16 << 30), bytes(3 << 40), bytes(7)),
            ("16Gi".into(), "3Ti".into(), "7".into())
        );
    }

    #[test]
    fn runs_of_nodes_are_drawn_together() {
        let list = |names: &[&str], width| node_list(names.iter().copied(), width);
        assert_eq!(list(&["b-0", "b-1", "b-2", "a-7", "solo"], 80), "solo a-7 b-0..2");
        assert_eq!(list(&["n-1", "n-2", "n-9"], 80), "n-1,2 n-9");
        assert_eq!(list(&["n-1", "n-3", "n-5", "n-7"], 10), "n-1 n-3 +2 more");
    }

    #[test]
    fn lines_are_wrapped() {
        assert_eq!(wrap("a bb ccc dddd", 6), ["a bb", "ccc", "dddd"]);
        assert_eq!(wrap("", 6), [""]);
    }
}
