//! Gangs on random racks, held against what there is room for.

use muster_api::k8s;
use serde_json::json;

use super::gang::group;
use super::harness::Harness;
use super::topology::{host, member, topology};
use crate::testing::{PodExt, pod};
use crate::topology::Dice;

/// Room for members, by rack `b1-r2`.
type Racks = std::collections::BTreeMap<String, usize>;

fn world(dice: &mut Dice) -> (Harness, Racks) {
    let mut h = Harness::new();
    h.object(topology(&[("block", "example.com/block"), ("rack", "example.com/rack")]));
    let (mut racks, nodes) = (Racks::new(), 4 + dice.below(40));
    let (blocks, per_block) = (1 + dice.below(3), 1 + dice.below(4));
    for i in 0..nodes {
        let rack = format!("b{}-r{}", dice.below(blocks), dice.below(per_block));
        let name = format!("{rack}-n{i}");
        h.node(host(&name, &rack));
        let others = dice.below(3) as usize;
        for j in 0..others {
            let other = pod(&format!("other-{i}-{j}")).req(&[("cpu", "2")]);
            h.pod(other.edit(|p: &mut k8s::Pod| name.clone_into(&mut p.spec.node_name)));
        }
        *racks.entry(rack).or_default() += 2 - others;
    }
    (h, racks)
}

/// How many fit into the largest domain of a level.
fn most(racks: &Racks, level: &str) -> usize {
    let mut domains = Racks::new();
    for (rack, room) in racks {
        let name = if level == "rack" { rack } else { rack.split_once('-').unwrap().0 };
        *domains.entry(name.to_owned()).or_default() += room;
    }
    domains.into_values().max().unwrap_or(0)
}

#[test]
fn a_gang_is_seated_if_and_only_if_a_domain_has_room_and_never_across_two() {
    let mut seated = 0;
    for seed in 0..150 {
        let mut dice = Dice::new(seed);
        let (mut h, mut racks) = world(&mut dice);
        for round in 0..3 {
            let (level, members) =
                (["rack", "block"][dice.below(2) as usize], 1 + dice.below(12) as usize);
            let name = format!("g{round}");
            let spec = json!({"minMember": members, "topology": {"required": level}});
            h.object(group(&name, &spec));
            for i in 0..members {
                h.pod(member(&format!("{name}-{i}"), &name));
            }
            let binds = h.run_binds();
            let fits = most(&racks, level) >= members;
            assert_eq!(
                binds.len(),
                if fits { members } else { 0 },
                "seed {seed}: {racks:?} {spec}"
            );
            let nodes: Vec<&str> = binds.iter().map(|b| b.rsplit_once(" -> ").unwrap().1).collect();
            for node in &nodes {
                let rack = node.rsplit_once("-n").unwrap().0;
                *racks.get_mut(rack).unwrap() -= 1;
                let parts = if level == "rack" { 2 } else { 1 };
                let domain =
                    |node: &str| node.split('-').take(parts).map(str::to_owned).collect::<Vec<_>>();
                assert_eq!(domain(node), domain(nodes[0]), "seed {seed}: {binds:?}");
            }
            seated += usize::from(fits);
        }
    }
    assert!(seated > 100, "{seated} gangs were seated");
}

/// Whether members that take so many CPUs fit into nodes that have so many left, by trying
/// all ways.
fn fit(members: &[u64], nodes: &mut Vec<u64>) -> bool {
    let Some((first, rest)) = members.split_first() else { return true };
    let mut tried = Vec::new();
    for i in 0..nodes.len() {
        if nodes[i] < *first || tried.contains(&nodes[i]) {
            continue;
        }
        tried.push(nodes[i]);
        nodes[i] -= first;
        let fits = fit(rest, nodes);
        nodes[i] += first;
        if fits {
            return true;
        }
    }
    false
}

#[test]
fn gangs_of_members_that_differ_are_seated_if_they_fit_or_it_is_said_that_not_all_was_tried() {
    let (mut cases, mut agree, mut seated) = (0, 0, 0);
    for seed in 0..400 {
        let mut dice = Dice::new(seed * 7 + 3);
        let mut h = Harness::new();
        h.object(topology(&[("block", "example.com/block"), ("rack", "example.com/rack")]));
        let racks = 1 + dice.below(4);
        let mut left: Vec<Vec<u64>> = vec![Vec::new(); racks as usize];
        for i in 0..2 + dice.below(5) * racks {
            let rack = dice.below(racks);
            let name = format!("b1-r{rack}-n{i}");
            h.node(host(&name, &format!("b1-r{rack}")));
            let used = dice.below(4);
            let other = pod(&format!("other-{i}")).req(&[("cpu", &used.to_string())]);
            h.pod(other.edit(|p: &mut k8s::Pod| name.clone_into(&mut p.spec.node_name)));
            left[rack as usize].push(4 - used);
        }
        // As much as the largest rack has, a little less or more, in members that differ.
        let most = left.iter().map(|nodes| nodes.iter().sum::<u64>()).max().unwrap_or(0);
        let (mut sum, mut members) = (0, Vec::new());
        while members.len() < 10 && sum + 1 < most {
            members.push(1 + dice.below(4));
            sum += members[members.len() - 1];
        }
        if members.len() < 2 {
            continue;
        }
        let spec = json!({"minMember": members.len(), "topology": {"required": "rack"}});
        h.object(group("g", &spec));
        for (i, cpu) in members.iter().enumerate() {
            let member = pod(&format!("g-{i}")).pod_label("muster.dev/pod-group", "g");
            h.pod(member.req(&[("cpu", &cpu.to_string())]));
        }
        let effects = h.run();
        let binds = effects.iter().filter(|e| e.starts_with("bind")).count();
        assert!(binds == 0 || binds == members.len(), "seed {seed}: {effects:?}");
        members.sort_unstable_by(|a, b| b.cmp(a));
        let fits = left.iter_mut().any(|nodes| fit(&members, nodes));
        let unsure = effects.iter().any(|e| e.contains("not found within"));
        assert!(fits || binds == 0, "seed {seed}: seated where nothing fits");
        assert!(!fits || binds > 0 || unsure, "seed {seed}: {members:?} {left:?} {effects:?}");
        cases += 1;
        agree += usize::from(fits == (binds > 0));
        seated += usize::from(binds > 0);
    }
    assert!(agree * 100 >= cases * 99, "{agree} of {cases} agree");
    assert!(cases > 300 && seated > 80 && seated < cases - 80, "{seated} of {cases} seated");
}
