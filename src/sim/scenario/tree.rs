//! A scenario file as a tree that remembers where each value stood.
//!
//! Owns the YAML. What the words mean is decided in the sibling files, through
//! [`super::cursor`]; nothing is decoded by a derive, so that every error can say
//! path, place and remedy in the scenario's own words.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::ScenarioError;
use crate::limits::MAX_SCENARIO_BYTES;

/// Line and column, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

impl From<serde_saphyr::Location> for Place {
    fn from(location: serde_saphyr::Location) -> Self {
        Self { line: location.line(), column: location.column() }
    }
}

/// A value and where it stood.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) value: Value,
    pub(crate) place: Place,
}

/// A YAML value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// A number that is no `i64`, as text.
    Number(String),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(Key, Tree)>),
}

/// A key of a map and where it stood.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) place: Place,
}

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Tree {
    /// Reads one YAML document.
    pub(crate) fn parse(text: &str, origin: &str) -> Result<Self, ScenarioError> {
        let error = |place: Place, message: String| ScenarioError {
            origin: origin.to_owned(),
            line: place.line,
            column: place.column,
            path: String::new(),
            message,
        };
        if text.len() > MAX_SCENARIO_BYTES {
            let message = format!(
                "the scenario has {} bytes; at most {MAX_SCENARIO_BYTES} are read \
                 (use count, replicas and repeat instead of lists)",
                text.len()
            );
            return Err(error(Place::default(), message));
        }
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        serde_saphyr::from_str_with_options::<Self>(text, options).map_err(|e| {
            let place = e.location().map(Place::from).unwrap_or_default();
            let message = e.without_snippet().to_string();
            // The parser appends " at line L, column C", which the place says already.
            let message = message.split(" at line ").next().unwrap_or(&message);
            error(place, format!("not valid YAML: {message}"))
        })
    }

    /// As JSON, for the parts that are Kubernetes' own.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Int(i) => Json::from(*i),
            Value::Number(text) | Value::Text(text) => Json::String(text.clone()),
            Value::List(list) => Json::Array(list.iter().map(Self::to_json).collect()),
            Value::Map(map) => {
                Json::Object(map.iter().map(|(k, v)| (k.name.clone(), v.to_json())).collect())
            }
        }
    }
}

impl Value {
    /// What it is, for error messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(b) => format!("{b}"),
            Self::Int(i) => format!("the number {i}"),
            Self::Number(text) => format!("the number {text}"),
            Self::Text(text) => format!("the text {text:?}"),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a map".to_owned(),
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(d)?;
        Ok(Self { place: spanned.referenced.into(), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        Value::deserialize(d)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Int(v))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(i64::try_from(v).map_or_else(|_| Value::Number(v.to_string()), Value::Int))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Value::Number(v.to_string()))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::Text(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::Text(v))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let key = Key { place: key.referenced.into(), name: key.value };
            entries.push((key, map.next_value()?));
        }
        Ok(Value::Map(entries))
    }
}
