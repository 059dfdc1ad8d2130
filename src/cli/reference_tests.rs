//! Pages of the book that are made from the code: this test rewrites them and fails if they were
//! out of date.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

use std::fmt::Write as _;
use std::path::Path;

use clap::CommandFactory;
use serde_json::Value;

use super::Cli;
use crate::config::Configuration;
use crate::plugin::Registry;

fn page(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(file);
    if std::fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return;
    }
    std::fs::write(&path, text).unwrap();
    panic!("docs/{file} was out of date and has been rewritten: commit it");
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[test]
fn the_page_of_commands_is_what_help_says() {
    let mut out = String::from(
        "# Commands\n\nWhat `--help` says of every command. This page is generated from the \
         code. Called as `kubectl-muster`, the program is `kubectl muster`.\n",
    );
    let mut tree = Cli::command().term_width(100);
    tree.build();
    for command in tree.get_subcommands().filter(|c| !c.is_hide_set()) {
        let name = command.get_name();
        if name == "help" {
            continue;
        }
        let mut command = command.clone().term_width(100);
        // Where a program is built says what it is called there.
        let help = command.render_long_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        let _ = write!(out, "\n## muster {name}\n\n```\n{}\n```\n", lines.join("\n").trim_end());
    }
    page("commands.md", &out);
}

#[test]
fn the_page_of_the_configuration_is_what_the_code_does() {
    let registry = Registry::default();
    let own = Configuration::load_with(None, registry.plugins()).unwrap();
    let file = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    let upstream = Configuration::parse_with(Path::new("file"), file, registry.plugins()).unwrap();
    let mut out = String::from(
        "# Configuration reference\n\nFields of a `KubeSchedulerConfiguration` \
         (`kubescheduler.config.k8s.io/v1`), their defaults in a file, and what holds without a \
         file. What they do is in [configuration](configuration.md). This page is generated from \
         the code.\n\n| field | default in a file | without a file |\n|---|---|---|\n",
    );
    let (own_json, file_json) = (own.to_json(), upstream.to_json());
    fields(&mut out, "", &file_json, &own_json);
    out += "\n## Arguments of plugins\n\n| plugin | argument | default |\n|---|---|---|\n";
    let configured = file_json["profiles"][0]["pluginConfig"].as_array().unwrap();
    for plugin in configured {
        for (field, value) in plugin["args"].as_object().unwrap() {
            if field != "apiVersion" && field != "kind" {
                let (name, value) = (&plugin["name"], cell(&value.to_string()));
                let _ = writeln!(out, "| `{}` | `{field}` | `{value}` |", name.as_str().unwrap());
            }
        }
    }
    out += "\n## Plugins that are called without further settings\n\n| point | plugins, in order; \
            weights in brackets |\n|---|---|\n";
    let called = own.called_to_json();
    for (point, plugins) in
        called.as_object().unwrap().values().next().unwrap().as_object().unwrap()
    {
        let plugins: Vec<String> = plugins
            .as_array()
            .unwrap()
            .iter()
            .map(|plugin| match plugin["weight"].as_i64() {
                Some(weight) if weight > 0 => {
                    format!("{} ({weight})", plugin["name"].as_str().unwrap())
                }
                _ => plugin["name"].as_str().unwrap().to_owned(),
            })
            .collect();
        let _ = writeln!(out, "| `{point}` | {} |", plugins.join(", "));
    }
    page("configuration-reference.md", &out);
}

fn fields(out: &mut String, at: &str, file: &Value, own: &Value) {
    for (name, value) in file.as_object().unwrap() {
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        match value {
            Value::Object(_) => fields(out, &path, value, &own[name]),
            Value::Array(list) if name == "profiles" => {
                let _ = writeln!(
                    out,
                    "| `profiles[].schedulerName` | `{}` | `{}` |",
                    list[0]["schedulerName"], own[name][0]["schedulerName"]
                );
            }
            value => {
                let (value, own) = (cell(&value.to_string()), cell(&own[name].to_string()));
                let _ = writeln!(out, "| `{path}` | `{value}` | `{own}` |");
            }
        }
    }
}

#[test]
fn the_page_of_kinds_is_what_the_types_say() {
    let mut out = String::from(
        "# Kinds\n\nEvery field of Muster's kinds, with its limits, as `kubectl explain` shows \
         them. Rules are CEL: an API server keeps them, and `muster lint` does without one. This \
         page is generated from the code.\n",
    );
    for crd in muster_api::muster::crds() {
        let spec = &crd["spec"];
        let version = &spec["versions"][0];
        let schema = &version["schema"]["openAPIV3Schema"];
        let _ = write!(
            out,
            "\n## {}\n\n`{}/{}`, {}, `kubectl get {}`. {}\n\n| field | type | |\n|---|---|---|\n",
            spec["names"]["kind"].as_str().unwrap(),
            spec["group"].as_str().unwrap(),
            version["name"].as_str().unwrap(),
            spec["scope"].as_str().unwrap().to_lowercase(),
            spec["names"]["shortNames"][0].as_str().unwrap(),
            schema["description"].as_str().unwrap(),
        );
        for (name, field) in schema["properties"].as_object().unwrap() {
            if !["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                describe(&mut out, name, field);
            }
        }
        let mut rules = Vec::new();
        collect(schema, "", &mut rules);
        if !rules.is_empty() {
            out += "\n| rule on | what must hold |\n|---|---|\n";
            for (at, message) in rules {
                let _ = writeln!(out, "| `{at}` | {} |", cell(&message));
            }
        }
    }
    page("kinds.md", &out);
}

fn describe(out: &mut String, path: &str, field: &Value) {
    let kind = field["type"].as_str().unwrap_or("int or string");
    let mut limits = Vec::new();
    for (name, word) in [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "characters at least"),
        ("maxLength", "characters at most"),
        ("minItems", "items at least"),
        ("maxItems", "items at most"),
    ] {
        if !field[name].is_null() {
            limits.push(format!("{word} {}", field[name]));
        }
    }
    if let Some(values) = field["enum"].as_array() {
        let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        limits.push(values.join(", "));
    }
    if !field["default"].is_null() {
        limits.push(format!("default {}", field["default"]));
    }
    let limits =
        if limits.is_empty() { String::new() } else { format!(" ({})", limits.join("; ")) };
    let text = cell(field["description"].as_str().unwrap_or_default());
    let _ = writeln!(out, "| `{path}` | {kind}{} | {text} |", cell(&limits));
    let inner = field["properties"].as_object().into_iter().flatten();
    inner.for_each(|(name, field)| describe(out, &format!("{path}.{name}"), field));
    let items = field["items"]["properties"].as_object().into_iter().flatten();
    items.for_each(|(name, field)| describe(out, &format!("{path}[].{name}"), field));
}

/// Rules with the field that they are about.
fn collect(schema: &Value, at: &str, rules: &mut Vec<(String, String)>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let field = rule["fieldPath"].as_str().unwrap_or_default();
        let at = format!("{at}{field}");
        let message = rule["message"].as_str().unwrap_or_default().to_owned();
        rules.push((at.trim_start_matches('.').to_owned(), message));
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        collect(field, &format!("{at}.{name}"), rules);
    }
    if schema["items"].is_object() {
        collect(&schema["items"], &format!("{at}[]"), rules);
    }
}
