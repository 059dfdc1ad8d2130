//! The `priorityClasses` section.

use muster_api::k8s::PriorityClass;

use super::cursor::Cursor;
use super::nodes::check_dns;
use super::{ScenarioError, Workload};

pub(super) fn decode(at: &Cursor<'_>) -> Result<PriorityClass, ScenarioError> {
    let fields = at.fields(&["name", "value", "preemptionPolicy"])?;
    let name_at = fields.need("name", "e.g. high")?;
    check_dns(&name_at, name_at.name()?)?;
    let value =
        fields.need("value", "the priority, e.g. 1000")?.int(-2_147_483_648, 2_000_000_000)?;
    let mut class = PriorityClass::default();
    name_at.name()?.clone_into(&mut class.metadata.name);
    class.value = i32::try_from(value).unwrap_or(0);
    class.preemption_policy = fields.get("preemptionPolicy").map(|p| policy(&p)).transpose()?;
    Ok(class)
}

/// `preemptionPolicy` of a class or a pod.
pub(super) fn policy(at: &Cursor<'_>) -> Result<String, ScenarioError> {
    match at.text()? {
        known @ ("Never" | "PreemptLowerPriority") => Ok(known.to_owned()),
        other => Err(at.error(format!("{other:?}; write Never or PreemptLowerPriority"))),
    }
}

/// Each class has a name of its own, and each that a workload names is there.
pub(super) fn check_names(
    classes: &[PriorityClass],
    workloads: &[Workload],
    at: &Cursor<'_>,
) -> Result<(), ScenarioError> {
    let mut names: Vec<&str> = classes.iter().map(|c| c.metadata.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(at.error(format!("two priorityClasses are named {:?}; rename one", pair[0])));
    }
    for workload in workloads {
        let named = workload.template.spec.priority_class_name.as_str();
        if !named.is_empty() && !names.contains(&named) {
            let name = &workload.name;
            return Err(at.error(format!(
                "{name:?} names the class {named:?}, which priorityClasses does not have"
            )));
        }
    }
    Ok(())
}
