//! A plugin that knows its version, and writes down under which version it was called.
//!
//! Owns what it does for which pod: the number at the end of the pod's name is the
//! script. Must never call out or wait, like any plugin.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster::plugin::*;
use muster_core::io::PodRef;
use parking_lot::Mutex;
use serde::Deserialize;

pub(super) const NAME: &str = "Versioned";

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) point: &'static str,
    pub(super) version: u64,
    /// The newest version that was made by then.
    pub(super) newest: u64,
}

/// What all versions write into.
#[derive(Default)]
pub(super) struct Book {
    newest: Mutex<u64>,
    /// By name of the pod, in order.
    pub(super) calls: Mutex<BTreeMap<String, Vec<Call>>>,
    /// Pods that wait at Permit for a word, and the version that holds them.
    pub(super) held: Mutex<Vec<(PodRef, u64)>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    version: u64,
}

pub(super) struct Versioned {
    version: u64,
    book: Arc<Book>,
}

/// The program's plugins, with this one among them.
pub(super) fn registry(book: &Arc<Book>) -> Registry {
    let book = Arc::clone(book);
    Registry::default().plugin(NAME, move |args| {
        let Settings { version } = args.parse()?;
        let mut newest = book.newest.lock();
        *newest = version.max(*newest);
        Ok(Versioned { version, book: Arc::clone(&book) })
    })
}

/// What a pod is for, by the number at the end of its name.
fn number(name: &str) -> u64 {
    name.rsplit('-').next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl Versioned {
    fn note(&self, pod: &str, point: &'static str) {
        let call = Call { point, version: self.version, newest: *self.book.newest.lock() };
        self.book.calls.lock().entry(pod.to_owned()).or_default().push(call);
    }

    fn note_placed(&self, placed: &Placed<'_>, point: &'static str) {
        self.note(&placed.pod.key.name, point);
    }
}

impl Plugin for Versioned {
    fn name(&self) -> &'static str {
        NAME
    }
    /// No event helps whom it turned away: only another version does.
    fn events(&self) -> Vec<Registration> {
        Vec::new()
    }
    fn is_cacheable(&self) -> bool {
        false
    }
    fn as_facet(&self) -> Option<&dyn Facet> {
        Some(self)
    }
    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        Some(self)
    }
    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
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
    fn as_post_bind(&self) -> Option<&dyn PostBind> {
        Some(self)
    }
}

impl Facet for Versioned {
    fn facet(&self, pod: &k8s::Pod) -> Option<Box<str>> {
        Some(pod.metadata.name.as_str().into())
    }
    fn depends_on_args(&self) -> bool {
        false
    }
}

impl PreEnqueue for Versioned {
    /// One in seven waits for a version that lets it in.
    fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status> {
        if number(&pod.key.name) % 7 == 3 && self.version % 4 == 1 {
            return Err(Status::unresolvable("this version keeps it out"));
        }
        Ok(())
    }
}

impl PreFilter for Versioned {
    fn pre_filter(&self, shape: &PodShape, _: &Cluster) -> PreFilterResult {
        self.note(shape.facet(NAME).unwrap_or_default(), "begin");
        PreFilterResult::Go { state: None, nodes: None }
    }
}

impl Filter for Versioned {
    /// One in five fits nowhere under every second version.
    fn filter(&self, _: &State, shape: &PodShape, _: NodeView<'_>) -> Result<(), Status> {
        let pod = shape.facet(NAME).unwrap_or_default();
        self.note(pod, "filter");
        if number(pod) % 5 == 2 && self.version % 2 == 1 {
            return Err(Status::unresolvable("this version turns it away"));
        }
        Ok(())
    }
}

impl Reserve for Versioned {
    fn reserve(&self, placed: &Placed<'_>) -> Result<(), Status> {
        self.note_placed(placed, "reserve");
        Ok(())
    }
    fn unreserve(&self, placed: &Placed<'_>) {
        self.note_placed(placed, "unreserve");
    }
}

impl Permit for Versioned {
    /// One in three waits for a word; one in ten waits in vain, the first time.
    fn permit(&self, placed: &Placed<'_>) -> PermitResult {
        self.note_placed(placed, "permit");
        let pod = &placed.pod.key;
        let times = {
            let calls = self.book.calls.lock();
            let calls = calls.get(&*pod.name).into_iter().flatten();
            calls.filter(|call| call.point == "permit").count()
        };
        match number(&pod.name) {
            n if n.is_multiple_of(3) => {
                self.book.held.lock().push((pod.clone(), self.version));
                PermitResult::Wait { seconds: 60 }
            }
            // No version comes after the last one to try it again.
            n if n % 10 == 1 && times == 1 && !pod.name.starts_with("last") => {
                PermitResult::Wait { seconds: 1 }
            }
            _ => PermitResult::Allow,
        }
    }
}

impl PreBind for Versioned {
    fn pre_bind(&self, placed: &Placed<'_>) -> Step {
        self.note_placed(placed, "prebind");
        Step::Done
    }
}

impl PostBind for Versioned {
    fn post_bind(&self, placed: &Placed<'_>) {
        self.note_placed(placed, "postbind");
    }
}
