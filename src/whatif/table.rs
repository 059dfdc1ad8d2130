//! Tables for a terminal, as kubectl draws them: three blanks between columns.

/// A column of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// Shown with `-o wide` only.
    pub wide: bool,
}

impl Column {
    /// A column that is always shown.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, wide: false }
    }

    /// A column that is shown with `-o wide`.
    #[must_use]
    pub const fn wide(name: &'static str) -> Self {
        Self { name, wide: true }
    }
}

/// Rows of text under headings.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// No rows yet.
    #[must_use]
    pub fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, a cell per column; an empty one is shown as `-`.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text. `indent` blanks before each line; no heading if `headings` is false.
    #[must_use]
    pub fn text(&self, wide: bool, headings: bool, indent: usize) -> String {
        let shown: Vec<usize> =
            (0..self.columns.len()).filter(|c| wide || !self.columns[*c].wide).collect();
        let cell = |row: &[String], c: usize| match row[c].as_str() {
            "" => "-".to_owned(),
            text => text.to_owned(),
        };
        let mut lines: Vec<Vec<String>> = Vec::with_capacity(self.rows.len() + 1);
        if headings {
            lines.push(shown.iter().map(|c| self.columns[*c].name.to_owned()).collect());
        }
        lines.extend(self.rows.iter().map(|row| shown.iter().map(|c| cell(row, *c)).collect()));
        let width = |i: usize| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..shown.len()).map(width).collect();
        let mut out = String::new();
        for line in lines {
            let mut text = " ".repeat(indent);
            for (i, (cell, width)) in line.iter().zip(&widths).enumerate() {
                text += if i == 0 { "" } else { "   " };
                text += &format!("{cell:<width$}");
            }
            out += text.trim_end();
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_columns_and_headings_are_left_out() {
        let mut table = Table::new(&[Column::new("NAME"), Column::wide("NODE"), Column::new("N")]);
        table.row(vec!["train-0".into(), "n1".into(), "1".into()]);
        table.row(vec!["b".into(), String::new(), String::new()]);
        assert_eq!(
            table.text(true, true, 2),
            "  NAME      NODE   N\n  train-0   n1     1\n  b         -      -\n"
        );
        assert_eq!(table.text(false, false, 0), "train-0   1\nb         -\n");
    }
}
