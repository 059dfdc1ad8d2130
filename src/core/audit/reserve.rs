//! Reserve and Unreserve, as a test plugin saw them called.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Calls of test plugins, not yet looked at.
pub type PointLog = Arc<Mutex<Vec<PointCall>>>;

/// An extension point whose calls are paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Reserve, and it took something.
    Reserve,
    /// Reserve, and it took nothing.
    ReserveFailed,
    /// Unreserve.
    Unreserve,
    /// PostBind: what was reserved is kept for good.
    PostBind,
}

/// One call of a test plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointCall {
    /// UID of the pod.
    pub pod: Arc<str>,
    /// The plugin.
    pub plugin: &'static str,
    /// Which point.
    pub point: Point,
}

/// Who holds what: plugins per pod, in the order of Reserve.
#[derive(Default)]
pub(super) struct Reservations {
    held: BTreeMap<Arc<str>, Vec<&'static str>>,
    /// Plugins that were given back to since the last Reserve.
    returned: BTreeMap<Arc<str>, Vec<&'static str>>,
}

impl Reservations {
    /// Takes in a call; says what is wrong with it.
    pub(super) fn see(&mut self, call: &PointCall) -> Option<String> {
        let PointCall { pod, plugin, point } = call;
        let held = self.held.entry(Arc::clone(pod)).or_default();
        let returned = self.returned.entry(Arc::clone(pod)).or_default();
        match point {
            Point::Reserve if held.contains(plugin) => {
                Some(format!("{plugin} reserved for {pod} twice without giving back"))
            }
            Point::Reserve | Point::ReserveFailed => {
                if held.is_empty() {
                    returned.clear();
                }
                held.extend((*point == Point::Reserve).then_some(*plugin));
                None
            }
            Point::Unreserve => {
                if returned.contains(plugin) {
                    return Some(format!("{plugin} was told twice to give back for {pod}"));
                }
                returned.push(plugin);
                // A plugin after the one that failed is told too, though it holds
                // nothing: only holders have an order.
                match held.iter().position(|p| p == plugin) {
                    Some(at) if at + 1 == held.len() => {
                        held.pop();
                        None
                    }
                    Some(at) => {
                        held.remove(at);
                        Some(format!("{plugin} gave back for {pod} before those after it"))
                    }
                    None => None,
                }
            }
            Point::PostBind => {
                self.held.remove(pod);
                self.returned.remove(pod);
                None
            }
        }
    }

    /// Pods for which plugins hold something.
    pub(super) fn holders(&self) -> impl Iterator<Item = &Arc<str>> {
        self.held.iter().filter(|(_, plugins)| !plugins.is_empty()).map(|(pod, _)| pod)
    }
}
