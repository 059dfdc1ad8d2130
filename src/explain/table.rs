//! An explanation for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use muster_core::Explanation;
use muster_core::report::{
    DomainView, GangVictimsView, GangView, NodeVerdict, PolicyInForce, PreemptionView,
};

/// Rejected nodes that are listed by name; more are counted by reason.
const NAMED: usize = 20;
/// Names of nodes shown per reason when they are counted.
const EXAMPLES: usize = 3;

/// The best node first and marked, then the others by score, then why the rest
/// is out: by node if they are few, by reason if they are many.
#[must_use]
pub fn table(e: &Explanation) -> String {
    let mut out = String::new();
    let total = e.nodes.len();
    let _ = writeln!(out, "pod {}: {} of {total} nodes fit", e.pod, e.feasible_nodes);
    if !e.suggested_host.is_empty() {
        let _ = writeln!(out, "best node: {}", e.suggested_host);
    }
    if !e.message.is_empty() {
        let _ = writeln!(out, "{}", e.message);
    }
    if let Some(gang) = &e.gang {
        members(&mut out, gang);
    }
    for PolicyInForce { name, priority, decides } in &e.policies {
        let decides =
            if decides.is_empty() { "nothing here".to_owned() } else { decides.join(", ") };
        let _ = writeln!(out, "policy {name} (priority {priority}) decides {decides}");
    }
    if let Some(preemption) = &e.preemption {
        victims(&mut out, preemption);
    }
    let (fit, out_of_it): (Vec<_>, Vec<_>) = e.nodes.iter().partition(|(_, v)| v.status == "ok");
    if !fit.is_empty() {
        out.push('\n');
        scores(&mut out, e, fit);
    }
    if !out_of_it.is_empty() {
        out.push('\n');
        if out_of_it.len() <= NAMED {
            by_node(&mut out, &out_of_it);
        } else {
            by_reason(&mut out, &out_of_it);
        }
    }
    out
}

/// How the pod's gang stands, and where its members would go.
fn members(out: &mut String, gang: &GangView) {
    let GangView { group, needs, have, wait, message, placed, domains, preemption } = gang;
    let _ = write!(out, "gang {group}: {have} of {needs} members have a place, {wait} wait");
    if !message.is_empty() {
        let _ = write!(out, ": {message}");
    } else if !placed.is_empty() {
        let _ = write!(out, "; all that are missing find room now:");
    }
    out.push('\n');
    let missing = needs.saturating_sub(*have);
    for domain in domains.iter().take(NAMED) {
        let DomainView { domain, fits, nodes, blocker } = domain;
        let why = if blocker.is_empty() { String::new() } else { format!("; {blocker}") };
        let _ = writeln!(out, "  {domain}: room for {fits} of {missing} on {nodes} nodes{why}");
    }
    if let Some(GangVictimsView { victims, count, stay }) = preemption {
        let shown = victims.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = count.saturating_sub(victims.len().min(NAMED));
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let nobody = if *count == 0 { "nobody" } else { "" };
        let _ = writeln!(out, "  would push out: {nobody}{shown}{more}");
        for why in stay {
            let _ = writeln!(out, "  stay: {why}");
        }
    }
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (member, node) in placed {
        nodes.entry(node).or_default().push(member);
    }
    for (node, members) in nodes.iter().take(NAMED) {
        let more = members.len().saturating_sub(EXAMPLES);
        let shown = members[..members.len() - more].join(", ");
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(out, "  {node}: {shown}{rest}");
    }
    if nodes.len() > NAMED {
        let _ = writeln!(out, "  and {} more nodes", nodes.len() - NAMED);
    }
}

/// Who could be evicted where: the chosen node first and marked, then by name.
fn victims(out: &mut String, preemption: &PreemptionView) {
    if !preemption.held.is_empty() {
        let _ = writeln!(out, "nobody is evicted now: {}", preemption.held);
    }
    for (pod, why) in preemption.protected.iter().take(NAMED) {
        let _ = writeln!(out, "{pod} stays: {why}");
    }
    if preemption.protected.len() > NAMED {
        let _ = writeln!(out, "and {} more stay", preemption.protected.len() - NAMED);
    }
    if preemption.candidates.is_empty() {
        return;
    }
    out.push('\n');
    let heading = ["  EVICTION FROM", "AGAINST BUDGETS", "PODS"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let mut nodes: Vec<_> = preemption.candidates.iter().collect();
    nodes.sort_by_key(|(name, _)| **name != preemption.node);
    for (name, victims) in nodes.iter().take(NAMED) {
        let mark = if **name == preemption.node { "*" } else { " " };
        let more = victims.pods.len().saturating_sub(EXAMPLES);
        let mut pods = victims.pods[..victims.pods.len() - more].join(", ");
        if more > 0 {
            let _ = write!(pods, " and {more} more");
        }
        rows.push(vec![format!("{mark} {name}"), victims.pdb_violations.to_string(), pods]);
    }
    if nodes.len() > NAMED {
        rows.push(vec![
            format!("  and {} more", nodes.len() - NAMED),
            String::new(),
            String::new(),
        ]);
    }
    grid(out, &rows, 3);
}

/// A grid with the first row as heading: text to the left, numbers to the right.
fn grid(out: &mut String, rows: &[Vec<String>], numbers_from: usize) {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (c, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if c == 0 { "" } else { "  " };
            let _ = if c >= numbers_from {
                write!(line, "{gap}{cell:>width$}")
            } else {
                write!(line, "{gap}{cell:<width$}")
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

fn scores(out: &mut String, e: &Explanation, mut fit: Vec<(&String, &NodeVerdict)>) {
    fit.sort_by_key(|(name, v)| {
        (**name != e.suggested_host, std::cmp::Reverse(v.total), (*name).clone())
    });
    let plugins: Vec<&str> =
        fit.first().map_or_else(Vec::new, |(_, v)| v.scores.keys().copied().collect());
    let mut heading = vec!["  NODE".to_owned(), "TOTAL".to_owned()];
    heading.extend(plugins.iter().map(ToString::to_string));
    let mut rows = vec![heading];
    for (name, verdict) in &fit {
        let mark = if **name == e.suggested_host { "*" } else { " " };
        let number = |n: Option<i64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let mut row = vec![format!("{mark} {name}"), number(verdict.total)];
        row.extend(plugins.iter().map(|p| number(verdict.scores.get(p).copied())));
        rows.push(row);
    }
    grid(out, &rows, 1);
    notes(out, e, &fit);
}

/// What plugins say of scores in words: of the best nodes, if any do.
fn notes(out: &mut String, e: &Explanation, fit: &[(&String, &NodeVerdict)]) {
    let mut rows = vec![["  NODE", "PLUGIN", "SAYS"].map(str::to_owned).to_vec()];
    for (name, verdict) in fit.iter().take(NAMED) {
        let mark = if **name == e.suggested_host { "*" } else { " " };
        let row = |(plugin, note): (&&str, &String)| {
            vec![format!("{mark} {name}"), (*plugin).to_owned(), note.clone()]
        };
        rows.extend(verdict.notes.iter().map(row));
    }
    if rows.len() > 1 {
        out.push('\n');
        grid(out, &rows, 3);
    }
}

/// What the code of a verdict means.
fn meaning(status: &str) -> &'static str {
    match status {
        "U" => "not now",
        "UU" => "never here",
        _ => "error",
    }
}

fn by_node(out: &mut String, nodes: &[(&String, &NodeVerdict)]) {
    let mut rows = vec![["  NODE", "VERDICT", "PLUGIN", "REASONS"].map(str::to_owned).to_vec()];
    for (name, v) in nodes {
        let plugin = if v.plugin.is_empty() { "-" } else { &v.plugin };
        let reasons = v.reasons.join(", ");
        rows.push(vec![
            format!("  {name}"),
            meaning(v.status).to_owned(),
            plugin.to_owned(),
            reasons,
        ]);
    }
    grid(out, &rows, 4);
}

fn by_reason(out: &mut String, nodes: &[(&String, &NodeVerdict)]) {
    let mut groups: BTreeMap<(&str, &str, String), Vec<&str>> = BTreeMap::new();
    for (name, v) in nodes {
        let key = (v.status, v.plugin.as_str(), v.reasons.join(", "));
        groups.entry(key).or_default().push(name);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    let heading = ["  NODES", "VERDICT", "PLUGIN", "REASONS", "FOR INSTANCE"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for ((status, plugin, reasons), names) in groups {
        let plugin = if plugin.is_empty() { "-" } else { plugin };
        let mut examples = names[..names.len().min(EXAMPLES)].join(", ");
        if names.len() > EXAMPLES {
            examples += ", …";
        }
        rows.push(vec![
            format!("  {}", names.len()),
            meaning(status).to_owned(),
            plugin.to_owned(),
            reasons,
            examples,
        ]);
    }
    grid(out, &rows, 5);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_plugins_say_is_below_the_scores() {
        let verdict = |points: i64, note: &str| NodeVerdict {
            status: "ok",
            scores: [("GpuLinks", points)].into(),
            total: Some(points),
            notes: [("GpuLinks", note.to_owned())].into(),
            ..NodeVerdict::default()
        };
        let nodes = [("a", 87, "GPU 0,1"), ("b", 100, "GPU 4,5")];
        let explanation = Explanation {
            pod: "team/p".to_owned(),
            suggested_host: "b".to_owned(),
            evaluated_nodes: 2,
            feasible_nodes: 2,
            nodes: nodes
                .map(|(name, points, note)| (name.to_owned(), verdict(points, note)))
                .into(),
            message: String::new(),
            preemption: None,
            gang: None,
            policies: Vec::new(),
        };
        let expected = "\
pod team/p: 2 of 2 nodes fit
best node: b

  NODE  TOTAL  GpuLinks
* b       100       100
  a        87        87

  NODE  PLUGIN    SAYS
* b     GpuLinks  GPU 4,5
  a     GpuLinks  GPU 0,1
";
        assert_eq!(table(&explanation), expected);
    }
}
