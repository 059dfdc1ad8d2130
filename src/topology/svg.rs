//! The tree as a picture: a square per GPU, a box per domain.

use std::fmt::Write as _;

use super::layout::{Block, Look, Spot, Style, cells, place};
use super::table::{title, totals};
use super::text::{escape, width};
use super::view::View;

/// Around everything.
const MARGIN: i32 = 16;
/// The page is at least this wide, so that its head has room.
const MIN_WIDTH: i32 = 760;
const TITLE: i32 = 20;
const TOTALS: i32 = 14;
const LEGEND: i32 = 12;

/// Light and dark tell used from free without colours.
const CSS: &str = "\
text{fill:#1c2733;font-family:'DejaVu Sans',Verdana,sans-serif}\
.b{font-weight:bold}.n{fill:#5b6875}\
.outer{fill:#f4f6f8;stroke:#9aa7b4}.inner{fill:#fff;stroke:#c3ccd5}\
.idle{fill:#e9f7ec;stroke:#5cb574}.loose{fill:#fff;stroke:#9aa7b4;stroke-dasharray:4 3}\
.u{fill:#2f4b74}.f{fill:#8ed3a0}.c{fill:#eda28c}.o{fill:none;stroke:#9aa7b4}";

/// Draws a topology. Equal trees give equal bytes.
#[must_use]
pub fn svg(view: &View) -> String {
    let style = Style::of(view);
    let (blocks, w, h) = place(view, &style);
    let (heading, totals) = (title(view), totals(view));
    let page = [w, width(&heading, TITLE) * 9 / 8, width(&totals, TOTALS), MIN_WIDTH];
    let page = page.into_iter().max().unwrap_or(MIN_WIDTH);
    let mut head = String::new();
    let mut y = MARGIN + TITLE;
    line(&mut head, MARGIN, y, TITLE, "b", &heading);
    y += TOTALS + 10;
    line(&mut head, MARGIN, y, TOTALS, "", &totals);
    y += LEGEND + 14;
    y = legend(&mut head, y, page);
    y += MARGIN;
    let mut body = String::new();
    if blocks.is_empty() {
        line(&mut body, MARGIN, y + TOTALS, TOTALS, "n", "There are no nodes.");
    }
    for block in &blocks {
        draw(&mut body, block, MARGIN, y, &style);
    }
    let (w, h) = (page + 2 * MARGIN, y + h.max(TOTALS) + MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" \
         viewBox=\"0 0 {w} {h}\">\n<title>{}</title>\n<style>{CSS}</style>\n\
         <rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/>\n{head}{body}</svg>\n",
        escape(&heading),
    )
}

fn line(out: &mut String, x: i32, y: i32, size: i32, class: &str, text: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let text = escape(text);
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\"{class}>{text}</text>");
}

/// What colours and numbers mean; returns where it ends.
fn legend(out: &mut String, mut y: i32, page: i32) -> i32 {
    let entries = [
        ("u", "GPU in use"),
        ("f", "free GPU"),
        ("c", "GPU of a node that takes no pods"),
        ("o", "node without GPUs"),
        ("idle", "domain with nothing in use"),
        ("", "3/8: three of eight GPUs are free"),
    ];
    let mut x = MARGIN;
    for (class, text) in entries {
        let mark = if class.is_empty() { 0 } else { LEGEND + 5 };
        let length = mark + width(text, LEGEND) + 22;
        if x > MARGIN && x + length > page + MARGIN {
            (x, y) = (MARGIN, y + LEGEND + 8);
        }
        if !class.is_empty() {
            let _ = writeln!(
                out,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"11\" height=\"11\"/>",
                y - 10
            );
        }
        line(out, x + mark, y, LEGEND, "n", text);
        x += length;
    }
    y
}

fn draw(out: &mut String, block: &Block<'_>, x: i32, y: i32, style: &Style) {
    let (x, y) = (x + block.x, y + block.y);
    let Block { w, h, font, .. } = *block;
    let (class, bold) = match block.look {
        Look::Outer => ("outer", "b"),
        Look::Inner => ("inner", ""),
        Look::Idle => ("idle", ""),
        Look::Loose => ("loose", "n"),
    };
    let _ = writeln!(
        out,
        "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"3\">\
         <title>{}</title></rect>",
        escape(&block.hint),
    );
    let left = x + style.pad;
    let base = y + style.pad / 2 + font;
    line(out, left, base, font, bold, &block.name);
    if block.stacked {
        line(out, left, base + font + style.pad / 2, font, "n", &block.counts);
    } else {
        let right = x + w - style.pad - width(&block.counts, font);
        line(out, right, base, font, "n", &block.counts);
    }
    for inner in &block.blocks {
        draw(out, inner, x, y, style);
    }
    for spot in &block.nodes {
        node(out, spot, x, y, style);
    }
}

/// A node: its cells, row by row, used ones first.
fn node(out: &mut String, spot: &Spot<'_>, x: i32, y: i32, style: &Style) {
    let (x, y, node) = (x + spot.x, y + spot.y, spot.node);
    let because = node.closed.map(|because| format!(", {because}")).unwrap_or_default();
    let _ = write!(
        out,
        "<g><title>{}: {} of {} GPUs free{because}</title>",
        escape(&node.name),
        node.gpus.free,
        node.gpus.total
    );
    let (columns, parts) = cells(&node.gpus);
    if node.gpus.total == 0 {
        let side = style.cell - 1;
        let class = if node.closed.is_some() { "c" } else { "o" };
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\"/>"
        );
    }
    let mut at = 0;
    for (class, n) in ["u", "f", "c"].into_iter().zip(parts) {
        if n == 0 {
            continue;
        }
        let _ = write!(out, "<path class=\"{class}\" d=\"");
        for i in at..at + n {
            let step = |n: i64| i32::try_from(n).unwrap_or(0) * (style.cell + style.gap);
            let (x, y, c) = (x + step(i % columns), y + step(i / columns), style.cell);
            let _ = write!(out, "M{x} {y}h{c}v{c}h-{c}z");
        }
        let _ = write!(out, "\"/>");
        at += n;
    }
    out.push_str("</g>\n");
}
