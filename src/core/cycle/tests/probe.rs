//! A plugin with every extension point after scoring, that records its calls and
//! does as it is told.

use std::sync::{Arc, Mutex};

use super::harness::Log;
use crate::cluster::NodeView;
use crate::framework::{
    Actions, Bind, Filter, Hint, HintCx, Permit, PermitResult, Placed, Plugin, PostBind, PreBind,
    PreEnqueue, Profile, Registration, Reserve, Resource, State, Status, Step,
};
use crate::model::{Pod, PodShape};
use crate::testing::SCHEDULER;

/// What a plugin answers.
#[derive(Clone, Default)]
pub(super) struct Script {
    pub(super) gate: bool,
    pub(super) filter: Option<Status>,
    pub(super) reserve: Option<Status>,
    pub(super) permit: Option<Status>,
    pub(super) wait: Option<i64>,
    pub(super) pre_bind: Option<Status>,
    pub(super) park: Option<&'static str>,
    /// Whether it binds; `None`: it is no Bind plugin.
    pub(super) binds: Option<bool>,
    /// The point at which it panics.
    pub(super) panic: &'static str,
    pub(super) events: Vec<Registration>,
}

#[derive(Clone)]
pub(super) struct Probe {
    name: &'static str,
    log: Log,
    script: Arc<Mutex<Script>>,
}

impl Probe {
    pub(super) fn new(name: &'static str, script: Script) -> Self {
        Self { name, log: Log::default(), script: Arc::new(Mutex::new(script)) }
    }

    /// Writes its calls into another plugin's log.
    pub(super) fn log_to(mut self, other: &Self) -> Self {
        self.log = Arc::clone(&other.log);
        self
    }

    pub(super) fn calls(&self) -> Vec<String> {
        super::harness::take(&self.log)
    }

    pub(super) fn tell(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.lock().unwrap());
    }

    fn saw(&self, point: &str) -> Script {
        self.log.lock().unwrap().push(format!("{point} {}", self.name));
        let script = self.script.lock().unwrap().clone();
        assert!(script.panic != point, "{point} went wrong");
        script
    }
}

/// The default plugins with these at the end.
pub(super) fn profile(probes: &[&Probe]) -> Profile {
    probes.iter().fold(Profile::default_named(SCHEDULER), |profile, probe| {
        profile.with_plugin(Arc::new((*probe).clone()), 1)
    })
}

/// Events about nodes only.
pub(super) fn node_events() -> Vec<Registration> {
    vec![Registration { resource: Resource::Node, actions: Actions::ADD }]
}

impl Plugin for Probe {
    fn name(&self) -> &'static str {
        self.name
    }
    fn events(&self) -> Vec<Registration> {
        self.script.lock().unwrap().events.clone()
    }
    fn hint(&self, _: &HintCx<'_>) -> Hint {
        self.saw("hint");
        Hint::Queue
    }
    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
    fn as_reserve(&self) -> Option<&dyn Reserve> {
        Some(self)
    }
    fn as_permit(&self) -> Option<&dyn Permit> {
        Some(self)
    }
    fn as_pre_bind(&self) -> Option<&dyn PreBind> {
        Some(self)
    }
    fn as_bind(&self) -> Option<&dyn Bind> {
        let binds = self.script.lock().unwrap().binds;
        binds.map(|_| self as &dyn Bind)
    }
    fn as_post_bind(&self) -> Option<&dyn PostBind> {
        Some(self)
    }
}

impl PreEnqueue for Probe {
    fn pre_enqueue(&self, _: &Pod) -> Result<(), Status> {
        if self.script.lock().unwrap().gate {
            return Err(Status::unresolvable("not yet"));
        }
        Ok(())
    }
}

impl Filter for Probe {
    fn filter(&self, _: &State, _: &PodShape, _: NodeView<'_>) -> Result<(), Status> {
        let script = self.script.lock().unwrap().clone();
        assert!(script.panic != "filter", "filter went wrong");
        script.filter.map_or(Ok(()), Err)
    }
}

impl Reserve for Probe {
    fn reserve(&self, _: &Placed<'_>) -> Result<(), Status> {
        self.saw("reserve").reserve.map_or(Ok(()), Err)
    }
    fn unreserve(&self, _: &Placed<'_>) {
        self.saw("unreserve");
    }
}

impl Permit for Probe {
    fn permit(&self, _: &Placed<'_>) -> PermitResult {
        let script = self.saw("permit");
        match (script.permit, script.wait) {
            (Some(status), _) => PermitResult::Reject(status),
            (None, Some(seconds)) => PermitResult::Wait { seconds },
            (None, None) => PermitResult::Allow,
        }
    }
}

impl PreBind for Probe {
    fn pre_bind(&self, _: &Placed<'_>) -> Step {
        let script = self.saw("prebind");
        match (script.pre_bind, script.park) {
            (Some(status), _) => Step::Fail(status),
            (None, Some(request)) => Step::Park { request: request.into() },
            (None, None) => Step::Done,
        }
    }
}

impl Bind for Probe {
    fn handles(&self, _: &Placed<'_>) -> bool {
        self.saw("bind").binds == Some(true)
    }
}

impl PostBind for Probe {
    fn post_bind(&self, _: &Placed<'_>) {
        self.saw("postbind");
    }
}
