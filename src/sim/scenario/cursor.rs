//! Walking the tree: typed reads whose errors name path, place and remedy.

use std::collections::BTreeMap;

use muster_api::k8s::{Quantity, ResourceList};

use super::ScenarioError;
use super::tree::{Key, Place, Tree, Value};
use crate::limits::{MAX_DURATION, MAX_LABELS, MAX_NAME, MAX_RESOURCES};
use crate::time::{Micros, parse_duration, show_duration};

/// A value, where it stood and how it is called.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    origin: &'a str,
    pub(crate) path: String,
    pub(crate) tree: &'a Tree,
}

/// The fields of a map whose field names are known.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    at: Cursor<'a>,
    entries: &'a [(Key, Tree)],
}

type Result<T> = std::result::Result<T, ScenarioError>;

impl<'a> Cursor<'a> {
    pub(crate) fn root(tree: &'a Tree, origin: &'a str) -> Self {
        Self { origin, path: String::new(), tree }
    }

    /// An error about this value.
    pub(crate) fn error(&self, message: impl Into<String>) -> ScenarioError {
        self.error_at(self.tree.place, message.into())
    }

    fn error_at(&self, place: Place, message: String) -> ScenarioError {
        ScenarioError {
            origin: self.origin.to_owned(),
            line: place.line,
            column: place.column,
            path: self.path.clone(),
            message,
        }
    }

    fn child(&self, name: &str, tree: &'a Tree) -> Self {
        let path =
            if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { origin: self.origin, path, tree }
    }

    fn expected(&self, what: &str) -> ScenarioError {
        self.error(format!("expected {what}, found {}", self.tree.value.describe()))
    }

    fn entries(&self) -> Result<&'a [(Key, Tree)]> {
        match &self.tree.value {
            Value::Map(entries) => Ok(entries),
            _ => Err(self.expected("a map of fields")),
        }
    }

    /// A map with these fields and no others.
    pub(crate) fn fields(&self, known: &[&str]) -> Result<Fields<'a>> {
        let entries = self.entries()?;
        for (key, tree) in entries {
            if !known.contains(&key.name.as_str()) {
                let child = self.child(&key.name, tree);
                return Err(child.error_at(key.place, unknown_field(&key.name, known)));
            }
        }
        Ok(Fields { at: self.clone(), entries })
    }

    /// All entries of a map, whatever their names.
    pub(crate) fn map(&self, most: usize) -> Result<Vec<(&'a str, Cursor<'a>)>> {
        let entries = self.entries()?;
        self.at_most(entries.len(), most)?;
        Ok(entries.iter().map(|(k, v)| (k.name.as_str(), self.child(&k.name, v))).collect())
    }

    /// The items of a list.
    pub(crate) fn list(&self, most: usize) -> Result<Vec<Cursor<'a>>> {
        let Value::List(items) = &self.tree.value else {
            return Err(self.expected("a list (lines that begin with \"- \")"));
        };
        self.at_most(items.len(), most)?;
        let item =
            |(i, tree)| Cursor { origin: self.origin, path: format!("{}[{i}]", self.path), tree };
        Ok(items.iter().enumerate().map(item).collect())
    }

    fn at_most(&self, found: usize, most: usize) -> Result<()> {
        if found > most {
            return Err(self.error(format!("{found} entries; at most {most} are allowed")));
        }
        Ok(())
    }

    /// A text; a bare number or `true` must be quoted, as in Kubernetes.
    pub(crate) fn text(&self) -> Result<&'a str> {
        match &self.tree.value {
            Value::Text(text) => Ok(text),
            Value::Bool(_) | Value::Int(_) | Value::Number(_) => Err(self.error(format!(
                "expected a text, found {}; put it in quotes",
                self.tree.value.describe()
            ))),
            _ => Err(self.expected("a text")),
        }
    }

    /// A text of name length that is not empty.
    pub(crate) fn name(&self) -> Result<&'a str> {
        let text = self.text()?;
        if text.is_empty() || text.len() > MAX_NAME {
            return Err(self.error(format!("must have 1 to {MAX_NAME} characters")));
        }
        Ok(text)
    }

    /// `true` or `false`.
    pub(crate) fn bool(&self) -> Result<bool> {
        match self.tree.value {
            Value::Bool(b) => Ok(b),
            _ => Err(self.expected("true or false")),
        }
    }

    /// A whole number in a range.
    pub(crate) fn int(&self, low: i64, high: i64) -> Result<i64> {
        match self.tree.value {
            Value::Int(i) if (low..=high).contains(&i) => Ok(i),
            Value::Int(i) => Err(self.error(format!("{i} is out of range; write {low} to {high}"))),
            _ => Err(self.expected(&format!("a whole number from {low} to {high}"))),
        }
    }

    /// A duration of at least `low`.
    pub(crate) fn duration(&self, low: Micros) -> Result<Micros> {
        let text = match &self.tree.value {
            Value::Text(text) => text.clone(),
            Value::Int(0) => "0".to_owned(),
            Value::Int(i) => {
                return Err(self.error(format!("{i} has no unit; write e.g. {i}s or {i}m")));
            }
            _ => return Err(self.expected("a duration such as 90s, 10m or 1h30m")),
        };
        let micros = parse_duration(&text).map_err(|message| self.error(message))?;
        if micros < low {
            return Err(self.error(format!("must be at least {}", show_duration(low))));
        }
        if micros > MAX_DURATION {
            return Err(self.error(format!("must be at most {}", show_duration(MAX_DURATION))));
        }
        Ok(micros)
    }

    /// A quantity that is not negative.
    pub(crate) fn quantity(&self) -> Result<Quantity> {
        let quantity = match &self.tree.value {
            Value::Int(i) => Quantity::from_units(*i),
            Value::Number(text) | Value::Text(text) => {
                Quantity::parse(text).map_err(|e| self.error(e.to_string()))?
            }
            _ => return Err(self.expected("a quantity such as 500m, 2Gi or 4")),
        };
        if quantity < Quantity::ZERO {
            return Err(self.error("must not be negative"));
        }
        Ok(quantity)
    }

    /// Resource names and quantities.
    pub(crate) fn resources(&self) -> Result<ResourceList> {
        self.map(MAX_RESOURCES)?
            .into_iter()
            .map(|(name, value)| {
                // nvidia/gpu and gpu are the two ways people misspell an extended resource.
                if matches!(name, "gpu" | "gpus") {
                    return Err(
                        value.error("not a resource name; did you mean \"nvidia.com/gpu\"?")
                    );
                }
                Ok((name.to_owned(), value.quantity()?))
            })
            .collect()
    }

    /// Labels.
    pub(crate) fn labels(&self) -> Result<BTreeMap<String, String>> {
        self.map(MAX_LABELS)?
            .into_iter()
            .map(|(key, value)| Ok((key.to_owned(), value.text()?.to_owned())))
            .collect()
    }
}

impl<'a> Fields<'a> {
    /// The field, unless it is absent or null.
    pub(crate) fn get(&self, name: &str) -> Option<Cursor<'a>> {
        let (_, tree) = self.entries.iter().find(|(key, _)| key.name == name)?;
        (tree.value != Value::Null).then(|| self.at.child(name, tree))
    }

    /// The field, or an error that says what it is for.
    pub(crate) fn need(&self, name: &str, purpose: &str) -> Result<Cursor<'a>> {
        self.get(name)
            .ok_or_else(|| self.at.error(format!("the field {name:?} is missing: {purpose}")))
    }
}

fn unknown_field(name: &str, known: &[&str]) -> String {
    let near = known
        .iter()
        .map(|k| (distance(&name.to_lowercase(), &k.to_lowercase()), *k))
        .min()
        .filter(|(d, k)| *d <= 2.max(k.len() / 3));
    match near {
        Some((_, near)) => format!("unknown field; did you mean {near:?}?"),
        None => format!("unknown field; known here: {}", known.join(", ")),
    }
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (diagonal + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}
