//! How answers are printed: forms, colours, broken pipes.

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
    let colours = io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    move |text| if colours { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
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
