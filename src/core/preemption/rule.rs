//! The rule on budgets: upstream picks the least evil, we break none.

use super::budgets_of;
use crate::cluster::Cluster;
use crate::model::PodId;

/// Which budget stands in the way of these evictions, if any. `outstanding` tells how many
/// evictions under a budget were asked for that it does not show yet.
pub(crate) fn refusal(
    cluster: &Cluster,
    victims: &[PodId],
    outstanding: impl Fn((&str, &str)) -> i32,
) -> Option<String> {
    if !cluster.policies().has_budgets() {
        return None;
    }
    let mut asked: Vec<(&str, &str, i32)> = Vec::new();
    for &victim in victims {
        let Some(pod) = cluster.pod(victim).filter(|p| !p.deleting) else {
            continue;
        };
        for (i, budget) in budgets_of(cluster, victim).enumerate() {
            if i > 0 {
                return Some(format!("pod {} has more than one PodDisruptionBudget", pod.key));
            }
            // As upstream: the server has counted it.
            if budget.disrupted.contains(&*pod.key.name) {
                continue;
            }
            let (namespace, name) = (&*budget.namespace, &*budget.name);
            let known = asked.iter().position(|(ns, own, _)| (*ns, *own) == (namespace, name));
            let at = known.unwrap_or_else(|| {
                let left = budget.allowed.saturating_sub(outstanding((namespace, name)));
                asked.push((namespace, name, left));
                asked.len() - 1
            });
            asked[at].2 -= 1;
            if asked[at].2 < 0 {
                return Some(format!(
                    "node(s) need evictions that PodDisruptionBudget {namespace}/{name} forbids"
                ));
            }
        }
    }
    None
}
