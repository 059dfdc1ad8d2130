//! What the pods are allowed to do on their nodes.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{objects, of_kind, render};

fn hardened(container: &Value) -> bool {
    let context = &container["securityContext"];
    context["allowPrivilegeEscalation"] == false
        && context["readOnlyRootFilesystem"] == true
        && context["capabilities"]["drop"] == serde_json::json!(["ALL"])
        && context["capabilities"].get("add").is_none()
        && context.get("privileged").is_none()
}

fn common(what: &str, spec: &Value) -> Result<()> {
    for containers in ["containers", "initContainers"] {
        for container in spec[containers].as_array().into_iter().flatten() {
            ensure!(hardened(container), "{what}: {}", container["securityContext"]);
        }
    }
    ensure!(spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", "{what}");
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        ensure!(spec.get(field).is_none(), "{what}: {field}");
    }
    Ok(())
}

/// The restricted profile of Kubernetes' Pod Security Standards.
#[test]
fn the_scheduler_and_its_test_are_restricted() -> Result<()> {
    let all = objects(&render(&["--set", "operator.tlsSecret=own"])?)?;
    let deployment = &of_kind(&all, "Deployment")[0]["spec"]["template"]["spec"];
    let test = &of_kind(&all, "Pod").first().context("the test")?["spec"];
    for (what, spec) in [("scheduler", deployment), ("test", test)] {
        common(what, spec)?;
        let context = &spec["securityContext"];
        ensure!(context["runAsNonRoot"] == true && context["runAsUser"] == 65532, "{what}");
        for volume in spec["volumes"].as_array().into_iter().flatten() {
            ensure!(volume.get("hostPath").is_none(), "{what}: {volume}");
        }
    }
    ensure!(test["automountServiceAccountToken"] == false, "the test needs no token");
    Ok(())
}

/// It is root, because the kubelet's socket is, but without any capability; what it sees of the
/// host it cannot write; and the kubelet's keys and other pods' volumes it does not see.
#[test]
fn the_agent_reads_the_host_and_nothing_more() -> Result<()> {
    let all = objects(&render(&[])?)?;
    let spec = &of_kind(&all, "DaemonSet")[0]["spec"]["template"]["spec"];
    common("agent", spec)?;
    let mounts = spec["containers"][0]["volumeMounts"].as_array().context("mounts")?;
    let mut seen = Vec::new();
    for mount in mounts {
        ensure!(mount["readOnly"] == true, "{mount}");
        let of = |v: &&Value| v["name"] == mount["name"];
        let volume = spec["volumes"].as_array().into_iter().flatten().find(of).context("volume")?;
        let path = mount["mountPath"].as_str().unwrap_or_default();
        match volume["hostPath"]["path"].as_str() {
            Some(host) => seen.push(format!("{host} at {path}")),
            None => seen.push(format!("nothing at {path}")),
        }
    }
    let expected = [
        "/sys at /host/sys",
        "/proc at /host/proc",
        "/var/lib/kubelet at /var/lib/kubelet",
        "nothing at /var/lib/kubelet/pods",
        "nothing at /var/lib/kubelet/plugins",
        "nothing at /var/lib/kubelet/pki",
    ];
    ensure!(seen == expected, "{seen:#?}");
    Ok(())
}
