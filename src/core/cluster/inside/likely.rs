//! Where a kubelet would most likely put a pod.

use std::sync::Arc;

use super::Inside;
use crate::cluster::NodeView;
use crate::model::PodShape;
use crate::numa::{Course, Events, Memo, Pod, Prediction, after};

impl Inside<'_> {
    /// What comes to pass on the node, a new pod among it; `None` if too little is known of those
    /// who are gone.
    #[must_use]
    pub fn events<'e>(
        &'e self,
        coming: &'e [&'e Arc<Pod>],
        new: Option<&'e Arc<Pod>>,
    ) -> Option<Events<'e>> {
        let leaving = self.leaving.as_deref()?;
        Some(Events { coming, leaving, new })
    }

    /// What the kubelet would do with a pod after all those who are on their way to it, in the
    /// order in which they were made. `None` if one of these would be refused.
    #[must_use]
    pub fn likely(&self, memo: &Memo, pod: &Arc<Pod>) -> Option<Arc<Prediction>> {
        if self.expected.is_empty() {
            return Some(memo.predict(self.machine, &self.usage, pod));
        }
        let usage = after(memo, self.machine, &self.usage, &self.coming())?;
        Some(memo.predict(self.machine, &usage, pod))
    }
}

impl NodeView<'_> {
    /// The ways in which the kubelet would admit a pod of a shape after all those who are on
    /// their way to it. Empty if it would refuse the pod, or if too little is known.
    #[must_use]
    pub fn likely(self, shape: &PodShape) -> Vec<Course> {
        let (Some(pod), Some(inside)) = (&shape.aligned, self.inside()) else { return Vec::new() };
        let prediction = inside.likely(self.predictions(), pod);
        prediction.map(|prediction| prediction.admitted.clone()).unwrap_or_default()
    }
}
