//! What others build on: plugins of one's own, and what a reload may change.

use std::sync::{Arc, Mutex};

use muster_core::Profile;
use muster_core::framework::{ExtensionPoint, Filter, Plugin, State, Status};

use super::*;

/// A change that a running scheduler cannot follow is named; any other is not.
#[test]
fn what_needs_a_restart_is_named() {
    let base = v1("").unwrap();
    for (text, fields) in [
        ("podMaxBackoffSeconds: 20", &[][..]),
        ("profiles: [{plugins: {score: {disabled: [{name: \"*\"}]}}}]", &[]),
        ("leaderElection: {leaseDuration: 20s}", &["leaderElection"]),
        ("clientConnection: {qps: 10}", &["clientConnection"]),
        ("parallelism: 2", &["parallelism"]),
        ("profiles: [{schedulerName: other}]", &["profiles[].schedulerName"]),
    ] {
        assert_eq!(v1(text).unwrap().needs_restart(&base), fields, "{text}");
    }
}

/// A plugin of one's own is enabled by its name and gets its arguments as written.
#[test]
fn a_registered_plugin_is_known_by_its_name() {
    struct Own;
    impl Plugin for Own {
        fn name(&self) -> &'static str {
            "Own"
        }
        fn as_filter(&self) -> Option<&dyn Filter> {
            Some(self)
        }
    }
    impl Filter for Own {
        fn filter(
            &self,
            _: &State,
            _: &muster_core::model::PodShape,
            _: muster_core::cluster::NodeView<'_>,
        ) -> Result<(), Status> {
            Ok(())
        }
    }
    let given = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&given);
    let registry = Registry::in_tree().with(
        "Own",
        Arc::new(move |args| {
            *seen.lock().unwrap() = args.custom.get("Own").cloned();
            Ok(Arc::new(Own))
        }),
    );
    let text = format!(
        "{HEAD}profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: Own}}]}}}}, pluginConfig: \
         [{{name: Own, args: {{anything: [1, {{deep: true}}]}}}}]}}]"
    );
    let path = Path::new("config.yaml");
    let config = Configuration::parse_with(path, &text, &registry).unwrap();
    let last = |point| config.profiles[0].called[&point].last().unwrap().name.clone();
    assert_eq!(last(ExtensionPoint::Filter), "Own");
    assert_ne!(last(ExtensionPoint::Score), "Own");
    assert_eq!(*given.lock().unwrap(), Some(json!({"anything": [1, {"deep": true}]})));
    assert_eq!(config.core_profiles(&registry).unwrap()[0].plugins().len(), 20);
    let unknown = parse(&text).unwrap_err().to_string();
    assert_eq!(
        unknown,
        "config.yaml: profiles[0].plugins.multiPoint: PreFilterPlugin \"Own\" does not exist (remove it, or run a program that registers it)"
    );
}

/// The default profile of the configuration is the core's own.
#[test]
fn the_default_profile_is_the_cores() {
    let named = |profile: &Profile| -> Vec<(&'static str, i64)> {
        profile.plugins().iter().map(|p| (p.plugin.name(), p.weight)).collect()
    };
    let config = Configuration::default();
    let (own, core) =
        (&config.core_profiles(&Registry::in_tree()).unwrap()[0], Profile::default_named("muster"));
    assert_eq!(own.scheduler_name(), core.scheduler_name());
    assert_eq!(named(own), named(&core));
    // PreScore is part of Score in the core: nobody is called there alone.
    for point in ExtensionPoint::ALL.into_iter().filter(|p| *p != ExtensionPoint::PreScore) {
        assert_eq!(own.at(point), core.at(point), "{point:?}");
    }
}
