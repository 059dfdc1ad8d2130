//! Transcripts of `muster why`, from a file.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

use clap::Parser;

use super::*;
use crate::explain::read_documents;

const CLUSTER: &str = include_str!("golden/cluster.yaml");

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: WhyArgs,
}

fn told(line: &[&str]) -> Result<String> {
    let line = Line::try_parse_from(std::iter::once("why").chain(line.iter().copied()))?;
    let world = World::new(read_documents(CLUSTER)?, None)?;
    let profiles = line.args.profile.profiles(&Registry::default())?;
    let source = SourceArgs { cluster: Some("file".into()), ..SourceArgs::default() };
    let namespace = line.args.namespace.name(&source);
    answer(&world, profiles, &namespace, &line.args, &str::to_owned)
}

#[test]
fn transcripts() {
    for (file, line) in [
        ("why-gang.txt", &["podgroup/train", "-n", "team"][..]),
        ("why-gang-wide.txt", &["podgroup/train", "-n", "team", "-o", "wide"]),
        ("why-pod.json", &["pod/eval", "-n", "team", "-o", "json"]),
        ("why-pod.yaml", &["eval", "-n", "team", "-o", "yaml"]),
        ("why-starting.txt", &["serve-0", "-n", "team"]),
    ] {
        super::super::print::golden(file, &told(line).unwrap());
    }
    let error = told(&["nobody"]).unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no pod or pod group \"nobody\" in namespace \"default\" (-n NAMESPACE)"
    );
}

/// Headings are bold on a terminal only; the words are the same.
#[test]
fn bold_goes_round_headings() {
    let line = Line::try_parse_from(["why", "eval", "-n", "team"]).unwrap();
    let world = World::new(read_documents(CLUSTER).unwrap(), None).unwrap();
    let profiles = vec![Profile::default_named("muster")];
    let marked = |text: &str| format!("<b>{text}</b>");
    let text = answer(&world, profiles, "team", &line.args, &marked).unwrap();
    assert!(text.starts_with("<b>pod team/eval</b>: waiting"), "{text}");
}
