//! The chart is sound, and renders what was read and found good under many values.

use std::fs;

use anyhow::{Context, Result, ensure};
use muster_control_plane::helm;

use crate::support::{chart, golden, here, objects, of_kind, render, root};

#[test]
fn lint_has_nothing_to_say() -> Result<()> {
    let chart = chart();
    let chart = chart.to_str().context("a path")?;
    helm(["lint", "--strict", chart])?;
    for case in cases()? {
        let file = here("cases").join(&case);
        helm(["lint", "--strict", chart, "--values", file.to_str().context("a path")?])
            .with_context(|| case.clone())?;
    }
    Ok(())
}

/// Files of values, each a way to install the chart.
fn cases() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(here("cases"))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Kinds are left out here: they are compared as a whole below.
#[test]
fn under_every_set_of_values_the_objects_are_those_that_were_read() -> Result<()> {
    let cases = cases()?;
    ensure!(cases.len() >= 8, "{cases:?}");
    for case in cases {
        let file = here("cases").join(&case);
        let file = file.to_str().context("a path")?;
        let text = render(&["--values", file, "--set", "crds.install=false"]);
        golden(&case, &text.with_context(|| case.clone())?)?;
    }
    Ok(())
}

/// Installed as they are, kept at uninstall unless that is switched off, or left out.
#[test]
fn kinds_are_those_of_the_root_with_keep_and_a_switch() -> Result<()> {
    let only = ["--show-only", "templates/crds/crds.yaml"];
    let mut kept = objects(&render(&only)?)?;
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join("crds"))? {
        files.push(serde_saphyr::from_str::<serde_json::Value>(&fs::read_to_string(
            entry?.path(),
        )?)?);
    }
    let name = |object: &serde_json::Value| object["metadata"]["name"].to_string();
    files.sort_by_key(name);
    kept.sort_by_key(name);
    for object in &mut kept {
        let metadata = object["metadata"].as_object_mut().context("metadata")?;
        let annotations = metadata.remove("annotations").context("annotations")?;
        ensure!(annotations["helm.sh/resource-policy"] == "keep", "{annotations}");
        metadata.remove("labels").context("labels")?;
    }
    ensure!(kept == files, "the chart's kinds are not those in crds/");

    let let_go = render(&["--set", "crds.keep=false", only[0], only[1]])?;
    ensure!(!let_go.contains("resource-policy"), "{let_go}");
    let none = objects(&render(&["--set", "crds.install=false"])?)?;
    ensure!(of_kind(&none, "CustomResourceDefinition").is_empty(), "kinds are installed");
    Ok(())
}

/// A line or two of what to do next, with the names of this release in it.
#[test]
fn notes_have_the_next_three_commands() -> Result<()> {
    let chart = chart();
    let text = helm([
        "install",
        "muster",
        chart.to_str().context("a path")?,
        "--namespace",
        "muster-system",
        "--dry-run=client",
        "--set",
        "crds.install=false",
    ])?;
    let (_, notes) = text.split_once("NOTES:\n").context("no notes")?;
    golden("notes.txt", notes)
}
