//! The images are built with the Rust that the workspace names, for two architectures, and have no shell; krew's
//! file offers the plugin for both.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

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
        let platforms = "--platform linux/amd64,linux/arm64";
        ensure!(build.contains(platforms), "{file}: no instructions for both architectures");
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

/// What krew takes: the program under the plugin's name, per platform, and words that are short enough. A
/// release fills in addresses and digests.
#[test]
fn krews_file_offers_the_plugin_and_names_commands_that_exist() -> Result<()> {
    let text = fs::read_to_string(root().join("charts/krew/muster.yaml"))?;
    let plugin: Value = serde_saphyr::from_str(&text)?;
    ensure!(plugin["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2", "{plugin}");
    ensure!(plugin["kind"] == "Plugin" && plugin["metadata"]["name"] == "muster", "{plugin}");
    let spec = &plugin["spec"];
    let short = spec["shortDescription"].as_str().context("shortDescription")?;
    ensure!(short.chars().count() <= 50, "krew cuts what is longer than 50: {short}");
    let mut offered = Vec::new();
    for platform in spec["platforms"].as_array().context("platforms")? {
        let labels = &platform["selector"]["matchLabels"];
        offered.push((labels["os"].clone(), labels["arch"].clone()));
        ensure!(platform["bin"] == "kubectl-muster", "{platform}");
        let program = json!({"from": "muster", "to": "kubectl-muster"});
        let files = platform["files"].as_array().context("files")?;
        ensure!(files.contains(&program), "{platform}");
        for field in ["uri", "sha256"] {
            ensure!(platform[field].is_string(), "{field} of {platform}");
        }
    }
    let both = ["amd64", "arm64"].map(|arch| (json!("linux"), json!(arch)));
    ensure!(offered == both, "{offered:?}");
    let commands = fs::read_to_string(root().join("docs/commands.md"))?;
    let description = spec["description"].as_str().context("description")?;
    let mut named = 0;
    for words in description.split('`').filter_map(|words| words.strip_prefix("kubectl muster ")) {
        let command = words.split_whitespace().next().unwrap_or_default();
        let heading = format!("## muster {command}\n");
        ensure!(commands.contains(&heading), "there is no command {command}");
        named += 1;
    }
    ensure!(named >= 5, "{named} commands are named");
    Ok(())
}
