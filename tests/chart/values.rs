//! What `values.yaml` says about itself: every value with its description and default.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// A value that is described by a comment `# -- …` above it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Keys from the root.
    pub(crate) path: Vec<String>,
    pub(crate) description: String,
    /// As JSON.
    pub(crate) default: String,
}

/// The described values, in order. Each value is described, or is a section of such.
pub(crate) fn entries(text: &str) -> Result<Vec<Entry>> {
    let values: Value = serde_saphyr::from_str(text)?;
    let (mut entries, mut sections) = (Vec::<Entry>::new(), Vec::<(usize, String)>::new());
    let mut description = String::new();
    // Below a described value nothing is read.
    let mut inside: Option<usize> = None;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            match comment.strip_prefix(" -- ") {
                Some(first) => description = first.to_owned(),
                None if !description.is_empty() => {
                    description = format!("{description} {}", comment.trim());
                }
                None => {}
            }
            continue;
        }
        if inside.is_some_and(|outer| indent > outer) {
            continue;
        }
        inside = None;
        let (key, rest) = line.split_once(':').with_context(|| line.to_owned())?;
        sections.retain(|(at, _)| *at < indent);
        let mut path: Vec<String> = sections.iter().map(|(_, key)| key.clone()).collect();
        path.push(key.to_owned());
        if description.is_empty() {
            ensure!(rest.trim().is_empty(), "{}: no description", path.join("."));
            sections.push((indent, key.to_owned()));
            continue;
        }
        let default = path.iter().try_fold(&values, |value, key| value.get(key));
        let default = default.with_context(|| format!("{}: no value", path.join(".")))?;
        let default = default.to_string();
        entries.push(Entry { path, description: std::mem::take(&mut description), default });
        inside = Some(indent);
    }
    if entries.is_empty() {
        bail!("no value is described");
    }
    Ok(entries)
}

#[test]
fn descriptions_and_defaults_are_found() {
    let text = "# About the file.\n\
        # -- One.\n# More of it.\na: 1\n\
        b:\n  # -- Two.\n  c:\n    d: {x: z}\n    e: []\n  f:\n    # -- Three.\n    g: \"\"\n";
    let found = entries(text).unwrap();
    let expected = [
        ("a", "One. More of it.", "1"),
        ("b.c", "Two.", r#"{"d":{"x":"z"},"e":[]}"#),
        ("b.f.g", "Three.", "\"\""),
    ];
    let found: Vec<_> = found
        .iter()
        .map(|e| (e.path.join("."), e.description.as_str(), e.default.as_str()))
        .collect();
    let found: Vec<_> = found.iter().map(|(p, d, v)| (p.as_str(), *d, *v)).collect();
    assert_eq!(found, expected);
    assert!(entries("a: 1\n").unwrap_err().to_string().contains("a: no description"));
}
