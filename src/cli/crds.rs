//! `muster crds`: the definitions of Muster's kinds, to be applied to a cluster.
//!
//! Owns how they are printed; what they are is `muster_api`'s. The files in
//! `crds/` are this command's output, kind by kind.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Arguments of `muster crds`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  muster crds | kubectl apply --server-side -f -")]
pub(super) struct CrdsArgs {
    /// How to print them: YAML documents, or one JSON List.
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Yaml,
    Json,
    /// One per line, as TYPE/NAME.
    Name,
}

/// Prints the definitions.
///
/// # Errors
///
/// If they cannot be written.
pub(super) fn run(args: &CrdsArgs) -> Result<ExitCode> {
    let text = print(&muster_api::muster::crds(), args.output)?;
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {} // `| head` has seen enough
        result => result.context("cannot write the definitions")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print(crds: &[Value], output: Output) -> Result<String> {
    let mut text = String::new();
    match output {
        Output::Yaml => {
            for (i, crd) in crds.iter().enumerate() {
                text += if i == 0 { "" } else { "---\n" };
                text += &document(crd)?;
            }
        }
        Output::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": crds});
            text = serde_json::to_string_pretty(&list)? + "\n";
        }
        Output::Name => {
            for crd in crds {
                text += &format!("customresourcedefinition.apiextensions.k8s.io/{}\n", name(crd));
            }
        }
    }
    Ok(text)
}

/// One definition as a YAML document.
fn document(crd: &Value) -> Result<String> {
    let text = serde_saphyr::to_string(crd)?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

fn name(crd: &Value) -> &str {
    crd["metadata"]["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    const HEAD: &str = "# Printed by `muster crds`; do not edit.\n";

    /// With `UPDATE_GOLDEN=1` the files are written, otherwise compared.
    #[test]
    fn the_files_in_crds_are_what_the_types_say() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
        let update = std::env::var_os("UPDATE_GOLDEN").is_some();
        let mut expected = BTreeSet::new();
        for crd in muster_api::muster::crds() {
            let file = format!("{}.yaml", name(&crd));
            let text = format!("{HEAD}{}", document(&crd).unwrap());
            if update {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(folder.join(&file), &text).unwrap();
            }
            let found = std::fs::read_to_string(folder.join(&file)).unwrap_or_default();
            assert!(
                found == text,
                "crds/{file} is not what the types say; write it anew with \
                 UPDATE_GOLDEN=1 cargo test -p muster --lib crds"
            );
            expected.insert(file);
        }
        let files = std::fs::read_dir(&folder).unwrap();
        let found: BTreeSet<String> =
            files.map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(found, expected, "files in crds/");
    }

    #[test]
    fn yaml_and_json_hold_the_same() {
        let crds = muster_api::muster::crds();
        let yaml = print(&crds, Output::Yaml).unwrap();
        let documents: Vec<Value> =
            yaml.split("\n---\n").map(|d| serde_saphyr::from_str(d).unwrap()).collect();
        assert_eq!(documents, crds);
        let json: Value = serde_json::from_str(&print(&crds, Output::Json).unwrap()).unwrap();
        assert_eq!(json["items"].as_array().unwrap(), &crds);
    }

    #[test]
    fn names_are_as_kubectl_prints_them() {
        let names = print(&muster_api::muster::crds(), Output::Name).unwrap();
        let of =
            |plural| format!("customresourcedefinition.apiextensions.k8s.io/{plural}.muster.dev\n");
        let plurals = ["podgroups", "clustertopologies", "schedulingpolicies", "nodetopologies"];
        assert_eq!(names, plurals.map(of).concat());
    }
}
