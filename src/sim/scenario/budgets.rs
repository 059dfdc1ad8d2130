//! The `budgets` section: PodDisruptionBudgets.

use super::ScenarioError;
use super::cursor::Cursor;
use super::nodes::check_dns;
use super::tree::Value;
use crate::model::budget::{Amount, Budget};

pub(super) fn decode(at: &Cursor<'_>) -> Result<Budget, ScenarioError> {
    let fields = at.fields(&[
        "name",
        "namespace",
        "matchLabels",
        "minAvailable",
        "maxUnavailable",
        "unhealthyPodEvictionPolicy",
    ])?;
    let name_at = fields.need("name", "e.g. keep-two")?;
    check_dns(&name_at, name_at.name()?)?;
    let text = |name: &str| fields.get(name).map(|f| f.text()).transpose();
    let amount = |name: &str| fields.get(name).map(|a| decode_amount(&a)).transpose();
    let budget = Budget {
        name: name_at.name()?.to_owned(),
        namespace: text("namespace")?.unwrap_or("default").to_owned(),
        match_labels: fields.need("matchLabels", "e.g. {app: web}")?.labels()?,
        min_available: amount("minAvailable")?,
        max_unavailable: amount("maxUnavailable")?,
        always_allow_unhealthy: text("unhealthyPodEvictionPolicy")? == Some("AlwaysAllow"),
    };
    if budget.min_available.is_some() == budget.max_unavailable.is_some() {
        return Err(at.error("write one of minAvailable and maxUnavailable"));
    }
    Ok(budget)
}

fn decode_amount(at: &Cursor<'_>) -> Result<Amount, ScenarioError> {
    if let Value::Text(text) = &at.tree.value {
        let percent = text.strip_suffix('%').and_then(|n| n.parse().ok()).filter(|p| *p <= 100);
        return percent.map(Amount::Percent).ok_or_else(|| at.error("write e.g. 2 or \"50%\""));
    }
    Ok(Amount::Count(at.int(0, 1_000_000)?))
}
