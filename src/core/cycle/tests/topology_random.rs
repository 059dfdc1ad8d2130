//! Gangs of one shape on random racks, held against what there is room for.

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
