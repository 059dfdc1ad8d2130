//! The tree as the status of a `ClusterTopology`, and where the members of a group
//! are in it.

use muster_api::muster::{
    ClusterTopologyStatus, Domain, DomainStatus, LevelStatus, MAX_DOMAINS, TopologyLevel,
    TopologyRequest,
};

use super::order::natural;
use super::tree::{At, ROOT, Tree};

/// Levels and domains of a tree, counted; domains level by level, widest first, as
/// many as a status may list. Without generation and conditions.
#[must_use]
pub fn counted(tree: &Tree) -> ClusterTopologyStatus {
    let levels = tree.levels().iter().enumerate().map(|(i, level)| LevelStatus {
        name: level.name.clone(),
        node_label: level.node_label.clone(),
        domains: small(tree.domains_of(i)),
        nodes_without_label: small(tree.nodes_without(i)),
    });
    let total: i64 = (0..tree.levels().len()).map(|i| tree.domains_of(i)).sum();
    let mut domains = Vec::new();
    let mut row: Vec<(At, String)> = vec![(ROOT, String::new())];
    for level in tree.levels() {
        let mut next = Vec::new();
        for (at, path) in row {
            let children = &tree.domains[at].children;
            let mut children: Vec<(&str, At)> = children.iter().map(|(n, c)| (&**n, *c)).collect();
            children.sort_unstable_by(|a, b| natural(a.0, b.0));
            for (name, child) in children {
                if domains.len() == MAX_DOMAINS {
                    break;
                }
                let sums = &tree.domains[child].sums;
                domains.push(DomainStatus {
                    level: level.name.clone(),
                    name: name.to_owned(),
                    parent: path.clone(),
                    nodes: small(sums.nodes),
                    gpus: sums.gpus,
                    free_gpus: sums.free,
                });
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
                next.push((child, path));
            }
        }
        row = next;
    }
    let omitted = total - domains.len() as i64;
    ClusterTopologyStatus {
        levels: levels.collect(),
        domains,
        domains_omitted: (omitted > 0).then(|| small(omitted)),
        ..ClusterTopologyStatus::default()
    }
}

fn small(n: i64) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// The domain that holds all of these nodes, of what a group asked for: that of the
/// required level, or the narrowest one, no narrower than the preferred level.
/// `topologies` in the order in which a level's name is looked for; what none of them
/// names is a node label.
#[must_use]
pub fn domain_of<'a>(
    request: &TopologyRequest,
    topologies: &[&'a [TopologyLevel]],
    nodes: &[&str],
    label: impl Fn(&str, &str) -> Option<&'a str>,
) -> Option<Domain> {
    let shared = |key: &str| {
        let mut values = nodes.iter().map(|node| label(node, key));
        let first = values.next()??;
        values.all(|value| value == Some(first)).then_some(first)
    };
    let domain = |level: &str, key: &str, value: &str| Domain {
        level: level.to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let at = |levels: &'a [TopologyLevel], asked: &str| levels.iter().position(|l| l.name == asked);
    // A topology that has both levels is meant before one that has the one or the other.
    let named = [request.required.as_deref(), request.preferred.as_deref()];
    let has_all = |levels: &&&'a [TopologyLevel]| {
        named.iter().flatten().all(|asked| at(levels, asked).is_some())
    };
    let both = topologies.iter().find(has_all);
    let find = |asked: &str| {
        both.into_iter().chain(topologies).find_map(|levels| Some((*levels, at(levels, asked)?)))
    };
    let within = |asked: &str, widest: usize| match find(asked) {
        None => shared(asked).map(|value| domain(asked, asked, value)),
        Some((levels, last)) => {
            // A domain is one only within one domain of every wider level.
            let depth = levels[..=last].iter().take_while(|l| shared(&l.node_label).is_some());
            let narrowest = depth.count().checked_sub(1).filter(|at| *at >= widest.min(last))?;
            let TopologyLevel { name, node_label } = &levels[narrowest];
            Some(domain(name, node_label, shared(node_label)?))
        }
    };
    match (request.required.as_deref(), request.preferred.as_deref()) {
        (Some(required), _) => within(required, usize::MAX),
        (None, preferred) => within(preferred?, 0),
    }
}
