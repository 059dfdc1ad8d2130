//! From Rust types to structural schemas, the form the API server asks for.
//!
//! Owns what is changed in the schemas that are derived, and the schemas that
//! several kinds use.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

/// Most labels or expressions in a selector.
pub(super) const MAX_REQUIREMENTS: usize = 16;
/// Most values of one expression of a selector.
pub(super) const MAX_VALUES: usize = 64;
/// Longest label key: prefix, slash, name.
pub(super) const MAX_KEY: usize = 253 + 1 + 63;
/// A label key, or the name of a level.
pub(super) const KEY: &str =
    "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
/// A label's value.
const VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// The structural schema of a type.
pub(super) fn of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let schema = settings
        .with_transform(RecursiveTransform(|schema: &mut Schema| structural(schema)))
        .into_generator()
        .into_root_schema_for::<T>();
    schema.to_value()
}

/// What the API server does not take, or takes in another form.
fn structural(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    absent_is_not_null(object);
    object.remove("title");
    // Names of Rust's, which the API server warns of; the range says the same.
    if object.get("format").and_then(Value::as_str).is_some_and(|f| f.starts_with("uint")) {
        object.remove("format");
    }
    // Rust's defaults are not the API's: those are written as `x-default`.
    object.remove("default");
    if let Some(default) = object.remove("x-default") {
        object.insert("default".to_owned(), default);
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = unwrapped(text);
    }
}

/// An optional field is a field that may be left out, not one that may be null.
fn absent_is_not_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|t| t != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|v| !v.is_null());
    }
    let Some(Value::Array(choices)) = object.get_mut("anyOf") else { return };
    choices.retain(|c| c["type"] != "null");
    if let [Value::Object(only)] = choices.as_slice() {
        let only = only.clone();
        object.remove("anyOf");
        for (key, value) in only {
            object.entry(key).or_insert(value);
        }
    }
}

/// Lines of a paragraph joined; paragraphs kept.
fn unwrapped(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|p| p.lines().map(str::trim).collect::<Vec<_>>());
    paragraphs.map(|lines| lines.join(" ")).collect::<Vec<_>>().join("\n\n")
}

/// A time as the API writes it.
pub(super) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// A label selector with limits on everything, that selects by something.
pub(super) fn selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {
                "description": "Labels and the values they must have.",
                "type": "object",
                "maxProperties": MAX_REQUIREMENTS,
                "additionalProperties": {"type": "string", "maxLength": 63, "pattern": VALUE},
            },
            "matchExpressions": {
                "description": "Requirements on labels, all of which must hold.",
                "type": "array",
                "maxItems": MAX_REQUIREMENTS,
                "x-kubernetes-list-type": "atomic",
                "items": requirement(),
            },
        },
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-validations": [{
            "rule": "(has(self.matchLabels) && self.matchLabels.size() > 0) || \
                     (has(self.matchExpressions) && self.matchExpressions.size() > 0)",
            "reason": "FieldValueRequired",
            "message": "must select by matchLabels or matchExpressions: an empty selector \
                        would take every member",
        }],
    })
}

/// One requirement of a selector; upstream's rules in upstream's words.
fn requirement() -> Value {
    serde_json::json!({
        "description": "One requirement on a label.",
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": {
                "description": "The label's key.",
                "type": "string", "minLength": 1, "maxLength": MAX_KEY, "pattern": KEY,
            },
            "operator": {
                "description": "In: the label has one of the values. NotIn: it has none of \
                    them, or is absent. Exists: it is there. DoesNotExist: it is not.",
                "type": "string",
                "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
            },
            "values": {
                "description": "Values for In and NotIn.",
                "type": "array",
                "maxItems": MAX_VALUES,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "description": "A value of the label.",
                    "type": "string", "maxLength": 63, "pattern": VALUE,
                },
            },
        },
        "x-kubernetes-validations": [
            {
                "rule": "!(self.operator in ['In', 'NotIn']) || \
                         (has(self.values) && self.values.size() > 0)",
                "fieldPath": ".values",
                "reason": "FieldValueRequired",
                "message": "must be specified when `operator` is 'In' or 'NotIn'",
            },
            {
                "rule": "!(self.operator in ['Exists', 'DoesNotExist']) || \
                         !has(self.values) || self.values.size() == 0",
                "fieldPath": ".values",
                "reason": "FieldValueForbidden",
                "message": "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            },
        ],
    })
}

/// An enumeration of names: the Rust type, its wire form and its schema.
macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $value:ident,)* }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize,
        )]
        pub enum $name { $($(#[$item])* $value,)* }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$value,)*];

            /// Its name in the API.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => stringify!($value),)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "enum": [$(stringify!($value),)*]})
            }
        }
    };
}
pub(super) use names;
