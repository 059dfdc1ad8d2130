//! A plugin for tests: it has all points after scoring, notes what is called, and
//! waits, parks or refuses as its seed says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Point, PointCall, PointLog};
use crate::framework::{
    Actions, Permit, PermitResult, Placed, Plugin, PostBind, PreBind, Registration, Reserve,
    Resource, Status, Step,
};

/// Calls for a pod after which nothing is refused any more: worlds have to settle.
const PATIENCE: u64 = 9;

/// The plugin. Its answers are a function of seed, name, pod and count of calls.
pub struct Witness {
    name: &'static str,
    seed: u64,
    log: PointLog,
    counts: Mutex<BTreeMap<Arc<str>, u64>>,
}

impl Witness {
    /// A witness that writes into `log`.
    #[must_use]
    pub fn new(name: &'static str, seed: u64, log: &PointLog) -> Self {
        Self { name, seed, log: Arc::clone(log), counts: Mutex::default() }
    }

    /// A number below `n`, another one at each call for a pod.
    fn roll(&self, placed: &Placed<'_>, n: u64) -> u64 {
        let uid = &placed.pod.key.uid;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(Arc::clone(uid)).or_default();
        *count += 1;
        if *count > PATIENCE {
            return n - 1;
        }
        let text = self.name.bytes().chain(uid.bytes()).chain(count.to_le_bytes());
        let mut hash = text.fold(self.seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        hash ^= hash >> 31;
        (hash.wrapping_mul(0x94d0_49bb_1331_11eb) >> 33) % n.max(1)
    }

    fn note(&self, placed: &Placed<'_>, point: Point) {
        let call = PointCall { pod: Arc::clone(&placed.pod.key.uid), plugin: self.name, point };
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

impl Plugin for Witness {
    fn name(&self) -> &'static str {
        self.name
    }
    fn events(&self) -> Vec<Registration> {
        vec![Registration { resource: Resource::Any, actions: Actions::ALL }]
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

impl Reserve for Witness {
    fn reserve(&self, placed: &Placed<'_>) -> Result<(), Status> {
        let failed = self.roll(placed, 16) == 0;
        self.note(placed, if failed { Point::ReserveFailed } else { Point::Reserve });
        if failed { Err(Status::unschedulable("the witness cannot reserve")) } else { Ok(()) }
    }

    fn unreserve(&self, placed: &Placed<'_>) {
        self.note(placed, Point::Unreserve);
    }
}

impl Permit for Witness {
    fn permit(&self, placed: &Placed<'_>) -> PermitResult {
        match self.roll(placed, 16) {
            0 => PermitResult::Reject(Status::unschedulable("the witness objects")),
            n @ 1..=4 => PermitResult::Wait { seconds: i64::try_from(n).unwrap_or(1) * 3 },
            _ => PermitResult::Allow,
        }
    }
}

impl PreBind for Witness {
    fn pre_bind(&self, placed: &Placed<'_>) -> Step {
        match self.roll(placed, 16) {
            0 => Step::Fail(Status::error("the witness cannot prepare")),
            1 => Step::Fail(Status::unschedulable("the witness will not prepare")),
            2..=4 => Step::Park { request: "prepare".into() },
            _ => Step::Done,
        }
    }
}

impl PostBind for Witness {
    fn post_bind(&self, placed: &Placed<'_>) {
        self.note(placed, Point::PostBind);
    }
}
