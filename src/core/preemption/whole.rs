//! Gangs are not left below their minimum: who goes with a victim.
//!
//! Upstream knows no gangs here. A victim whose gang can do without it goes alone, as
//! upstream has it; with any other its whole gang goes, if all of it may.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Candidate, protected};
use crate::bugs::bug;
use crate::cluster::{Cluster, Gang};
use crate::gang::{Count, GangId, GangSpec};
use crate::hash::{IdMap, IdSet};
use crate::io::Tick;
use crate::model::{Pod, PodId, PodStage};

/// Pods that are on their way out, and not seen to be.
#[derive(Clone, Copy)]
pub(crate) struct Leaving<'a> {
    /// They have to go for somebody, and may yet stay.
    pub(crate) taken: &'a IdMap<PodId, Vec<Arc<str>>>,
    /// They have left.
    pub(crate) gone: &'a IdSet<PodId>,
}

impl Leaving<'_> {
    /// Whether nobody can count on a pod.
    pub(crate) fn has(&self, pod: PodId) -> bool {
        self.taken.contains_key(&pod) || self.gone.contains(&pod)
    }
}

/// How many members of a gang have room and will keep it, ended ones among them, if all
/// leave of whom `leaves` says so.
pub(crate) fn held(
    cluster: &Cluster,
    gang: &Gang,
    spec: &GangSpec,
    leaves: impl Fn(PodId) -> bool,
) -> Count {
    let mut going = Count::none(spec);
    for &id in gang.members.iter().filter(|id| leaves(**id)) {
        let counted = |p: &&Pod| !p.deleting && p.stage != PodStage::Pending;
        if cluster.pod(id).filter(counted).is_some_and(|p| !gang.has_ended(&p.key.uid)) {
            going.add(cluster.role_of(spec, id));
        }
    }
    cluster.standing(gang, spec, |_| false, |_| false).held.minus(&going)
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

/// Why some cannot go, and until when if only time has to pass.
pub(crate) struct Stays {
    pub(crate) why: String,
    pub(crate) until: Option<Tick>,
}

/// The same candidate with all that have to go with its victims; none if nobody has.
/// `Err` says who would have to and may not.
pub(crate) fn with_gangs(
    cluster: &Cluster,
    candidate: &Candidate,
    priority: i32,
    leaving: Leaving<'_>,
) -> Result<Option<Candidate>, Stays> {
    let mut victims = candidate.victims.clone();
    for id in broken(cluster, &candidate.victims, leaving) {
        let Some(gang) = cluster.gang(id).filter(|_| !bug!(cluster.bugs, VictimGangCut)) else {
            continue;
        };
        let refuse = |pod: PodId, why: &str, until: Option<Tick>| {
            let name = cluster.pod(pod).map(|p| p.key.to_string()).unwrap_or_default();
            let group = &gang.key;
            let why = format!(
                "node(s) need the eviction of all of pod group {group}, of which {name} {why}"
            );
            Err(Stays { why, until })
        };
        let all = match members(cluster, gang) {
            Ok(all) => all,
            Err(pod) => return refuse(pod, "is out of reach", None),
        };
        let high = |pod: &&PodId| cluster.pod(**pod).is_some_and(|p| p.priority >= priority);
        if let Some(pod) = all.iter().find(high) {
            return refuse(*pod, "is no less important", None);
        }
        let shield = |id: &PodId| cluster.shield(*id, cluster.pod(*id)?, priority);
        let protected = all.iter().find_map(|id| Some((*id, shield(id)?)));
        if let Some((pod, shield)) = protected {
            let why = format!("is protected by {}", shield.by.words());
            return refuse(pod, &why, shield.until);
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

/// Gangs that would be left below their minimum without these. Who goes for somebody else
/// may be let go, so with it too all go that have to; what has left a gang has lost already.
fn broken(cluster: &Cluster, victims: &[PodId], leaving: Leaving<'_>) -> BTreeSet<GangId> {
    let stays =
        |pod: PodId| cluster.pod(pod).is_some_and(|p| !p.deleting) && !leaving.gone.contains(&pod);
    let gangs = victims.iter().filter(|v| stays(**v)).filter_map(|v| bound_by(cluster, *v));
    let gangs: BTreeMap<GangId, _> = gangs.map(|(id, gang, spec)| (id, (gang, spec))).collect();
    let cut = |gang: &Gang, spec: &GangSpec| {
        let left = held(cluster, gang, spec, |pod| leaving.has(pod) || victims.contains(&pod));
        !left.suffices(spec)
    };
    gangs.into_iter().filter(|(_, (gang, spec))| cut(gang, spec)).map(|(id, _)| id).collect()
}

/// Who goes together: gangs that would be left below their minimum whole, all others one by
/// one. The larger first, then in the order of `victims`.
pub(crate) fn units(cluster: &Cluster, victims: &[PodId], leaving: Leaving<'_>) -> Vec<Vec<PodId>> {
    let broken = broken(cluster, victims, leaving);
    let mut units: Vec<Vec<PodId>> = Vec::new();
    let mut whole: BTreeMap<GangId, usize> = BTreeMap::new();
    for &victim in victims {
        let gang = cluster.pod(victim).and_then(|p| p.gang).filter(|id| broken.contains(id));
        match gang.map(|id| *whole.entry(id).or_insert(units.len())) {
            Some(unit) if unit < units.len() => units[unit].push(victim),
            _ => units.push(vec![victim]),
        }
    }
    units.sort_by_key(|unit| Reverse(unit.len()));
    units
}
