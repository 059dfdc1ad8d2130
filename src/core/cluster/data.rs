//! Values that plugins are fed from outside the cluster.
//!
//! Owns them by plugin and by what they are about, and how many there may be. Must
//! never read one: they are the plugins' own. Shared between forks as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::hash::TextMap;
use crate::io::{About, Datum};

/// Most values kept, of all plugins together.
pub const MAX_DATA: usize = 1 << 18;
/// Largest value kept: bytes of text in it, and eight for each value within.
pub const MAX_DATUM: usize = 4096;

#[derive(Clone, Default)]
struct Own {
    nodes: TextMap<Arc<str>, Arc<Value>>,
    keys: TextMap<Arc<str>, Arc<Value>>,
}

#[derive(Clone, Default)]
struct Values {
    by_plugin: BTreeMap<Arc<str>, Own>,
    count: usize,
    generation: u64,
}

/// What plugins were fed.
#[derive(Clone, Default)]
pub struct Data {
    values: Arc<Values>,
}

impl Data {
    /// What a plugin was fed about a node.
    #[must_use]
    pub fn node(&self, plugin: &str, node: &str) -> Option<&Value> {
        self.values.by_plugin.get(plugin)?.nodes.get(node).map(|value| &**value)
    }

    /// What a plugin was fed under a key of its own.
    #[must_use]
    pub fn key(&self, plugin: &str, key: &str) -> Option<&Value> {
        self.values.by_plugin.get(plugin)?.keys.get(key).map(|value| &**value)
    }

    /// Counts changes of what is not about one node.
    pub(crate) fn generation(&self) -> u64 {
        self.values.generation
    }

    /// Takes in a value; true if it is news. When there are too many, those about
    /// nodes that do not exist go first.
    pub(super) fn set(
        &mut self,
        datum: &Datum,
        exists: impl Fn(&str) -> bool,
    ) -> Result<bool, String> {
        let about = |own: &Own| match &datum.about {
            About::Node(name) => own.nodes.get(name).cloned(),
            About::Key(key) => own.keys.get(key).cloned(),
        };
        let before = self.values.by_plugin.get(&datum.plugin).and_then(about);
        if before == datum.value {
            return Ok(false);
        }
        if let Some(value) = &datum.value
            && size(value, MAX_DATUM) > MAX_DATUM
        {
            return Err(format!("a value of more than {MAX_DATUM} bytes was not taken"));
        }
        let values = Arc::make_mut(&mut self.values);
        if before.is_none() && values.count >= MAX_DATA {
            values.purge(&exists);
            if values.count >= MAX_DATA {
                return Err(format!(
                    "there are {MAX_DATA} values already: no more are taken; take back those \
                     that are not needed"
                ));
            }
        }
        let own = values.by_plugin.entry(Arc::clone(&datum.plugin)).or_default();
        let (map, name) = match &datum.about {
            About::Node(name) => (&mut own.nodes, name),
            About::Key(key) => {
                values.generation += 1;
                (&mut own.keys, key)
            }
        };
        match &datum.value {
            Some(value) => map.insert(Arc::clone(name), Arc::clone(value)),
            None => map.remove(name),
        };
        values.count += usize::from(before.is_none());
        values.count -= usize::from(datum.value.is_none());
        Ok(true)
    }
}

impl Values {
    fn purge(&mut self, exists: &impl Fn(&str) -> bool) {
        self.count = 0;
        for own in self.by_plugin.values_mut() {
            own.nodes.retain(|name, _| exists(name));
            self.count += own.nodes.len() + own.keys.len();
        }
    }
}

/// About how many bytes a value takes; not exact beyond `limit`.
fn size(value: &Value, limit: usize) -> usize {
    let mut sum = 8;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => sum += text.len(),
        Value::Array(items) => {
            for item in items.iter().take(limit) {
                sum += size(item, limit);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields.iter().take(limit) {
                sum += key.len() + size(value, limit);
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn datum(plugin: &str, about: About, value: impl Into<Option<Value>>) -> Datum {
        Datum { plugin: plugin.into(), about, value: value.into().map(Arc::new) }
    }

    fn node(name: &str) -> About {
        About::Node(name.into())
    }

    #[test]
    fn each_plugin_has_its_own_values_and_news_are_told_apart() {
        let mut data = Data::default();
        let mut set = |datum: Datum| data.set(&datum, |_| true);
        assert_eq!(set(datum("A", node("n1"), json!(1))), Ok(true));
        assert_eq!(set(datum("A", node("n1"), json!(1))), Ok(false));
        assert_eq!(set(datum("B", node("n1"), json!(2))), Ok(true));
        assert_eq!(set(datum("B", About::Key("n1".into()), json!(3))), Ok(true));
        assert_eq!(set(datum("A", node("n1"), None)), Ok(true));
        assert_eq!(set(datum("A", node("n1"), None)), Ok(false));
        assert_eq!(data.node("A", "n1"), None);
        assert_eq!(data.node("B", "n1"), Some(&json!(2)));
        assert_eq!(data.key("B", "n1"), Some(&json!(3)));
        assert_eq!((data.values.count, data.generation()), (2, 1));
    }

    #[test]
    fn a_fork_keeps_what_it_saw() {
        let mut data = Data::default();
        data.set(&datum("A", node("n1"), json!(1)), |_| true).unwrap();
        let fork = data.clone();
        data.set(&datum("A", node("n1"), json!(2)), |_| true).unwrap();
        assert_eq!(fork.node("A", "n1"), Some(&json!(1)));
        assert_eq!(data.node("A", "n1"), Some(&json!(2)));
    }

    #[test]
    fn values_are_bounded_in_size() {
        let mut data = Data::default();
        for large in [
            json!("x".repeat(MAX_DATUM)),
            json!(vec![0; MAX_DATUM / 8]),
            json!({"k": ["x".repeat(MAX_DATUM / 2), "y".repeat(MAX_DATUM / 2)]}),
        ] {
            assert!(data.set(&datum("A", node("n"), large), |_| true).is_err());
        }
        assert_eq!(data.set(&datum("A", node("n"), json!(vec![0; 500])), |_| true), Ok(true));
    }

    #[test]
    fn values_are_bounded_in_number_and_of_nodes_that_are_gone_they_go_first() {
        let mut data = Data::default();
        for i in 0..MAX_DATA {
            data.set(&datum("A", node(&i.to_string()), json!(i)), |_| true).unwrap();
        }
        let more = datum("A", node("more"), json!(0));
        assert!(data.set(&more, |_| true).is_err(), "all of them exist");
        assert_eq!(data.set(&datum("A", node("7"), json!("new")), |_| true), Ok(true));
        assert_eq!(data.set(&more, |name| name != "8"), Ok(true));
        assert_eq!(data.node("A", "8"), None);
        assert_eq!(data.values.count, MAX_DATA);
    }
}
