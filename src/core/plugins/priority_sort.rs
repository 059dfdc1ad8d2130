//! PrioritySort: higher priority first, then longer in the queue.

use super::names;
use crate::framework::{Plugin, QueueSort, Registration, SortKey};
use crate::io::Tick;
use crate::model::Pod;

/// The default queue order.
pub struct PrioritySort;

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        names::PRIORITY_SORT
    }

    fn events(&self) -> Vec<Registration> {
        Vec::new()
    }

    fn as_queue_sort(&self) -> Option<&dyn QueueSort> {
        Some(self)
    }
}

impl QueueSort for PrioritySort {
    fn key(&self, pod: &Pod, queued_at: Tick) -> SortKey {
        [-i64::from(pod.priority), queued_at.0, 0]
    }
}
