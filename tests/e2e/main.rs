//! The program on a real control plane: etcd, kube-apiserver, kwok.
//!
//! Each test starts a control plane of its own and asks much of it, because a
//! start costs more than a question. They run one after the other: some of
//! them hold the program to a time.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod approval;
mod budgets;
mod checkpoint;
mod custom_plugin;
mod elect;
mod examples;
mod extender;
mod failover;
mod force;
mod gang;
mod gpu_links;
mod healthy;
mod model;
mod node_topology;
mod observer;
mod parity;
mod placement;
mod pod_group;
mod points;
mod policies;
mod quickstart;
mod reload;
mod restraint;
mod serve;
mod several;
mod support;
mod surface;
mod topology;
mod volumes;
mod why;
