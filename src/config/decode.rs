//! Strict reading of a YAML document, field by field.
//!
//! Owns: the path of every field, and the rule that a field which nobody asked
//! for is an error. All errors of a file are collected, not only the first.
//! Must never: know what a field means.

use std::cell::RefCell;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::duration::GoDuration;
use super::error::FieldError;

/// Where errors are collected.
pub(super) type Errors = RefCell<Vec<FieldError>>;

static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// A mapping at some path. When it is dropped, fields that were not asked for
/// are reported, so that no reader can forget to.
pub(super) struct Object<'v> {
    path: String,
    fields: &'v Map<String, Value>,
    known: Vec<&'static str>,
    errors: &'v Errors,
}

impl<'v> Object<'v> {
    /// The mapping at a path, which may be left empty; anything else is an error.
    pub(super) fn new(path: String, value: &'v Value, errors: &'v Errors) -> Option<Self> {
        let fields = value.as_object().or_else(|| value.is_null().then_some(&*EMPTY));
        let Some(fields) = fields else {
            let error = FieldError::invalid(path, value, "must be a mapping");
            errors.borrow_mut().push(error.remedy("write `field: value` lines"));
            return None;
        };
        Some(Self { path, fields, known: Vec::new(), errors })
    }

    /// The path of a field of this mapping.
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// An empty mapping, for defaults.
    pub(super) fn empty(errors: &'v Errors) -> Self {
        Self { path: String::new(), fields: &EMPTY, known: Vec::new(), errors }
    }

    /// Where it is.
    pub(super) fn place(&self) -> &str {
        &self.path
    }

    /// Records what is wrong.
    pub(super) fn report(&self, error: FieldError) {
        self.errors.borrow_mut().push(error);
    }

    /// Whether a field is set, to a value other than null.
    pub(super) fn has(&self, key: &str) -> bool {
        self.fields.get(key).is_some_and(|value| !value.is_null())
    }

    /// A field of any type. Null is absent, as in Go.
    pub(super) fn any(&mut self, key: &'static str) -> Option<&'v Value> {
        self.known.push(key);
        self.fields.get(key).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &mut self,
        key: &'static str,
        (must, remedy): (&str, &str),
        read: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.any(key)?;
        let read = read(value);
        if read.is_none() {
            self.report(FieldError::invalid(self.path(key), value, must).remedy(remedy));
        }
        read
    }

    pub(super) fn string(&mut self, key: &'static str) -> Option<String> {
        let rule = ("must be a string", "put it in quotes");
        self.typed(key, rule, |value| value.as_str().map(str::to_owned))
    }

    /// A string in which empty is the same as absent.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        self.string(key).filter(|text| !text.is_empty())
    }

    pub(super) fn bool(&mut self, key: &'static str) -> Option<bool> {
        let rule = ("must be true or false", "without quotes");
        self.typed(key, rule, Value::as_bool)
    }

    pub(super) fn i64(&mut self, key: &'static str) -> Option<i64> {
        let rule = ("must be an integer", "write a number without quotes and decimals");
        self.typed(key, rule, integer)
    }

    pub(super) fn i32(&mut self, key: &'static str) -> Option<i32> {
        let number = self.i64(key)?;
        let narrow = i32::try_from(number);
        if narrow.is_err() {
            let rule = "must be an integer of 32 bits";
            self.report(FieldError::invalid(self.path(key), &number, rule));
        }
        narrow.ok()
    }

    /// A number as Go's float32.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn f32(&mut self, key: &'static str) -> Option<f32> {
        let rule = ("must be a number", "without quotes");
        self.typed(key, rule, |value| value.as_f64().map(|number| number as f32))
    }

    pub(super) fn duration(&mut self, key: &'static str) -> Option<GoDuration> {
        const FORM: &str = "write it as 15s, 1m30s or 500ms";
        let text = self.typed(key, ("must be a duration", FORM), Value::as_str)?;
        match GoDuration::parse(text) {
            Ok(duration) => Some(duration),
            Err(error) => {
                let error = FieldError::invalid(self.path(key), &text, error.to_string());
                self.report(error.remedy(FORM));
                None
            }
        }
    }

    /// The strings in a list.
    pub(super) fn strings(&mut self, key: &'static str) -> Vec<String> {
        let rule = ("must be a list of strings", "begin each item with `- ` and quote it");
        let string = |item: &Value| item.as_str().map(str::to_owned);
        let all = |value: &Value| value.as_array()?.iter().map(string).collect();
        self.typed(key, rule, all).unwrap_or_default()
    }

    pub(super) fn object(&mut self, key: &'static str) -> Option<Self> {
        let value = self.any(key)?;
        Self::new(self.path(key), value, self.errors)
    }

    /// The mappings in a list.
    pub(super) fn objects(&mut self, key: &'static str) -> Vec<Self> {
        let rule = ("must be a list", "begin each item with `- `");
        let path = self.path(key);
        let items = self.typed(key, rule, Value::as_array).map_or(&[][..], Vec::as_slice);
        let item = |(i, value)| Self::new(format!("{path}[{i}]"), value, self.errors);
        items.iter().enumerate().filter_map(item).collect()
    }
}

impl Drop for Object<'_> {
    fn drop(&mut self) {
        for key in self.fields.keys().filter(|key| !self.known.contains(&key.as_str())) {
            let near = self.known.iter().find(|known| alike(known, key));
            let detail = near.map_or_else(
                || format!("known here are {}", self.known.join(", ")),
                |near| format!("did you mean {near:?}?"),
            );
            let error = FieldError::unknown(self.path(key), detail);
            self.report(error.remedy("correct its name or remove it"));
        }
    }
}

/// An integer, also one that is written as 1.0 or 1e1.
#[allow(clippy::cast_possible_truncation)]
fn integer(value: &Value) -> Option<i64> {
    /// Up to here every integer is a float, and the other way round.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = |float: &f64| float.fract() == 0.0 && float.abs() <= EXACT;
    value.as_i64().or_else(|| value.as_f64().filter(whole).map(|float| float as i64))
}

/// Whether one is probably a slip for the other: at most two letters differ.
pub(super) fn alike(a: &str, b: &str) -> bool {
    const SLIPS: usize = 2;
    let (a, b) = (a.to_ascii_lowercase(), b.to_ascii_lowercase());
    if a.len().abs_diff(b.len()) > SLIPS {
        return false;
    }
    // The edit distance, row by row.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()] <= SLIPS.min(a.len() / 2)
}
