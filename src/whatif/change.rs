//! Changes of objects, to be tried out on a copy or applied to a cluster.

use serde::Serialize;
use serde_json::Value;

use super::Key;

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Which object.
    #[serde(flatten)]
    pub of: Key,
    /// What becomes of it.
    #[serde(flatten)]
    pub what: What,
}

/// What becomes of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// A JSON Patch (RFC 6902).
    Patch(Vec<Op>),
    /// It is new.
    Create(Value),
    /// It goes.
    Delete(bool),
}

/// One step of a JSON Patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Op {
    /// `add`, `replace` or `remove`.
    pub op: &'static str,
    /// Where, as a JSON Pointer.
    pub path: String,
    /// The new value; none of what is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

impl Op {
    /// Sets a field, whether it is there or not.
    #[must_use]
    pub fn set(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { op: "add", path: path.into(), value: Some(value.into()) }
    }

    /// Removes a field that is there.
    #[must_use]
    pub fn remove(path: impl Into<String>) -> Self {
        Self { op: "remove", path: path.into(), value: None }
    }
}

/// A field's name as a step of a JSON Pointer.
#[must_use]
pub fn step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

impl Change {
    /// A patch of an object.
    #[must_use]
    pub fn patch(of: &Key, ops: Vec<Op>) -> Self {
        Self { of: of.clone(), what: What::Patch(ops) }
    }

    /// An object that goes.
    #[must_use]
    pub fn delete(of: &Key) -> Self {
        Self { of: of.clone(), what: What::Delete(true) }
    }

    /// A new object; nothing if it has no kind or name.
    #[must_use]
    pub fn create(object: Value) -> Option<Self> {
        Some(Self { of: Key::of(&object)?, what: What::Create(object) })
    }

    /// The object after it; `None`: it is gone, or the patch does not fit.
    #[must_use]
    pub fn applied_to(&self, object: Option<&Value>) -> Option<Value> {
        match &self.what {
            What::Create(object) => Some(object.clone()),
            What::Delete(_) => None,
            What::Patch(ops) => {
                let mut object = object?.clone();
                ops.iter().try_for_each(|op| apply(&mut object, op))?;
                Some(object)
            }
        }
    }
}

/// Applies one step.
fn apply(object: &mut Value, op: &Op) -> Option<()> {
    let (parent, last) = op.path.rsplit_once('/')?;
    let last = last.replace("~1", "/").replace("~0", "~");
    let parent = object.pointer_mut(parent)?;
    match (parent, &op.value) {
        (Value::Object(map), Some(value)) => drop(map.insert(last, value.clone())),
        (Value::Object(map), None) => drop(map.remove(&last)?),
        (Value::Array(list), Some(value)) if last == "-" => list.push(value.clone()),
        (Value::Array(list), Some(value)) => {
            let at = last.parse().ok().filter(|at| *at <= list.len())?;
            match op.op {
                "replace" => *list.get_mut(at)? = value.clone(),
                _ => list.insert(at, value.clone()),
            }
        }
        (Value::Array(list), None) => {
            let at = last.parse().ok().filter(|at| *at < list.len())?;
            list.remove(at);
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patches_are_json_patches() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "spec": {"unschedulable": true, "taints": [{"key": "a"}, {"key": "b"}]}});
        let key = Key::of(&node).unwrap();
        let ops = vec![
            Op::remove("/spec/unschedulable"),
            Op::remove("/spec/taints/0"),
            Op::set("/spec/taints/-", json!({"key": "c"})),
            Op::set(format!("/metadata/{}", step("x/y")), json!(1)),
        ];
        let change = Change::patch(&key, ops);
        assert_eq!(
            change.applied_to(Some(&node)).unwrap(),
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "x/y": 1},
                "spec": {"taints": [{"key": "b"}, {"key": "c"}]}})
        );
        assert_eq!(Change::delete(&key).applied_to(Some(&node)), None);
        let missing = Change::patch(&key, vec![Op::remove("/spec/none")]);
        assert_eq!(missing.applied_to(Some(&node)), None);
    }
}
