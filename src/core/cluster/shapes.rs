//! Shapes, interned and counted.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::tally::Links;
use crate::hash::TextMap;
use crate::model::{PodShape, ShapeId};

/// Shapes without a pod that are kept, because the next pod of a job often
/// comes just after the last one left.
const IDLE_KEPT: usize = 256;

#[derive(Clone, Default)]
pub(super) struct ShapeTable {
    slots: Vec<Slot>,
    index: TextMap<Arc<PodShape>, ShapeId>,
    free: Vec<ShapeId>,
    idle: VecDeque<ShapeId>,
    /// A set: a standby frees shapes for days without ever asking for them.
    freed: BTreeSet<ShapeId>,
}

#[derive(Clone)]
struct Slot {
    shape: Arc<PodShape>,
    users: u32,
    used: bool,
    links: Arc<Links>,
}

impl ShapeTable {
    pub(super) fn get(&self, id: ShapeId) -> &Arc<PodShape> {
        &self.slots[id.0 as usize].shape
    }

    /// What a shape keeps alive.
    pub(super) fn links(&self, id: ShapeId) -> &Arc<Links> {
        &self.slots[id.0 as usize].links
    }

    /// One user more of a shape that is known.
    pub(super) fn find(&mut self, shape: &PodShape) -> Option<ShapeId> {
        let id = *self.index.get(shape)?;
        self.slots[id.0 as usize].users += 1;
        Some(id)
    }

    /// A shape that is not known yet, with its first user.
    pub(super) fn insert(&mut self, shape: PodShape, links: Links) -> ShapeId {
        let shape = Arc::new(shape);
        let slot = Slot { shape: Arc::clone(&shape), users: 1, used: true, links: Arc::new(links) };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id.0 as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                ShapeId(u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 shapes"))
            }
        };
        self.index.insert(shape, id);
        id
    }

    /// One user less; what the shapes kept alive that are gone with it.
    #[must_use]
    pub(super) fn release(&mut self, id: ShapeId) -> Vec<Arc<Links>> {
        let mut gone = Vec::new();
        let slot = &mut self.slots[id.0 as usize];
        slot.users -= 1;
        if slot.users > 0 {
            return gone;
        }
        self.idle.push_back(id);
        while self.idle.len() > IDLE_KEPT {
            let Some(oldest) = self.idle.pop_front() else {
                break;
            };
            let slot = &mut self.slots[oldest.0 as usize];
            // In use again, or listed twice: it will be listed anew when it idles.
            if slot.users == 0 && slot.used && !self.idle.contains(&oldest) {
                slot.used = false;
                self.index.remove(&slot.shape);
                self.free.push(oldest);
                self.freed.insert(oldest);
                gone.push(Arc::clone(&slot.links));
            }
        }
        gone
    }

    pub(super) fn take_freed(&mut self) -> BTreeSet<ShapeId> {
        std::mem::take(&mut self.freed)
    }
}
