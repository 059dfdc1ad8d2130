//! Arguments of a plugin that reads them itself.
//!
//! Owns the way from the JSON in `pluginConfig` to a plugin's own type, and the
//! words in which a wrong argument is refused: plugin, field, value, rule.

use std::fmt::Display;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::RegistryError;

/// How much of a value an error shows.
const MAX_SHOWN: usize = 120;

/// The arguments of one plugin, as written.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    plugin: &'static str,
    value: Option<&'a Value>,
}

impl<'a> Args<'a> {
    /// Arguments of a plugin; `None` if the configuration has none.
    #[must_use]
    pub fn new(plugin: &'static str, value: Option<&'a Value>) -> Self {
        Self { plugin, value: value.filter(|v| !v.is_null()) }
    }

    /// As written; `None` if the configuration has none.
    #[must_use]
    pub fn value(&self) -> Option<&'a Value> {
        self.value
    }

    /// Reads them into a type. Without arguments, `T` is read from an empty
    /// mapping: `#[serde(default)]` says what holds then. `apiVersion` and `kind`
    /// are left out, so that `#[serde(deny_unknown_fields)]` is possible.
    ///
    /// # Errors
    ///
    /// If they do not fit the type: the error names plugin and field.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, RegistryError> {
        let fields = match self.value {
            None => Map::new(),
            Some(Value::Object(fields)) => {
                let own = |key: &str| !matches!(key, "apiVersion" | "kind");
                let fields = fields.iter().filter(|(key, _)| own(key));
                fields.map(|(key, value)| (key.clone(), value.clone())).collect()
            }
            Some(other) => {
                return Err(self.invalid("args", other, "must be a mapping"));
            }
        };
        serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| {
            let path = error.path().to_string();
            let field = if path == "." { "args".to_owned() } else { format!("args.{path}") };
            self.error(field, error.inner().to_string())
        })
    }

    /// The refusal of one value, in upstream's words: `field` is its path, as
    /// `args.timeoutSeconds`.
    pub fn invalid(
        &self,
        field: impl Into<String>,
        value: impl Serialize,
        rule: impl Display,
    ) -> RegistryError {
        let mut shown = serde_json::to_string(&value).unwrap_or_default();
        if let Some((end, _)) = shown.char_indices().nth(MAX_SHOWN) {
            shown.truncate(end);
            shown.push('…');
        }
        self.error(field.into(), format!("Invalid value: {shown}: {rule}"))
    }

    fn error(&self, field: String, problem: String) -> RegistryError {
        RegistryError::Args { plugin: self.plugin, field, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
    struct Own {
        weights: std::collections::BTreeMap<String, f64>,
        timeout_seconds: u32,
    }

    #[test]
    fn what_fits_is_read_and_what_does_not_is_named() {
        let fine = json!({"apiVersion": "x/v1", "kind": "OwnArgs", "weights": {"a": 0.5}});
        let read: Own = Args::new("Own", Some(&fine)).parse().unwrap();
        assert_eq!(read, Own { weights: [("a".to_owned(), 0.5)].into(), timeout_seconds: 0 });
        assert_eq!(Args::new("Own", None).parse::<Own>().unwrap(), Own::default());
        assert_eq!(Args::new("Own", Some(&Value::Null)).parse::<Own>().unwrap(), Own::default());
        let table = [
            (
                json!({"weights": {"a": "much"}}),
                "Own: args.weights.a: invalid type: string \"much\", expected f64",
            ),
            (
                json!({"timeoutSeconds": -1}),
                "Own: args.timeoutSeconds: invalid value: integer `-1`, expected u32",
            ),
            (
                json!({"wieghts": {}}),
                "Own: args.wieghts: unknown field `wieghts`, expected `weights` or `timeoutSeconds`",
            ),
            (json!([1]), "Own: args: Invalid value: [1]: must be a mapping"),
        ];
        for (args, expected) in table {
            let error = Args::new("Own", Some(&args)).parse::<Own>().unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_long_value_is_cut() {
        let args = Args::new("Own", None);
        let error = args.invalid("args.url", "ü".repeat(500), "must be short").to_string();
        assert!(error.len() < 400 && error.ends_with("…: must be short"), "{error}");
    }
}
