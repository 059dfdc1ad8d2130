//! `podGroup` of a workload: the gang that its pods are.

use std::collections::BTreeSet;

use muster_api::k8s::{LabelSelector, Pod};
use muster_api::muster::{
    HalfBound, MAX_MEMBERS, MAX_ROLES, MAX_SECONDS, PodGroupSpec, Role, labels,
};

use super::ScenarioError;
use super::cursor::Cursor;
use super::nodes::check_dns;
use crate::time::Micros;

/// Longest name of a pod group: its members name it in a label.
const MAX_GROUP_NAME: usize = 63;

/// The pod group of a workload. Every submission has one of its own, of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSpec {
    /// What it asks for.
    pub spec: PodGroupSpec,
    /// How long after the workload it is created.
    pub after: Micros,
}

impl GroupSpec {
    pub(super) fn decode(
        at: &Cursor<'_>,
        workload: &str,
        repeat: u32,
        template: &Pod,
    ) -> Result<Self, ScenarioError> {
        let fields = at.fields(&[
            "minMember",
            "roles",
            "scheduleTimeoutSeconds",
            "whenHalfBound",
            "topology",
            "after",
        ])?;
        let longest = workload.len() + if repeat > 1 { repeat.to_string().len() + 1 } else { 0 };
        if longest > MAX_GROUP_NAME {
            return Err(at.error(format!(
                "a pod group has the name of its workload, at most {MAX_GROUP_NAME} characters; shorten it"
            )));
        }
        if template.metadata.labels.contains_key(labels::POD_GROUP) {
            return Err(at.error(format!(
                "the label {} names a pod group too; write one of them",
                labels::POD_GROUP
            )));
        }
        let roles = match fields.get("roles") {
            Some(roles) => decode_roles(&roles)?,
            None => Vec::new(),
        };
        let sum: i64 = roles.iter().map(|role| i64::from(role.min_member)).sum();
        let min_member = match fields.get("minMember") {
            None if sum == 0 => {
                fields.need("minMember", "how many pods start together, e.g. 8")?;
                None
            }
            None => None,
            Some(least) => {
                let count = least.int(1, i64::from(MAX_MEMBERS))?;
                if count < sum {
                    return Err(least.error(format!(
                        "must be at least {sum}, the sum of the roles' minMember; leave it out for the sum"
                    )));
                }
                i32::try_from(count).ok()
            }
        };
        let timeout = fields.get("scheduleTimeoutSeconds");
        let timeout = timeout.map(|t| t.int(1, i64::from(MAX_SECONDS))).transpose()?;
        let spec = PodGroupSpec {
            min_member,
            roles,
            schedule_timeout_seconds: timeout.and_then(|t| i32::try_from(t).ok()),
            when_half_bound: fields.get("whenHalfBound").map(|w| half_bound(&w)).transpose()?,
            topology: fields
                .get("topology")
                .map(|t| super::policies::decode_request(&t))
                .transpose()?,
            ..PodGroupSpec::default()
        };
        let after = fields.get("after").map_or(Ok(0), |after| after.duration(0))?;
        Ok(Self { spec, after })
    }
}

fn half_bound(at: &Cursor<'_>) -> Result<HalfBound, ScenarioError> {
    match at.text()? {
        "Release" => Ok(HalfBound::Release),
        "Wait" => Ok(HalfBound::Wait),
        other => Err(at.error(format!("{other:?}; write Release or Wait"))),
    }
}

fn decode_roles(at: &Cursor<'_>) -> Result<Vec<Role>, ScenarioError> {
    let mut names = BTreeSet::new();
    let mut roles = Vec::new();
    for item in at.list(MAX_ROLES)? {
        let fields = item.fields(&["name", "minMember", "matchLabels"])?;
        let name_at = fields.need("name", "e.g. worker")?;
        let name = name_at.name()?;
        check_dns(&name_at, name)?;
        if !names.insert(name) {
            return Err(name_at.error(format!("two roles are named {name:?}; rename one")));
        }
        let least = fields.need("minMember", "how many of them start with the rest, or 0")?;
        let least = i32::try_from(least.int(0, i64::from(MAX_MEMBERS))?).unwrap_or(0);
        let labels_at = fields.need("matchLabels", "the labels of its pods, e.g. {app: worker}")?;
        let match_labels = labels_at.labels()?;
        if match_labels.is_empty() {
            return Err(labels_at.error("must not be empty: name the labels of its pods"));
        }
        roles.push(Role {
            name: name.to_owned(),
            min_member: least,
            selector: LabelSelector { match_labels, ..LabelSelector::default() },
            topology: None,
        });
    }
    Ok(roles)
}
