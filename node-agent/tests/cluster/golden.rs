//! Every machine file, through the whole program and a real API server, to an object that is kept: the hardware where
//! `print` keeps it, the rest beside this file.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use muster_api::muster::node_topology::Hardware;
use muster_machines::files;
use serde_json::Value;

use crate::support::{Cluster, Node, SOON, condition};

/// What differs from run to run is taken out.
fn normal(object: &Value, dir: &Path) -> String {
    let mut object = object.clone();
    let meta = &object["metadata"];
    let owner = &meta["ownerReferences"][0];
    let owner = format!("{}/{}", owner["kind"], owner["name"]).replace('"', "");
    object["metadata"] = serde_json::json!({"name": meta["name"], "owner": owner});
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        for field in ["sequence", "startedAt", "observedAt"] {
            status.remove(field);
        }
    }
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastTransitionTime");
        }
    }
    let mut text = String::new();
    show(&object, 0, &mut text);
    text.push('\n');
    text.replace(&*dir.to_string_lossy(), "DIR")
}

/// The hardware's part is what `print -o yaml` has of the same machine, in `tests/golden/machines`; it is taken out.
fn hardware(object: &mut Value, name: &str) -> Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/machines");
    let text = fs::read_to_string(dir.join(format!("{name}.yaml")))?;
    // There the library is named by its path, here the loader finds it.
    let printed: Value = serde_saphyr::from_str(&text.replace("DIR/", ""))?;
    let same = |part: &str, written: &Value, printed: &Value| {
        let (mut left, mut right) = (String::new(), String::new());
        // An empty list is left out of an object.
        let written = if written.is_null() { &Value::Array(Vec::new()) } else { written };
        show(written, 0, &mut left);
        show(printed, 0, &mut right);
        let differ = left.lines().zip(right.lines()).find(|(a, b)| a != b);
        ensure!(left == right, "{name}: {part} is not as printed: {differ:?}");
        Ok(())
    };
    let mut written = object["hardware"].take();
    let read: Hardware = serde_json::from_value(written.clone())?;
    ensure!(read.clone().sealed() == read, "{name}: the hash is of something else");
    written["hash"] = "HASH".into();
    written["source"]["agent"] = "VERSION".into();
    same("hardware", &written, &printed["hardware"])?;
    same("gpus", &object["status"]["gpus"].take(), &printed["status"]["gpus"])?;
    let conditions = object["status"]["conditions"].as_array_mut().context("conditions")?;
    let printed = printed["status"]["conditions"].as_array().context("conditions")?;
    let others = conditions.split_off(printed.len().min(conditions.len()));
    for (written, printed) in conditions.iter().zip(printed) {
        for field in ["type", "status", "reason", "message"] {
            same("a condition", &written[field], &printed[field])?;
        }
    }
    *conditions = others;
    Ok(())
}

/// JSON in which whatever has no further depth stands on one line.
fn show(value: &Value, depth: usize, text: &mut String) {
    let deep = |v: &Value| v.is_object() || v.is_array();
    let pad = " ".repeat(2 * depth + 2);
    let end = " ".repeat(2 * depth);
    match value {
        Value::Object(map) if map.values().any(deep) => {
            text.push_str("{\n");
            for (i, (key, value)) in map.iter().enumerate() {
                let _ = write!(text, "{pad}{key:?}: ");
                show(value, depth + 1, text);
                text.push_str(if i + 1 < map.len() { ",\n" } else { "\n" });
            }
            let _ = write!(text, "{end}}}");
        }
        Value::Array(list) if list.iter().any(deep) => {
            text.push_str("[\n");
            for (i, value) in list.iter().enumerate() {
                text.push_str(&pad);
                show(value, depth + 1, text);
                text.push_str(if i + 1 < list.len() { ",\n" } else { "\n" });
            }
            let _ = write!(text, "{end}]");
        }
        flat => {
            let _ = write!(text, "{flat}");
        }
    }
}

/// Compares with `golden/<name>.json`; `UPDATE_GOLDEN=1` writes the file instead.
fn golden(actual: &str, name: &str) -> Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/golden");
    let path = dir.join(format!("{name}.json"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual)?;
    }
    let expected = fs::read_to_string(&path).context("golden file; UPDATE_GOLDEN=1 writes it")?;
    let lines = actual.lines().zip(expected.lines());
    let first = lines.enumerate().find(|(_, (a, b))| a != b);
    if let Some((i, (a, b))) = first {
        anyhow::bail!("{name}.json, line {}: has\n{b}\nbut now it is\n{a}", i + 1);
    }
    ensure!(actual == expected, "{name}.json is longer or shorter than what was written");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_machine_becomes_its_object() -> Result<()> {
    let cluster = Cluster::start().await?;
    let mut wrong = Vec::new();
    for name in files::NAMES {
        let mut node = Node::new(&cluster, name).await?;
        node.start(&cluster, &["--node-resource-topology"])?;
        let read = |object: &Value| {
            condition(object, "PodResourcesAvailable") == "True"
                && condition(object, "KubeletConfigKnown") == "True"
        };
        let (object, took) = node.until(&cluster, "written", SOON, read).await?;
        let bytes = serde_json::to_string(&object)?.len();
        eprintln!("{name}: {bytes} bytes after {took:.1?}");
        let mut object = object;
        let result = hardware(&mut object, name);
        wrong.extend(result.and_then(|()| golden(&normal(&object, node.dir()), name)).err());

        let path = format!("/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/{name}");
        crate::support::eventually("written for others too", SOON, async || {
            Ok(cluster.get(&path).await?.is_some())
        })
        .await?;
        if *name == "dgx-a100" {
            let other = cluster.get(&path).await?.context("the NodeResourceTopology")?;
            wrong.extend(golden(&normal(&other, node.dir()), "node-resource-topology").err());
        }
    }
    ensure!(wrong.is_empty(), "{wrong:#?}");
    cluster.check_pace()?;
    Ok(())
}
