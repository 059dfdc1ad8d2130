//! The tree for a terminal.

use std::fmt::Write as _;

use super::view::{DomainView, GpuCounts, NodeCounts, NodeView, View};

/// How far down the rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Domains.
    Domains,
    /// Domains and nodes.
    Nodes,
}

const HEADING: [&str; 7] = ["DOMAIN", "LEVEL", "NODES", "IDLE", "GPUS", "USED", "FREE"];
/// Columns of text at the left; the rest are numbers.
const TEXTS: usize = 2;

/// A line on the whole, a row per domain, and what nodes lack.
#[must_use]
pub fn table(view: &View, rows: Rows) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", headline(view));
    let mut lines = vec![HEADING.map(str::to_owned)];
    view.domains.iter().for_each(|domain| add_domain(&mut lines, domain, 0, rows));
    if rows == Rows::Nodes {
        view.node_list.iter().for_each(|node| add_node(&mut lines, node, 0));
    }
    out.push('\n');
    if lines.len() > 1 {
        grid(&mut out, &lines);
    } else {
        let _ = writeln!(out, "No node has a label of this topology.");
    }
    if !view.lacking.is_empty() {
        out.push('\n');
    }
    for lacking in &view.lacking {
        let more = if lacking.nodes > lacking.examples.len() { ", …" } else { "" };
        let _ = writeln!(
            out,
            "{} without the label {} ({}): {}{more}",
            plural(lacking.nodes as i64, "node"),
            lacking.node_label,
            lacking.level,
            lacking.examples.join(", "),
        );
    }
    out
}

/// `gpu-fabric: block > rack > host`.
pub(super) fn title(view: &View) -> String {
    let levels: Vec<&str> = view.levels.iter().map(|l| l.name.as_str()).collect();
    let levels = levels.join(" > ");
    if view.name.is_empty() { levels } else { format!("{}: {levels}", view.name) }
}

/// `6 nodes, 48 GPUs: 20 used, 20 free, 8 on nodes that take no pods`.
pub(super) fn totals(view: &View) -> String {
    let GpuCounts { total, used, free } = view.gpus;
    let mut text = format!("{}, {}", plural(view.nodes.total, "node"), plural(total, "GPU"));
    if total > 0 {
        let _ = write!(text, ": {used} used, {free} free");
    }
    let closed = view.gpus.closed();
    if closed > 0 {
        let _ = write!(text, ", {closed} on nodes that take no pods");
    }
    text
}

fn headline(view: &View) -> String {
    format!("{}\n{}", title(view), totals(view))
}

/// A label may have an empty value.
pub(super) fn shown(name: &str) -> &str {
    if name.is_empty() { "\"\"" } else { name }
}

pub(super) fn plural(n: i64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn add_domain(lines: &mut Vec<[String; 7]>, domain: &DomainView, depth: usize, rows: Rows) {
    let NodeCounts { total, idle, .. } = domain.nodes;
    let gpus = &domain.gpus;
    lines.push([
        format!("{}{}", "  ".repeat(depth), shown(&domain.name)),
        domain.level.clone(),
        total.to_string(),
        idle.to_string(),
        gpus.total.to_string(),
        gpus.used.to_string(),
        gpus.free.to_string(),
    ]);
    domain.domains.iter().for_each(|inner| add_domain(lines, inner, depth + 1, rows));
    if rows == Rows::Nodes {
        domain.node_list.iter().for_each(|node| add_node(lines, node, depth + 1));
    }
}

fn add_node(lines: &mut Vec<[String; 7]>, node: &NodeView, depth: usize) {
    let gpus = &node.gpus;
    let idle = i64::from(gpus.total > 0 && gpus.free == gpus.total);
    let mark = node.closed.map(|because| format!(" ({because})")).unwrap_or_default();
    lines.push([
        format!("{}{}{mark}", "  ".repeat(depth), node.name),
        "node".to_owned(),
        "1".to_owned(),
        idle.to_string(),
        gpus.total.to_string(),
        gpus.used.to_string(),
        gpus.free.to_string(),
    ]);
}

fn grid(out: &mut String, lines: &[[String; 7]]) {
    let mut widths = [0; 7];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for line in lines {
        for (i, (cell, width)) in line.iter().zip(widths).enumerate() {
            let gap = if i == 0 { "" } else { "   " };
            let _ = if i < TEXTS {
                write!(out, "{gap}{cell:<width$}")
            } else {
                write!(out, "{gap}{cell:>width$}")
            };
        }
        out.push('\n');
    }
}
