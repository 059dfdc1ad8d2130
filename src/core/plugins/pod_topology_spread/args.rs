//! Constraints for pods that bring none: which, and what is wrong with them.

use muster_api::k8s;

use super::domains::HOSTNAME;
use crate::model::{SpreadConstraint, is_qualified_name};

const ZONE: &str = "topology.kubernetes.io/zone";

/// Constraints for pods that bring none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodTopologySpreadArgs {
    /// Hosts with a skew of 3 and zones with a skew of 5, both `ScheduleAnyway`.
    #[default]
    System,
    /// These.
    List(Vec<k8s::TopologySpreadConstraint>),
}

pub(super) fn system_defaults() -> Vec<SpreadConstraint> {
    let default = |key: &str, max_skew| SpreadConstraint {
        hard: false,
        max_skew,
        topology_key: key.into(),
        selector: crate::model::Selector::default(),
        min_domains: 1,
        honor_affinity: true,
        honor_taints: false,
        matches_self: false,
    };
    vec![default(HOSTNAME, 3), default(ZONE, 5)]
}

/// Upstream's validation of a default constraint: field and problem.
pub(super) fn check(
    before: &[k8s::TopologySpreadConstraint],
    one: &k8s::TopologySpreadConstraint,
) -> Result<(), (&'static str, String)> {
    if one.max_skew <= 0 {
        let problem =
            format!("Invalid value: {}: not in valid range (0, 2147483647]", one.max_skew);
        return Err(("maxSkew", problem));
    }
    if !is_qualified_name(&one.topology_key) {
        let problem = format!("Invalid value: {:?}: must be a valid label key", one.topology_key);
        return Err(("topologyKey", problem));
    }
    if !matches!(one.when_unsatisfiable.as_str(), "DoNotSchedule" | "ScheduleAnyway") {
        let problem = format!(
            "Unsupported value: {:?}: supported values: \"DoNotSchedule\", \"ScheduleAnyway\"",
            one.when_unsatisfiable
        );
        return Err(("whenUnsatisfiable", problem));
    }
    if one.label_selector.is_some() {
        let problem =
            "Forbidden: constraint must not define a selector, as they deduced for each pod";
        return Err(("labelSelector", problem.to_owned()));
    }
    let same = |c: &k8s::TopologySpreadConstraint| {
        c.topology_key == one.topology_key && c.when_unsatisfiable == one.when_unsatisfiable
    };
    if before.iter().any(same) {
        let problem = "Duplicate value: topologyKey and whenUnsatisfiable are there already";
        return Err(("topologyKey", problem.to_owned()));
    }
    Ok(())
}
