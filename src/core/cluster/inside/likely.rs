//! Where a kubelet would most likely put a pod.

use std::sync::Arc;

use super::Inside;
use crate::cluster::NodeView;
use crate::model::PodShape;
use crate::numa::{Course, Events, Memo, Pod, Prediction, reached};

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

    /// What the kubelet would do with a pod after all those who are on their way to it; of the
    /// orders in which they may come, one. `None` if one of these may be refused.
    #[must_use]
    pub fn likely(&self, memo: &Memo, pod: &Arc<Pod>) -> Option<Arc<Prediction>> {
        if self.expected.is_empty() {
            return Some(memo.predict(self.machine, &self.usage, pod));
        }
        let coming = self.coming();
        let states = reached(memo, self.machine, &self.start, &self.events(&coming, None)?)?;
        Some(memo.predict(self.machine, states.first()?, pod))
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
