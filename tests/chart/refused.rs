//! Wrong values are refused before anything is installed, in words that name the value.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::support::{golden, here, render};

/// What is wrong, and values that have it wrong.
#[derive(Deserialize)]
struct Wrong {
    what: String,
    /// Words that the refusal must have: at least the place.
    names: String,
    values: Value,
}

#[test]
fn wrong_values_are_refused_by_name() -> Result<()> {
    let all: Vec<Wrong> = serde_saphyr::from_str(&fs::read_to_string(here("wrong.yaml"))?)?;
    ensure!(all.len() >= 20, "{} wrong values", all.len());
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("values.json");
    let mut text = String::new();
    for Wrong { what, names, values } in all {
        fs::write(&file, values.to_string())?;
        let answer = render(&["--values", file.to_str().context("a path")?]);
        let Err(refusal) = answer else { anyhow::bail!("{what}: accepted") };
        let refusal = said(&refusal.to_string());
        ensure!(refusal.contains(&names), "{what}: the refusal does not say {names}: {refusal}");
        text += &format!("# {what}\n{refusal}\n\n");
    }
    golden("refused.txt", &text)
}

/// The refusal without paths of this machine and where in which template it was noticed.
fn said(refusal: &str) -> String {
    let line = |line: &str| {
        let line = line.trim_end();
        let words = line.strip_prefix("Error: execution error at (");
        match words.and_then(|at| at.split_once("): ")) {
            Some((_, words)) => words.to_owned(),
            None => line.to_owned(),
        }
    };
    let lines = refusal.lines().map(line);
    let kept = lines.filter(|l| !l.is_empty() && !l.starts_with("Use --debug"));
    kept.collect::<Vec<_>>().join("\n")
}
