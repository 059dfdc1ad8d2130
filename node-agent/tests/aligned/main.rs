//! From agent to scheduler: machines as the machine files have them, agents that read them, a real
//! API server, the scheduler with NodeNumaFit, and kubelets that admit by the kubelet's own code.

#[path = "../../../tests/oracle/binary.rs"]
mod binary;
#[path = "../../../tests/kubelet-oracle/driver.rs"]
#[allow(dead_code, reason = "the oracle's own test uses the rest")]
mod driver;
#[path = "../support/kubelet.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod kubelet;
mod machine;
mod streams;
#[path = "../cluster/support.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod support;
