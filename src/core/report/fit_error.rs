//! Upstream's FitError text.

use std::collections::BTreeMap;

/// `0/N nodes are available: ` and a histogram of reasons, sorted as strings.
///
/// `reasons` are (nodes, reasons of that verdict): a node with two reasons
/// counts in both.
#[must_use]
pub fn fit_message<'a>(
    nodes: usize,
    reasons: impl IntoIterator<Item = (u32, &'a [std::sync::Arc<str>])>,
) -> String {
    let mut histogram: BTreeMap<&str, u32> = BTreeMap::new();
    for (count, list) in reasons {
        for reason in list {
            *histogram.entry(reason).or_default() += count;
        }
    }
    let mut items: Vec<String> = histogram.iter().map(|(r, n)| format!("{n} {r}")).collect();
    items.sort_unstable();
    if items.is_empty() {
        return format!("0/{nodes} nodes are available:");
    }
    format!("0/{nodes} nodes are available: {}.", items.join(", "))
}

/// Events carry at most this many bytes.
const NOTE_LIMIT: usize = 1024;

/// Cuts a note as upstream does: 1,024 bytes, ending in ` ...`.
pub(crate) fn truncate_note(note: &str) -> std::sync::Arc<str> {
    if note.len() <= NOTE_LIMIT {
        return note.into();
    }
    let mut end = NOTE_LIMIT - 4;
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} ...", &note[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_over_nodes_and_sorted_as_strings() {
        let cpu = ["Insufficient cpu".into()];
        let both = ["Insufficient cpu".into(), "Insufficient memory".into()];
        let taint = ["node(s) had untolerated taint(s)".into()];
        let message = fit_message(15, [(8, &cpu[..]), (2, &both[..]), (5, &taint[..])]);
        // "10 …" sorts before "2 …" because the items are sorted as strings.
        assert_eq!(
            message,
            "0/15 nodes are available: 10 Insufficient cpu, 2 Insufficient memory, \
             5 node(s) had untolerated taint(s)."
        );
    }

    #[test]
    fn a_long_note_is_cut_to_1024_bytes_at_a_character() {
        let note = "ü".repeat(600);
        let cut = truncate_note(&note);
        assert!(cut.len() <= 1024 && cut.ends_with(" ..."), "{}", cut.len());
        assert_eq!(&*truncate_note("short"), "short");
    }
}
