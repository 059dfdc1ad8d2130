//! Members of gangs that have ended: two watches show the two, and they are not in step.

use muster_api::{k8s, muster};

use super::harness::{Harness, check};
use crate::io::{Change, Input, Kind, Object};
use crate::testing::{PodExt as _, node, pod};

fn member(name: &str) -> k8s::Pod {
    let mut pod = pod(name).req(&[("cpu", "1")]);
    pod.metadata.labels.insert(muster::labels::POD_GROUP.to_owned(), "g".to_owned());
    pod
}

fn group(min: i32) -> Object {
    let mut group = muster::PodGroup::default();
    group.metadata.name = "g".to_owned();
    group.metadata.namespace = "default".to_owned();
    group.spec.min_member = Some(min);
    Object::PodGroup(group)
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
