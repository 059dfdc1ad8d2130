//! Files that are made from others: the chart's copies of kinds, its README, its schema.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::support::{chart, generated, root};
use crate::values::{Entry, entries};

#[test]
fn the_charts_kinds_are_copies_of_the_root() -> Result<()> {
    let copies = chart().join("files/crds");
    let mut wanted = Vec::new();
    for entry in fs::read_dir(root().join("crds"))? {
        let entry = entry?;
        generated(&copies.join(entry.file_name()), &fs::read_to_string(entry.path())?)?;
        wanted.push(entry.file_name());
    }
    for entry in fs::read_dir(&copies)? {
        let name = entry?.file_name();
        ensure!(wanted.contains(&name), "{name:?} is not in crds/: remove it");
    }
    Ok(())
}

fn described() -> Result<Vec<Entry>> {
    entries(&fs::read_to_string(chart().join("values.yaml"))?)
}

const BEGIN: &str = "<!-- values: made from values.yaml by a test -->\n";
const END: &str = "<!-- end of values -->\n";

#[test]
fn the_readme_lists_every_value() -> Result<()> {
    let path = chart().join("README.md");
    let text = fs::read_to_string(&path)?;
    let (head, rest) = text.split_once(BEGIN).context("README.md has no place for values")?;
    let (_, tail) = rest.split_once(END).context("README.md has no end of values")?;
    let mut table = String::from("| value | default | |\n|---|---|---|\n");
    for Entry { path, description, default } in described()? {
        let (path, default) = (path.join("."), default.replace('|', "\\|"));
        table += &format!("| `{path}` | `{default}` | {description} |\n");
    }
    generated(&path, &format!("{head}{BEGIN}{table}{END}{tail}"))
}

/// Every value has a rule and no rule is without a value; editors show its description.
#[test]
fn the_schema_is_about_these_values_and_describes_them() -> Result<()> {
    let path = chart().join("values.schema.json");
    let mut schema: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let before = schema.clone();
    let entries = described()?;
    for Entry { path, description, .. } in &entries {
        let mut rule = &mut schema;
        for key in path {
            rule = rule["properties"]
                .get_mut(key)
                .with_context(|| format!("{}: no rule", path.join(".")))?;
        }
        rule["description"] = description.clone().into();
    }
    let known = |path: &[String]| entries.iter().any(|e| e.path.starts_with(path));
    let mut at = Vec::new();
    unknown(&schema, &mut at, &|path| {
        known(path) || entries.iter().any(|e| path.starts_with(&e.path))
    })?;
    if schema != before {
        fs::write(&path, serde_json::to_string_pretty(&schema)? + "\n")?;
        bail!("values.schema.json was out of date and has been rewritten: commit it");
    }
    Ok(())
}

/// Fails for a rule about a value that does not exist.
fn unknown(rule: &Value, path: &mut Vec<String>, known: &dyn Fn(&[String]) -> bool) -> Result<()> {
    for (key, below) in rule["properties"].as_object().into_iter().flatten() {
        path.push(key.clone());
        // What helm itself may hand down.
        if *path != ["global"] {
            ensure!(known(path), "{}: a rule without a value", path.join("."));
            unknown(below, path, known)?;
        }
        path.pop();
    }
    Ok(())
}
