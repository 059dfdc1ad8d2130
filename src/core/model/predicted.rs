//! Devices that a pod is expected to get, as text on the pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Predicted;

/// Longest text that is read: as much as the node agent reads.
const MAX_TEXT: usize = 16 << 10;

impl Predicted {
    /// The value of the annotation `muster.dev/predicted-devices`.
    #[must_use]
    pub fn text(&self) -> String {
        let by_resource: BTreeMap<&str, Vec<&str>> = self
            .devices
            .iter()
            .map(|(resource, ids)| (&**resource, ids.iter().map(|id| &**id).collect()))
            .collect();
        // Fails only for maps with keys that are not strings, and there are none.
        serde_json::to_string(&by_resource).unwrap_or_default()
    }

    /// What such a value says; none if it cannot be read, or says nothing.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let by_resource: BTreeMap<String, Vec<String>> = serde_json::from_str(text).ok()?;
        let devices = by_resource.into_iter().map(|(resource, mut ids)| {
            ids.sort_unstable();
            ids.dedup();
            (Arc::from(resource), ids.into_iter().map(Arc::from).collect())
        });
        let devices: Box<[_]> = devices.collect();
        (!devices.is_empty()).then_some(Self { devices })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = r#"{"nvidia.com/gpu":["GPU-b","GPU-a","GPU-a"],"x/nic":["n"]}"#;
        let read = Predicted::parse(text).unwrap();
        assert_eq!(read.text(), r#"{"nvidia.com/gpu":["GPU-a","GPU-b"],"x/nic":["n"]}"#);
        assert_eq!(Predicted::parse(&read.text()).as_ref(), Some(&read));
        for wrong in ["", "[]", "{}", r#"{"a":"b"}"#, &"x".repeat(MAX_TEXT + 1)] {
            assert_eq!(Predicted::parse(wrong), None);
        }
    }
}
