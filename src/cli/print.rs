//! How answers are printed: forms, colours, broken pipes.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Result};
use serde::Serialize;

/// Forms of an answer, as kubectl names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// For people
    #[default]
    #[value(name = "table")]
    Table,
    /// For people, with more columns
    Wide,
    /// For programs; stable
    Json,
    /// For programs; stable
    Yaml,
}

impl Output {
    /// The answer for programs, if that is wanted.
    pub(super) fn data(self, answer: &impl Serialize) -> Result<Option<String>> {
        Ok(match self {
            Self::Table | Self::Wide => None,
            Self::Json => Some(serde_json::to_string_pretty(answer)? + "\n"),
            Self::Yaml => {
                // Through JSON, so that both have the same names.
                let text = serde_saphyr::to_string(&serde_json::to_value(answer)?)?;
                Some(if text.ends_with('\n') { text } else { text + "\n" })
            }
        })
    }

    pub(super) fn is_wide(self) -> bool {
        self == Self::Wide
    }
}

/// Bold on a terminal, plain elsewhere and where NO_COLOR is set.
pub(super) fn bold() -> impl Fn(&str) -> String {
    let no_color = std::env::var_os("NO_COLOR");
    let colours = has_colours(io::stdout().is_terminal(), no_color.as_deref());
    move |text| if colours { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// As <https://no-color.org> has it: an empty value says nothing.
fn has_colours(terminal: bool, no_color: Option<&OsStr>) -> bool {
    terminal && no_color.is_none_or(OsStr::is_empty)
}

/// Writes an answer to standard output.
pub(super) fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()), // `| head` has seen enough
        result => result.context("cannot write the answer"),
    }
}

/// With `UPDATE_GOLDEN=1` a transcript is written, otherwise compared.
#[cfg(test)]
pub(super) fn golden(file: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/golden").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("the file can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "{file} is not what is printed; look at it after UPDATE_GOLDEN=1 cargo test -p muster \
         --lib cli:\n{text}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_of_people_who_want_them() {
        for (terminal, no_color, expected) in [
            (true, None, true),
            (true, Some(""), true),
            (true, Some("1"), false),
            (false, None, false),
            (false, Some(""), false),
        ] {
            let has = has_colours(terminal, no_color.map(OsStr::new));
            assert_eq!(has, expected, "terminal: {terminal}, NO_COLOR: {no_color:?}");
        }
    }
}
