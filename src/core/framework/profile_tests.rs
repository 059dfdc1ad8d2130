use super::*;

/// A spec with these filters, and the defaults for the rest.
fn spec(filters: &[&str]) -> ProfileSpec {
    let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
    ProfileSpec {
        scheduler_name: "own".to_owned(),
        plugins: DEFAULTS.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect(),
        points: vec![
            (ExtensionPoint::Filter, names(filters)),
            (ExtensionPoint::Score, names(&["ImageLocality", "NodeName", "TaintToleration"])),
        ],
        args: PluginArgs::default(),
    }
}

#[test]
fn filters_have_ascending_positions_whatever_their_order() {
    let orders: [&[&str]; 4] = [
        &["NodeResourcesFit", "NodeName", "PodTopologySpread", "TaintToleration"],
        &["VolumeZone"],
        &["NodeDeclaredFeatures", "NodeName"],
        &[],
    ];
    for order in orders {
        let profile = Profile::from_spec(&spec(order), &Registry::in_tree()).unwrap();
        let at = profile.at(ExtensionPoint::Filter);
        let names: Vec<_> = at.iter().map(|&i| profile.plugins()[i].plugin.name()).collect();
        assert_eq!(names, order);
        assert!(at.is_sorted(), "{order:?}: {at:?}");
        // Nobody is lost, nobody is there twice, and weights go along.
        let mut all: Vec<_> =
            profile.plugins().iter().map(|p| (p.plugin.name(), p.weight)).collect();
        let mut defaults: Vec<_> = DEFAULTS.iter().map(|(name, w)| (*name, (*w).max(1))).collect();
        all.sort_unstable();
        defaults.sort_unstable();
        assert_eq!(all, defaults, "{order:?}");
    }
}

#[test]
fn a_point_has_only_plugins_that_have_it_in_the_order_given() {
    let profile = Profile::from_spec(&spec(&["NodePorts"]), &Registry::in_tree()).unwrap();
    let names = |point| -> Vec<_> {
        profile.at(point).iter().map(|&i| profile.plugins()[i].plugin.name()).collect()
    };
    assert_eq!(names(ExtensionPoint::Score), ["ImageLocality", "TaintToleration"]);
    assert_eq!(names(ExtensionPoint::PreFilter), ["NodePorts"], "Filter needs it");
    assert!(names(ExtensionPoint::PostFilter).is_empty());
}
