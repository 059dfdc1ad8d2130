//! Where the chart is, how it is rendered, and golden files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use muster_control_plane::helm;
use serde_json::Value;

pub(crate) const NAMESPACE: &str = "muster-system";

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn chart() -> PathBuf {
    root().join("charts/muster")
}

pub(crate) fn here(file: &str) -> PathBuf {
    root().join("tests/chart").join(file)
}

/// The chart rendered as the release `muster` with further arguments of helm.
pub(crate) fn render(arguments: &[&str]) -> Result<String> {
    let chart = chart();
    let mut all = vec!["template", "muster", chart.to_str().context("a path")?];
    all.extend(["--namespace", NAMESPACE]);
    all.extend(arguments);
    helm(all)
}

/// The objects of a text of YAML documents.
pub(crate) fn objects(text: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in format!("\n{text}").split("\n---\n") {
        let object: Value =
            serde_saphyr::from_str(document).with_context(|| document.to_owned())?;
        if !object.is_null() {
            objects.push(object);
        }
    }
    Ok(objects)
}

/// The objects of a kind.
pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// Compares with a golden file; `UPDATE_GOLDEN=1` writes the file instead.
pub(crate) fn golden(file: &str, text: &str) -> Result<()> {
    let path = here("golden").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return fs::write(&path, text).with_context(|| path.display().to_string());
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    if let Some((line, (old, new))) = first_difference(&expected, text) {
        bail!(
            "golden/{file} differs in line {line}:\n- {old}\n+ {new}\nread the diff after \
             UPDATE_GOLDEN=1 cargo test --test chart"
        );
    }
    Ok(())
}

/// Holds a generated file to its text: rewrites it, and fails if it was another.
pub(crate) fn generated(path: &Path, text: &str) -> Result<()> {
    let old = fs::read_to_string(path).unwrap_or_default();
    let Some((line, (was, is))) = first_difference(&old, text) else { return Ok(()) };
    fs::write(path, text).with_context(|| path.display().to_string())?;
    let path = path.strip_prefix(root()).unwrap_or(path).display();
    bail!(
        "{path} was out of date and has been rewritten (line {line}:\n- {was}\n+ {is}); commit it"
    )
}

fn first_difference<'a>(old: &'a str, new: &'a str) -> Option<(usize, (&'a str, &'a str))> {
    if old == new {
        return None;
    }
    let (mut left, mut right) = (old.lines(), new.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (left.next(), right.next()) {
            (None, None) => return Some((number, ("(end)", "(end, another line end)"))),
            (one, other) if one == other => {}
            (one, other) => {
                return Some((number, (one.unwrap_or("(end)"), other.unwrap_or("(end)"))));
            }
        }
    }
}
