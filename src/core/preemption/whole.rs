//! Gangs are not left below their minimum: who goes with a victim.
//!
//! Upstream knows no gangs here. A victim whose gang can do without it goes alone, as
//! upstream has it; with any other its whole gang goes, if all of it may.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Candidate, protected};
use crate::bugs::bug;
use crate::cluster::{Cluster, Gang};
use crate::gang::{Count, GangId, GangSpec};
use crate::model::{PodId, PodStage};

/// How many members of a gang have room, ended ones among them.
pub(crate) fn held(cluster: &Cluster, gang: &Gang, spec: &GangSpec) -> Count {
    cluster.standing(gang, spec, |_| false, |_| false).held
}

/// The gang that may not lose a pod without a thought, and what it asks for.
pub(crate) fn bound_by(cluster: &Cluster, pod: PodId) -> Option<(GangId, &Gang, &GangSpec)> {
    let id = cluster.pod(pod)?.gang?;
    let gang = cluster.gang(id)?;
    let spec = gang.spec.as_deref().filter(|spec| !spec.alone)?;
    Some((id, gang, spec))
}

/// Members that have room and are not leaving. `Err`: one is on a node that is not known,
/// and cannot be counted on to go.
pub(crate) fn members(cluster: &Cluster, gang: &Gang) -> Result<Vec<PodId>, PodId> {
    let mut there = Vec::with_capacity(gang.members.len());
    for &id in &gang.members {
        let Some(pod) = cluster.pod(id).filter(|p| !p.deleting) else { continue };
        match pod.stage {
            PodStage::Pending => {}
            PodStage::Away(_) => return Err(id),
            PodStage::Assumed(_) | PodStage::Bound(_) => there.push(id),
        }
    }
    Ok(there)
}

/// The same candidate with all that have to go with its victims; none if nobody has.
/// `Err` says who would have to and may not. `gone`: what has left and was not seen to; the
/// gang has lost it already.
pub(crate) fn with_gangs(
    cluster: &Cluster,
    candidate: &Candidate,
    priority: i32,
    gone: impl Fn(PodId) -> bool,
) -> Result<Option<Candidate>, String> {
    let mut lost: BTreeMap<GangId, Count> = BTreeMap::new();
    for &victim in &candidate.victims {
        let stays = cluster.pod(victim).is_some_and(|p| !p.deleting) && !gone(victim);
        if let Some((id, _, spec)) = bound_by(cluster, victim).filter(|_| stays) {
            let count = lost.entry(id).or_insert_with(|| Count::none(spec));
            count.add(cluster.role_of(spec, victim));
        }
    }
    let mut victims = candidate.victims.clone();
    for (id, lost) in lost {
        let Some(gang) = cluster.gang(id) else { continue };
        let Some(spec) = gang.spec.as_deref() else { continue };
        let left = held(cluster, gang, spec).minus(&lost);
        if left.suffices(spec) || bug!(cluster.bugs, VictimGangCut) {
            continue;
        }
        let refuse = |pod: PodId, why: &str| {
            let name = cluster.pod(pod).map(|p| p.key.to_string()).unwrap_or_default();
            let group = &gang.key;
            Err(format!(
                "node(s) need the eviction of all of pod group {group}, of which {name} {why}"
            ))
        };
        let all = match members(cluster, gang) {
            Ok(all) => all,
            Err(pod) => return refuse(pod, "is out of reach"),
        };
        let high = |pod: &&PodId| cluster.pod(**pod).is_some_and(|p| p.priority >= priority);
        if let Some(pod) = all.iter().find(high) {
            return refuse(*pod, "is no less important");
        }
        victims.extend(all.into_iter().filter(|pod| !candidate.victims.contains(pod)));
    }
    if victims.len() == candidate.victims.len() {
        return Ok(None);
    }
    super::sort_by_importance(cluster, &mut victims);
    let violations = protected(cluster, &victims);
    Ok(Some(Candidate::new(cluster, candidate.node, victims, violations)))
}

/// Who goes together: gangs that would be left below their minimum whole, all others one by
/// one. The larger first, then in the order of `victims`.
pub(crate) fn units(cluster: &Cluster, victims: &[PodId]) -> Vec<Vec<PodId>> {
    let mut lost: BTreeMap<GangId, Count> = BTreeMap::new();
    for &victim in victims {
        if let Some((id, _, spec)) = bound_by(cluster, victim) {
            let count = lost.entry(id).or_insert_with(|| Count::none(spec));
            count.add(cluster.role_of(spec, victim));
        }
    }
    let mut units: Vec<Vec<PodId>> = Vec::new();
    let mut whole: BTreeMap<GangId, usize> = BTreeMap::new();
    for &victim in victims {
        let gang = bound_by(cluster, victim)
            .filter(|(id, gang, spec)| !held(cluster, gang, spec).minus(&lost[id]).suffices(spec));
        match gang.map(|(id, ..)| *whole.entry(id).or_insert(units.len())) {
            Some(unit) if unit < units.len() => units[unit].push(victim),
            _ => units.push(vec![victim]),
        }
    }
    units.sort_by_key(|unit| Reverse(unit.len()));
    units
}
