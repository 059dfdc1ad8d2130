//! A file of Kubernetes objects: JSON or YAML, a list, several documents.

use anyhow::{Context as _, Result, bail};
use serde::de::Deserialize as _;
use serde_json::Value;

/// One object of a file, with where it was.
#[derive(Clone, Debug)]
pub struct Document {
    /// The object.
    pub value: Value,
    /// Which document of the file, from 1; absent if objects were handed over.
    document: Option<usize>,
    /// Which item of a list, from 0.
    item: Option<usize>,
}

impl Document {
    /// An object that was handed over, not read from a file.
    pub(crate) fn of((item, value): (usize, Value)) -> Self {
        Self { value, document: None, item: Some(item) }
    }

    /// Where it was, for people.
    pub(crate) fn place(&self) -> String {
        match (self.document, self.item) {
            (Some(document), None) => format!("document {document}"),
            (Some(1), Some(item)) => format!("items[{item}]"),
            (Some(document), Some(item)) => format!("document {document}, items[{item}]"),
            (None, item) => format!("objects[{}]", item.unwrap_or_default()),
        }
    }
}

/// Reads all objects of a text: JSON or YAML, one object, a `List`, or several
/// documents with any of these. Empty documents are passed over.
///
/// # Errors
///
/// If it is neither JSON nor YAML, or a document is no object.
pub fn read_documents(text: &str) -> Result<Vec<Document>> {
    let values: Vec<Value> = match text.trim_start().as_bytes().first() {
        Some(b'{' | b'[') => json(text)?,
        _ => yaml(text)?,
    };
    let mut all = Vec::new();
    for (i, value) in values.into_iter().enumerate() {
        let document = Some(i + 1);
        match value {
            Value::Null => {}
            Value::Object(mut map) if is_list(&map) => {
                if let Some(Value::Array(items)) = map.remove("items") {
                    let items = items.into_iter().enumerate();
                    all.extend(items.map(|(i, value)| Document { value, document, item: Some(i) }));
                }
            }
            value @ Value::Object(_) => all.push(Document { value, document, item: None }),
            other => bail!("document {}: expected an object, found {}", i + 1, name_of(&other)),
        }
    }
    Ok(all)
}

/// YAML documents. A node may be called `n` or `on`: only `true` and `false` are
/// no text. A file of one's own may be as large as a cluster is.
fn yaml(text: &str) -> Result<Vec<Value>> {
    let options = serde_saphyr::options! { strict_booleans: true, budget: None };
    serde_saphyr::from_multiple_with_options(text, options).context("it is neither JSON nor YAML")
}

/// JSON objects one after the other, as `kubectl get -o json` prints one.
fn json(text: &str) -> Result<Vec<Value>> {
    let mut values = Vec::new();
    let mut stream = serde_json::Deserializer::from_str(text);
    loop {
        match Value::deserialize(&mut stream) {
            Ok(Value::Array(items)) => values.extend(items),
            Ok(value) => values.push(value),
            Err(error) if error.is_eof() && !values.is_empty() => return Ok(values),
            Err(error) => return Err(error).context("it is not valid JSON"),
        }
    }
}

/// `v1` List, and the typed lists of the API (`PodList` and the like).
fn is_list(map: &serde_json::Map<String, Value>) -> bool {
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default();
    kind.ends_with("List") && map.get("items").is_some_and(Value::is_array)
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
