//! The answer for people.

use std::fmt::Write as _;

use super::{Cure, Why};
use crate::whatif::{Column, Table, age};

/// Nodes that are named where a cure leads to.
const NAMED: usize = 3;

/// The answer as text. `wide`: with what the scheduler would say in an event, and commands.
/// `bold` goes round headings.
#[must_use]
pub fn text(why: &Why, wide: bool, bold: &dyn Fn(&str) -> String) -> String {
    let mut out = String::new();
    let state = why.state.to_lowercase();
    let since = why.seconds.map(|s| format!(", {} old", age(s))).unwrap_or_default();
    let _ = writeln!(out, "{}: {state}{since}", bold(&why.subject));
    let mut line = |name: &str, text: &str| {
        if !text.is_empty() {
            let _ = writeln!(out, "{}  {text}", bold(&format!("{name:<8}")));
        }
    };
    line("Cause:", &why.cause);
    line("Blocker:", &why.blocker);
    line("Nearest:", &why.nearest);
    if let Some(gang) = why.gang.as_ref().filter(|gang| gang.needs > 0) {
        let text = format!(
            "{}: {} of {} members have a place, {} wait",
            gang.group, gang.have, gang.needs, gang.wait
        );
        line("Gang:", &text);
    }
    if wide {
        line("Event:", &why.message);
    }
    if !why.counts.is_empty() {
        let mut table = Table::new(&[
            Column::new("NODES"),
            Column::new("PLUGIN"),
            Column::new("REASON"),
            Column::new("FOR INSTANCE"),
        ]);
        for count in &why.counts {
            let more = if count.nodes > count.examples.len() { ", …" } else { "" };
            table.row(vec![
                count.nodes.to_string(),
                count.plugin.clone(),
                count.reason.clone(),
                format!("{}{more}", count.examples.join(", ")),
            ]);
        }
        let _ = write!(out, "\n{}", table.text(wide, true, 0));
    }
    if !why.cures.is_empty() {
        let _ = writeln!(
            out,
            "\n{} (each was tried on a copy of the cluster):",
            bold("Any one of these would let it run now")
        );
    } else if why.state == "Waiting" && !why.blocker.is_empty() {
        let _ =
            writeln!(out, "\nNone of the {} changes that were tried would let it run.", why.tried);
    }
    for (i, cure) in why.cures.iter().enumerate() {
        let _ = writeln!(out, "{:>3}. {}", i + 1, cure.what);
        if wide {
            let _ = writeln!(out, "     then: {}", places(cure));
        }
        if let Some(command) = &cure.command {
            let _ = writeln!(out, "     {command}");
        }
    }
    out
}

/// `team/a to n1, team/b to n2`.
fn places(cure: &Cure) -> String {
    let to = |(pod, node): (&String, &String)| format!("{pod} to {node}");
    let shown: Vec<String> = cure.places.iter().take(NAMED).map(to).collect();
    let more = cure.places.len().saturating_sub(NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", shown.join(", "))
}
