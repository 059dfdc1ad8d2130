//! Where a kubelet would most likely put a pod.

use crate::cluster::NodeView;
use crate::model::PodShape;
use crate::numa::{Course, after};

impl NodeView<'_> {
    /// The ways in which the kubelet would admit a pod of a shape after all those who are on
    /// their way to it, in the order in which they were made. Empty if it would refuse the pod,
    /// or if too little is known.
    #[must_use]
    pub fn likely(self, shape: &PodShape) -> Vec<Course> {
        let (Some(pod), Some(inside)) = (&shape.aligned, self.inside()) else { return Vec::new() };
        let memo = self.predictions();
        let usage = after(memo, inside.machine, &inside.usage, &inside.coming());
        let Some(usage) = usage else { return Vec::new() };
        memo.predict(inside.machine, &usage, pod).admitted.clone()
    }
}
