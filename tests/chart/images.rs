//! The images are built with the Rust that the workspace names, and have no shell.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::support::root;

#[test]
fn images_are_made_from_this_workspace_and_hold_nothing_else() -> Result<()> {
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    let version = |key: &str| {
        let line = manifest.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(" = \""));
        line.and_then(|l| l.strip_suffix('"')).map(str::to_owned).context(key.to_owned())
    };
    let rust = version("rust-version")?;
    for (file, program) in
        [("scheduler.Dockerfile", "/muster"), ("node-agent.Dockerfile", "/muster-node-agent")]
    {
        let text = fs::read_to_string(root().join("charts/images").join(file))?;
        ensure!(text.contains(&format!("\nARG RUST={rust}\n")), "{file}: Rust {rust}");
        let (build, image) = text.split_once("\nFROM scratch\n").context("no empty image")?;
        ensure!(build.contains("--locked"), "{file}: builds what Cargo.lock does not say");
        ensure!(!image.contains("\nRUN "), "{file}: runs something in the image");
        ensure!(image.contains("\nUSER 65532:65532\n"), "{file}: root");
        ensure!(image.contains(&format!("\nENTRYPOINT [\"{program}\"]\n")), "{file}: {program}");
    }
    let chart = fs::read_to_string(root().join("charts/muster/Chart.yaml"))?;
    let version = version("version")?;
    for field in ["version", "appVersion"] {
        ensure!(chart.contains(&format!("\n{field}: {version}\n")), "Chart.yaml: {field}");
    }
    Ok(())
}
