//! Label selectors, compiled, and the labels they are asked about.

use std::collections::BTreeMap;

use muster_api::k8s;

use super::validate::{label_key_errors, label_value_errors};

/// Labels of one object, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSet(Box<[(Box<str>, Box<str>)]>);

impl LabelSet {
    /// From the wire.
    #[must_use]
    pub fn of(labels: &BTreeMap<String, String>) -> Self {
        Self(labels.iter().map(|(k, v)| (k.as_str().into(), v.as_str().into())).collect())
    }

    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keys and values, in order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (&**k, &**v))
    }
}

/// A label selector: requirements ANDed; without any it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    requirements: Box<[Requirement]>,
    /// A selector that is absent selects nothing.
    nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Requirement {
    In(Box<str>, Box<[Box<str>]>),
    NotIn(Box<str>, Box<[Box<str>]>),
    Exists(Box<str>),
    Absent(Box<str>),
}

impl Requirement {
    fn matches(&self, labels: &LabelSet) -> bool {
        let has = |values: &[Box<str>], v: &str| values.iter().any(|own| **own == *v);
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|v| has(values, v)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|v| !has(values, v)),
            Self::Exists(key) => labels.get(key).is_some(),
            Self::Absent(key) => labels.get(key).is_none(),
        }
    }
}

impl Selector {
    /// The selector that selects nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self { nothing: true, ..Self::default() }
    }

    /// Whether it selects everything, for want of requirements.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether it selects nothing, because there is no selector.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// Whether labels satisfy every requirement.
    #[must_use]
    pub fn matches(&self, labels: &LabelSet) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(labels))
    }

    /// `LabelSelectorAsSelector`; the error in apimachinery's words.
    pub fn compile(selector: Option<&k8s::LabelSelector>) -> Result<Self, String> {
        let Some(selector) = selector else {
            return Ok(Self::nothing());
        };
        let mut requirements = Vec::new();
        for (key, value) in &selector.match_labels {
            check(key, std::slice::from_ref(value), None)?;
            requirements.push(equals(key, value));
        }
        for expression in &selector.match_expressions {
            requirements.push(compile(expression)?);
        }
        Ok(Self::of(requirements))
    }

    /// The selector of these labels, unchecked, as upstream's `SelectorFromSet`.
    #[must_use]
    pub fn from_set(labels: &BTreeMap<String, String>) -> Self {
        Self::of(labels.iter().map(|(k, v)| equals(k, v)).collect())
    }

    /// Both: what neither selects alone is not selected. A selector of nothing
    /// stays one.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        if self.nothing || other.nothing {
            return Self::nothing();
        }
        Self::of(self.requirements.iter().chain(&other.requirements).cloned().collect())
    }

    /// A label that every selected object has, with the values it may have.
    pub(crate) fn anchor(&self) -> Option<(&str, &[Box<str>])> {
        self.requirements.iter().find_map(|r| match r {
            Requirement::In(key, values) => Some((&**key, &**values)),
            _ => None,
        })
    }

    /// In one order, so that equal selectors are shared.
    fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_unstable();
        requirements.dedup();
        Self { requirements: requirements.into(), nothing: false }
    }
}

fn equals(key: &str, value: &str) -> Requirement {
    Requirement::In(key.into(), [value.into()].into())
}

fn compile(r: &k8s::LabelSelectorRequirement) -> Result<Requirement, String> {
    let problem = match (r.operator.as_str(), r.values.is_empty()) {
        ("In" | "NotIn", true) => Some("for 'in', 'notin' operators, values set can't be empty"),
        ("Exists" | "DoesNotExist", false) => {
            Some("values set must be empty for exists and does not exist")
        }
        ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => None,
        (other, _) => return Err(format!("{other:?} is not a valid label selector operator")),
    };
    check(&r.key, &r.values, problem)?;
    let key: Box<str> = r.key.as_str().into();
    let values = || {
        let mut values: Vec<Box<str>> = r.values.iter().map(|v| v.as_str().into()).collect();
        values.sort_unstable();
        values.dedup();
        values.into_boxed_slice()
    };
    Ok(match r.operator.as_str() {
        "In" => Requirement::In(key, values()),
        "NotIn" => Requirement::NotIn(key, values()),
        "Exists" => Requirement::Exists(key),
        _ => Requirement::Absent(key),
    })
}

/// What `labels.NewRequirement` would refuse.
fn check(key: &str, values: &[String], problem: Option<&str>) -> Result<(), String> {
    let mut errors = Vec::new();
    let wrong = label_key_errors(key);
    if !wrong.is_empty() {
        errors.push(format!("key: Invalid value: {key:?}: {}", wrong.join("; ")));
    }
    if let Some(problem) = problem {
        let list = if values.is_empty() { "null".to_owned() } else { format!("{values:?}") };
        let list = list.replace("\", \"", "\",\"");
        errors.push(format!("values: Invalid value: {list}: {problem}"));
    }
    for (i, value) in values.iter().enumerate() {
        let wrong = label_value_errors(value);
        if !wrong.is_empty() {
            let wrong = wrong.join("; ");
            errors.push(format!("values[{i}][{key}]: Invalid value: {value:?}: {wrong}"));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(super::aggregate(errors.iter().map(String::as_str)))
}
