//! Where everything goes in a picture: boxes in boxes, nodes in the innermost ones.
//! Whole pixels only, so that equal trees give equal bytes.

use super::table::{plural, shown};
use super::text;
use super::view::{DomainView, GpuCounts, NodeView, View};

/// Cells drawn for one node; more GPUs than this are drawn in proportion.
const MAX_CELLS: i64 = 16;
/// Widths that are tried for a row of boxes.
const TRIES: usize = 128;
/// Width over height that a box should have, in tenths.
const SHAPE: i64 = 16;
/// Characters of a name that a box makes room for.
const NAME: usize = 22;

/// Sizes, in pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Side of the square that is one GPU.
    pub(super) cell: i32,
    /// Between two of them.
    pub(super) gap: i32,
    /// Between two nodes.
    pub(super) between: i32,
    /// Between a box and what is in it, and between two boxes.
    pub(super) pad: i32,
    /// Size of text in the innermost boxes.
    pub(super) font: i32,
    /// Whether names and counts of the innermost boxes are below each other.
    stacked: bool,
    /// How wide the widest of their titles is: boxes of one width stand in columns.
    title: i32,
}

impl Style {
    /// The more there is to draw, the smaller it is drawn.
    pub(super) fn of(view: &View) -> Self {
        let mut leaves = Vec::new();
        let loose = (!view.node_list.is_empty()).then_some(&view.node_list);
        leaves.extend(loose);
        view.domains.iter().for_each(|domain| gather(domain, &mut leaves));
        let nodes = leaves.iter().flat_map(|nodes| nodes.iter());
        let cells: i64 = nodes.map(|node| node.gpus.total.clamp(1, MAX_CELLS)).sum();
        let (cell, font) = match cells {
            ..=1_500 => (11, 13),
            1_501..=6_000 => (8, 12),
            6_001..=20_000 => (6, 11),
            20_001..=60_000 => (5, 10),
            _ => (4, 9),
        };
        let gap = if cell > 6 { 2 } else { 1 };
        let (between, pad) = (cell / 2 + gap, cell.max(6));
        let mut style = Self { cell, gap, between, pad, font, stacked: false, title: 0 };
        style.stacked = view.domains.iter().any(|domain| style.is_tight(domain));
        style.title = view.domains.iter().map(|domain| style.longest(domain)).max().unwrap_or(0);
        style
    }

    /// The width of the widest title of an innermost box.
    fn longest(&self, domain: &DomainView) -> i32 {
        if domain.domains.is_empty() {
            return leaf_title(shown(&domain.name), &short_counts(domain), self, 0).1;
        }
        domain.domains.iter().map(|inner| self.longest(inner)).max().unwrap_or(0)
    }

    /// Whether the title of an innermost box is longer than its nodes are wide.
    fn is_tight(&self, domain: &DomainView) -> bool {
        if !domain.domains.is_empty() {
            return domain.domains.iter().any(|inner| self.is_tight(inner));
        }
        let (w, _, _) = grid(&domain.node_list, self);
        text::width(&format!("{} {}", shown(&domain.name), short_counts(domain)), self.font) > w
    }

    fn line(&self, font: i32) -> i32 {
        font + self.pad / 2
    }
}

fn gather<'a>(domain: &'a DomainView, leaves: &mut Vec<&'a Vec<NodeView>>) {
    leaves.push(&domain.node_list);
    domain.domains.iter().for_each(|inner| gather(inner, leaves));
}

/// A box, placed relative to the one that it is in.
#[derive(Debug)]
pub(super) struct Block<'a> {
    pub(super) x: i32,
    pub(super) y: i32,
    pub(super) w: i32,
    pub(super) h: i32,
    /// What it is called; shortened if it must be.
    pub(super) name: String,
    /// The name in full, and all counts.
    pub(super) hint: String,
    pub(super) counts: String,
    pub(super) font: i32,
    /// Whether counts are below the name.
    pub(super) stacked: bool,
    pub(super) look: Look,
    pub(super) blocks: Vec<Block<'a>>,
    pub(super) nodes: Vec<Spot<'a>>,
}

/// What a box is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// A domain with domains in it.
    Outer,
    /// A domain with nodes in it.
    Inner,
    /// The same, with GPUs that are all free.
    Idle,
    /// No domain: nodes that lack a label.
    Loose,
}

/// A node and where it goes.
#[derive(Debug)]
pub(super) struct Spot<'a> {
    pub(super) x: i32,
    pub(super) y: i32,
    pub(super) node: &'a NodeView,
}

/// Boxes of the widest level, placed, and how much room they take.
pub(super) fn place<'a>(view: &'a View, style: &Style) -> (Vec<Block<'a>>, i32, i32) {
    let depth = view.levels.len();
    let mut blocks: Vec<Block<'_>> =
        view.domains.iter().map(|domain| block(domain, depth, view, style)).collect();
    if !view.node_list.is_empty() {
        blocks.push(loose(&view.node_list, view, 0, style));
    }
    let (w, h) = shelve(&mut blocks, style);
    (blocks, w, h)
}

/// The cells of a node: columns, and how many are used, free and closed.
pub(super) fn cells(gpus: &GpuCounts) -> (i64, [i64; 3]) {
    let (total, used, closed) = (gpus.total, gpus.used, gpus.closed());
    let drawn = total.min(MAX_CELLS);
    // Rounded up: what is in use must be seen.
    let share = |n: i64| if total > 0 { (n * drawn + total - 1) / total } else { 0 };
    let used = share(used).min(drawn);
    let closed = share(closed).min(drawn - used);
    let columns = if drawn <= 4 { drawn.max(1) } else { (drawn + 1) / 2 };
    (columns, [used, drawn - used - closed, closed])
}

/// Width and height of what a node is drawn as.
fn size(node: &NodeView, style: &Style) -> (i32, i32) {
    let (columns, parts) = cells(&node.gpus);
    let drawn = parts.iter().sum::<i64>().max(1);
    let rows = (drawn + columns - 1) / columns;
    let length = |n: i64| {
        let n = i32::try_from(n).unwrap_or(1);
        n * style.cell + (n - 1) * style.gap
    };
    (length(columns), length(rows))
}

/// Width and height of a grid of nodes, and its columns.
fn grid(nodes: &[NodeView], style: &Style) -> (i32, i32, usize) {
    let (w, h) = widest(nodes, style);
    let size = |columns: usize| {
        let rows = nodes.len().div_ceil(columns);
        let length = |n: usize, of: i32| {
            let n = i32::try_from(n).unwrap_or(i32::MAX / 1024);
            n * of + (n - 1).max(0) * style.between
        };
        (length(columns, w), length(rows, h))
    };
    let columns = (1..=nodes.len().clamp(1, TRIES)).min_by_key(|n| cost(size(*n)));
    let columns = columns.unwrap_or(1);
    let (w, h) = size(columns);
    (w, h, columns)
}

fn widest(nodes: &[NodeView], style: &Style) -> (i32, i32) {
    nodes
        .iter()
        .map(|node| size(node, style))
        .fold((style.cell, style.cell), |a, b| (a.0.max(b.0), a.1.max(b.1)))
}

/// How bad a width and height are: neither should be long for the other.
fn cost((w, h): (i32, i32)) -> i64 {
    (i64::from(w) * 10).max(i64::from(h) * SHAPE)
}

/// Places boxes in rows, in order; returns width and height.
fn shelve(blocks: &mut [Block<'_>], style: &Style) -> (i32, i32) {
    let step = blocks.len().div_ceil(TRIES).max(1);
    let widths = (1..=blocks.len())
        .step_by(step)
        .map(|n| blocks[..n].iter().map(|b| b.w + style.pad).sum::<i32>() - style.pad);
    let best = widths.min_by_key(|limit| cost(rows(blocks, *limit, style, |_, _, _| {})));
    let Some(limit) = best else { return (0, 0) };
    let mut places = Vec::with_capacity(blocks.len());
    let size = rows(blocks, limit, style, |_, x, y| places.push((x, y)));
    for (block, (x, y)) in blocks.iter_mut().zip(places) {
        (block.x, block.y) = (x, y);
    }
    size
}

/// Goes through the rows that a width gives; returns width and height.
fn rows(
    blocks: &[Block<'_>],
    limit: i32,
    style: &Style,
    mut each: impl FnMut(usize, i32, i32),
) -> (i32, i32) {
    let (mut x, mut y, mut row, mut width) = (0, 0, 0, 0);
    for (i, block) in blocks.iter().enumerate() {
        if x > 0 && x + block.w > limit {
            (x, y, row) = (0, y + row + style.pad, 0);
        }
        each(i, x, y);
        (x, row) = (x + block.w + style.pad, row.max(block.h));
        width = width.max(x - style.pad);
    }
    (width, y + row)
}

/// `3/8`, or how many nodes there are if they have no GPUs.
fn short_counts(domain: &DomainView) -> String {
    let GpuCounts { total, free, .. } = domain.gpus;
    if total > 0 { format!("{free}/{total}") } else { plural(domain.nodes.total, "node") }
}

fn block<'a>(domain: &'a DomainView, depth: usize, view: &View, style: &Style) -> Block<'a> {
    let GpuCounts { total, used, free } = domain.gpus;
    let hint = format!(
        "{} {}: {}, {}, {used} used, {free} free",
        domain.level,
        domain.name,
        plural(domain.nodes.total, "node"),
        plural(total, "GPU"),
    );
    if domain.domains.is_empty() {
        let look = if total > 0 && free == total { Look::Idle } else { Look::Inner };
        return leaf(
            shown(&domain.name),
            hint,
            short_counts(domain),
            look,
            &domain.node_list,
            style,
        );
    }
    let mut blocks: Vec<Block<'_>> =
        domain.domains.iter().map(|inner| block(inner, depth - 1, view, style)).collect();
    if !domain.node_list.is_empty() {
        let level = view.levels.len() + 1 - depth;
        blocks.push(loose(&domain.node_list, view, level, style));
    }
    let (w, h) = shelve(&mut blocks, style);
    let font = style.font + 2;
    let counts = if total > 0 { format!("{free} of {total} free") } else { short_counts(domain) };
    let (name, title) = titled(shown(&domain.name), &counts, font, w);
    let top = style.line(font) + style.pad;
    for inner in &mut blocks {
        inner.x += style.pad;
        inner.y += top;
    }
    Block {
        x: 0,
        y: 0,
        w: w.max(title) + 2 * style.pad,
        h: h + top + style.pad,
        name,
        hint,
        counts,
        font,
        stacked: false,
        look: Look::Outer,
        blocks,
        nodes: Vec::new(),
    }
}

/// Nodes that lack the label of a level.
fn loose<'a>(nodes: &'a [NodeView], view: &View, level: usize, style: &Style) -> Block<'a> {
    let label = view.levels.get(level).map_or("", |l| l.name.as_str());
    let counts = plural(nodes.len() as i64, "node");
    let hint = format!("{counts} without the label of {label}");
    leaf(&format!("no {label}"), hint, counts, Look::Loose, nodes, style)
}

fn leaf<'a>(
    name: &str,
    hint: String,
    counts: String,
    look: Look,
    nodes: &'a [NodeView],
    style: &Style,
) -> Block<'a> {
    let (w, h, columns) = grid(nodes, style);
    let (dx, dy) = widest(nodes, style);
    let font = style.font;
    let (name, title) = leaf_title(name, &counts, style, w);
    let title = title.max(style.title);
    let lines = if style.stacked { 2 } else { 1 };
    let top = style.line(font) * lines + style.pad;
    let spots = nodes.iter().enumerate().map(|(i, node)| {
        let at = |n: usize, of: i32| i32::try_from(n).unwrap_or(0) * (of + style.between);
        Spot { x: style.pad + at(i % columns, dx), y: top + at(i / columns, dy), node }
    });
    Block {
        x: 0,
        y: 0,
        w: w.max(title) + 2 * style.pad,
        h: h + top + style.pad,
        name,
        hint,
        counts,
        font,
        stacked: style.stacked,
        look,
        blocks: Vec::new(),
        nodes: spots.collect(),
    }
}

/// As [`titled`], for an innermost box, where counts may be below the name.
fn leaf_title(name: &str, counts: &str, style: &Style, room: i32) -> (String, i32) {
    let font = style.font;
    if !style.stacked {
        return titled(name, counts, font, room);
    }
    let most = text::width(&"n".repeat(NAME), font).max(room);
    let name = text::fit(name, font, most);
    let title = text::width(&name, font).max(text::width(counts, font));
    (name, title)
}

/// A name that fits beside its counts, and how wide both are. A name of ordinary length
/// is never shortened: the box grows.
fn titled(name: &str, counts: &str, font: i32, room: i32) -> (String, i32) {
    let rest = text::width(counts, font) + font;
    // Names of outer boxes are bold.
    let bold = |text: &str| text::width(text, font) * 9 / 8;
    let most = bold(&"n".repeat(NAME)).max(room - rest);
    let name = text::fit(name, font, most * 8 / 9);
    let title = bold(&name) + rest;
    (name, title)
}
