//! ImageLocality.

use super::rate;
use crate::framework::Plugin;
use crate::model::normalized_image_name;
use crate::plugins::ImageLocality;
use crate::testing::{ClusterExt, NodeExt, PodExt, cluster, node, pod, wire};

const MIB: i64 = 1024 * 1024;

#[test]
fn nodes_with_the_images_score_higher() {
    // Score = 100*(sum - 23Mi)/(1000Mi*images - 23Mi), sum cut to that range; each
    // image counts size * nodes with it / nodes.
    let table = [
        // a: 523Mi * 1/2 = 261.5Mi: 100*238.5/977 = 24.4 -> 24.
        ("one of two nodes has it", pod("p").container("app:1"), vec![24, 0]),
        // a: 5000Mi * 1/2 = 2500Mi, cut to 1000Mi: 100.
        ("an image beyond the maximum", pod("p").container("big:1"), vec![100, 0]),
        // 40Mi on both: 40*2/2 = 40: 100*17/977 = 1.7 -> 1.
        ("on both nodes it counts in full", pod("p").container("small:1"), vec![1, 1]),
        // 20Mi * 1/2 = 10Mi < 23Mi: 0.
        ("below the minimum", pod("p").container("tiny:1"), vec![0, 0]),
        // a: 261.5Mi: 100*238.5/(2000-23) = 12.06 -> 12.
        ("two images, one there", pod("p").container("app:1").container("no:1"), vec![12, 0]),
        // Twice the same image: sum 523Mi of 2000Mi: 100*500/1977 = 25.
        ("the same image twice", pod("p").container("app:1").container("app:1"), vec![25, 0]),
        ("no tag is latest", pod("p").container("tool"), vec![24, 0]),
        ("no containers at all", pod("p"), vec![0, 0]),
        ("another tag is another image", pod("p").container("app:2"), vec![0, 0]),
    ];
    for (row, pod, expected) in table {
        let a = node("a")
            .image("app:1", 523 * MIB)
            .image("big:1", 5000 * MIB)
            .image("small:1", 40 * MIB)
            .image("tiny:1", 20 * MIB)
            .image("tool:latest", 523 * MIB);
        let mut nodes = cluster([a, node("b").image("small:1", 40 * MIB)]);
        assert_eq!(rate(&ImageLocality, &mut nodes, &pod), Ok(expected), "{row}");
    }
}

#[test]
fn init_containers_and_image_volumes_count_too() {
    let mut nodes = cluster([node("a").image("app:1", 1023 * MIB), node("b")]);
    let wire_pod: muster_api::k8s::Pod = wire(serde_json::json!({"spec": {
        "initContainers": [{"name": "i", "image": "app:1"}],
        "volumes": [{"name": "v", "image": {"reference": "app:1"}}],
    }}));
    // 2 images: 2 * 1023Mi/2 = 1023Mi: 100*1000/1977 = 50.
    assert_eq!(rate(&ImageLocality, &mut nodes, &wire_pod), Ok(vec![50, 0]));
}

#[test]
fn of_a_name_listed_twice_the_last_size_counts() {
    let twice = node("a").image("app:1", 1).image("x:1", 7).image("app:1", 523 * MIB);
    let mut nodes = cluster([twice]);
    // 100*(523-23)/977 = 51.
    assert_eq!(rate(&ImageLocality, &mut nodes, &pod("p").container("app:1")), Ok(vec![51]));
}

#[test]
fn a_tag_is_what_follows_the_last_colon_after_the_last_slash() {
    let table = [
        ("app", "app:latest"),
        ("app:1", "app:1"),
        ("registry:5000/app", "registry:5000/app:latest"),
        ("registry:5000/app:1", "registry:5000/app:1"),
        ("app@sha256:abc", "app@sha256:abc"),
        ("", ":latest"),
    ];
    for (name, expected) in table {
        assert_eq!(normalized_image_name(name), expected, "{name}");
    }
}

#[test]
fn the_stamp_changes_with_everything_a_score_depends_on_beyond_its_node() {
    let plugin = ImageLocality;
    let mut nodes = cluster([node("a").image("app:1", MIB), node("b")]);
    let shape = nodes.shape_of(&pod("p").container("app:1"));
    let other = nodes.shape_of(&pod("p").container("other:1"));
    let stamp = plugin.stamp(&shape, &nodes);
    nodes.add(&node("b").image("app:1", MIB));
    let more_images = plugin.stamp(&shape, &nodes);
    assert_ne!(stamp, more_images, "a second node has the image");
    nodes.add(&node("c"));
    assert_ne!(more_images, plugin.stamp(&shape, &nodes), "there are more nodes");
    assert_eq!(plugin.stamp(&other, &nodes), 0, "nobody has the image: nothing to depend on");
    nodes.add(&node("b"));
    nodes.remove_node("c");
    assert_eq!(stamp, plugin.stamp(&shape, &nodes), "all as before");
    assert_eq!(plugin.events(), [], "it rejects nobody");
}
