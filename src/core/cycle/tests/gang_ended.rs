//! Members of gangs that have ended: two watches show the two, and they are not in step.

use muster_api::{k8s, muster};

use super::harness::{Harness, check};
use crate::io::{Change, Input, Kind, Object};
use crate::testing::{NodeExt as _, PodExt as _, node, pod};

fn member(name: &str) -> k8s::Pod {
    let mut pod = pod(name).req(&[("cpu", "1")]);
    pod.metadata.labels.insert(muster::labels::POD_GROUP.to_owned(), "g".to_owned());
    pod
}

fn group(min: i32) -> Object {
    group_named("g", min)
}

fn group_named(name: &str, min: i32) -> Object {
    let mut group = muster::PodGroup::default();
    group.metadata.name = name.to_owned();
    group.metadata.namespace = "default".to_owned();
    group.spec.min_member = Some(min);
    Object::PodGroup(group)
}

/// Killed after a part of it was bound, and that part has ended by now: the rest comes
/// before gangs of which nobody was bound, however old.
#[test]
fn the_rest_of_a_gang_whose_bound_part_has_ended_comes_first() {
    let mut h = Harness::new();
    h.node(node("n1").alloc("cpu", "2"));
    h.object(group(2));
    let mut old = group_named("old", 2);
    if let Object::PodGroup(group) = &mut old {
        group.metadata.creation_timestamp = Some(k8s::Time(-1_000_000));
    }
    h.object(old);
    for name in ["old-a", "old-b"] {
        let mut pod = member(name);
        pod.metadata.labels.insert(muster::labels::POD_GROUP.to_owned(), "old".to_owned());
        h.pod(pod);
    }
    let mut ended = member("a");
    "Succeeded".clone_into(&mut ended.status.phase);
    h.apply(Input::Ended(Kind::EndedMember, Change::Upsert(Box::new(ended))));
    h.pod(member("b"));
    check(h.run_binds(), "bind default/b -> n1");
}

#[test]
fn old_news_of_a_member_that_has_ended_does_not_count_twice() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.object(group(2));
    let mut ended = member("a");
    "Succeeded".clone_into(&mut ended.status.phase);
    h.apply(Input::Ended(Kind::EndedMember, Change::Upsert(Box::new(ended))));
    // The watch of live pods is behind: it shows the pod as it was before it was bound.
    h.pod(member("a"));
    check(h.run_binds(), "");
    h.pod(member("b"));
    check(h.run_binds(), "bind default/b -> n1");
}
