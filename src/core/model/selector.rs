//! Node selectors, compiled.
//!
//! A selector is parsed once per shape. Parse errors make a term match nothing,
//! as upstream's lazy selector does; a strict caller asks for the error.

use muster_api::k8s::{NodeSelectorRequirement, NodeSelectorTerm};

use super::validate::{label_key_errors, label_value_errors};
use crate::cluster::{Cluster, NodeSet};

/// What a selector asks of a node.
pub trait NodeMatcher {
    /// The node's name.
    fn name(&self) -> &str;
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
}

/// Terms, ORed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeTerms(pub Vec<NodeTerm>);

/// One term: requirements ANDed, or the reason why it cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    requirements: Result<Vec<Requirement>, Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Requirement {
    In(Box<str>, Box<[Box<str>]>),
    NotIn(Box<str>, Box<[Box<str>]>),
    Exists(Box<str>),
    Absent(Box<str>),
    Greater(Box<str>, i64),
    Less(Box<str>, i64),
    NameIs(Box<str>),
    NameIsNot(Box<str>),
    /// A field other than `metadata.name`: nodes have no such field, it reads as "".
    NoField {
        expected_empty: bool,
    },
}

impl NodeTerms {
    /// Compiles terms; empty terms match nothing and are left out.
    #[must_use]
    pub fn compile(terms: &[NodeSelectorTerm]) -> Self {
        let terms = terms.iter().enumerate().filter(|(_, t)| !is_empty_term(t));
        let path = |i| format!("nodeSelectorTerms[{i}]");
        Self(terms.map(|(i, t)| NodeTerm::compile(t, &path(i))).collect())
    }

    /// As `compile`, but what terms say of fields must only parse: the terms of
    /// a volume are matched with labels alone.
    #[must_use]
    pub fn compile_labels(terms: &[NodeSelectorTerm]) -> Self {
        let mut all = Self::compile(terms);
        for requirements in all.0.iter_mut().filter_map(|t| t.requirements.as_mut().ok()) {
            requirements.retain(|r| !r.is_field());
        }
        all
    }

    /// Whether any term matches.
    #[must_use]
    pub fn matches(&self, node: &impl NodeMatcher) -> bool {
        self.0.iter().any(|t| t.matches(node))
    }

    /// The nodes of `within` that any term matches.
    pub(crate) fn select(&self, cluster: &Cluster, within: &NodeSet) -> NodeSet {
        let mut selected = NodeSet::default();
        for requirements in self.0.iter().filter_map(|t| t.requirements.as_ref().ok()) {
            let mut set = within.clone();
            requirements.iter().for_each(|r| r.narrow(cluster, &mut set));
            selected.unite(&set);
        }
        selected
    }

    /// What cannot be parsed; empty if all can.
    pub fn errors(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(NodeTerm::errors)
    }
}

/// Whether a term has no requirements at all.
pub(crate) fn is_empty_term(term: &NodeSelectorTerm) -> bool {
    term.match_expressions.is_empty() && term.match_fields.is_empty()
}

impl NodeTerm {
    /// Compiles one term; errors name fields below `path`.
    #[must_use]
    pub fn compile(term: &NodeSelectorTerm, path: &str) -> Self {
        let labels = term.match_expressions.iter().enumerate();
        let fields = term.match_fields.iter().enumerate();
        let all = labels
            .map(|(i, r)| compile_label(r, &format!("{path}.matchExpressions[{i}]")))
            .chain(fields.map(|(i, r)| compile_field(r, &format!("{path}.matchFields[{i}]"))));
        let (mut requirements, mut errors) = (Vec::new(), Vec::new());
        for one in all {
            match one {
                Ok(requirement) => requirements.push(requirement),
                Err(mut more) => errors.append(&mut more),
            }
        }
        Self { requirements: if errors.is_empty() { Ok(requirements) } else { Err(errors) } }
    }

    /// Whether all requirements hold.
    #[must_use]
    pub fn matches(&self, node: &impl NodeMatcher) -> bool {
        self.requirements.as_ref().is_ok_and(|all| all.iter().all(|r| r.matches(node)))
    }

    /// Why it cannot be parsed.
    pub fn errors(&self) -> impl Iterator<Item = &str> {
        self.requirements.as_ref().err().into_iter().flatten().map(String::as_str)
    }
}

impl Requirement {
    const fn is_field(&self) -> bool {
        matches!(self, Self::NameIs(_) | Self::NameIsNot(_) | Self::NoField { .. })
    }

    fn matches(&self, node: &impl NodeMatcher) -> bool {
        let number = |key: &str| node.label(key).and_then(|v| v.parse::<i64>().ok());
        match self {
            Self::In(key, values) => node.label(key).is_some_and(|v| has(values, v)),
            Self::NotIn(key, values) => node.label(key).is_none_or(|v| !has(values, v)),
            Self::Exists(key) => node.label(key).is_some(),
            Self::Absent(key) => node.label(key).is_none(),
            Self::Greater(key, than) => number(key).is_some_and(|n| n > *than),
            Self::Less(key, than) => number(key).is_some_and(|n| n < *than),
            Self::NameIs(name) => node.name() == &**name,
            Self::NameIsNot(name) => node.name() != &**name,
            Self::NoField { expected_empty } => *expected_empty,
        }
    }
}

impl Requirement {
    /// As `matches`, for a whole set by the postings of the index.
    fn narrow(&self, cluster: &Cluster, set: &mut NodeSet) {
        let (index, syms) = (&cluster.index, &cluster.syms);
        let number = |v: &str| v.parse::<i64>().ok();
        match self {
            Self::In(key, values) => set.intersect(&index.with_values(syms, key, values)),
            Self::NotIn(key, values) => set.subtract(&index.with_values(syms, key, values)),
            Self::Exists(key) => set.intersect(&index.with_key(syms, key)),
            Self::Absent(key) => set.subtract(&index.with_key(syms, key)),
            Self::Greater(key, than) => set
                .intersect(&index.with_value(syms, key, |v| number(v).is_some_and(|n| n > *than))),
            Self::Less(key, than) => set
                .intersect(&index.with_value(syms, key, |v| number(v).is_some_and(|n| n < *than))),
            Self::NameIs(name) => {
                let mut one = NodeSet::default();
                index.node(name).into_iter().for_each(|n| one.insert(n));
                set.intersect(&one);
            }
            Self::NameIsNot(name) => index.node(name).into_iter().for_each(|n| set.remove(n)),
            Self::NoField { expected_empty: true } => {}
            Self::NoField { expected_empty: false } => *set = NodeSet::default(),
        }
    }
}

fn has(values: &[Box<str>], value: &str) -> bool {
    values.iter().any(|v| &**v == value)
}

fn compile_label(r: &NodeSelectorRequirement, path: &str) -> Result<Requirement, Vec<String>> {
    let mut errors = Vec::new();
    let key_errors = label_key_errors(&r.key);
    let operator = r.operator.as_str();
    if !matches!(operator, "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt") {
        return Err(vec![format!(
            "{path}.operator: Unsupported value: {operator:?}: supported values: \"In\", \
             \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\""
        )]);
    }
    if !key_errors.is_empty() {
        errors.push(format!("{path}.key: Invalid value: {:?}: {}", r.key, key_errors.join("; ")));
    }
    let count = |problem: &str| {
        let values =
            if r.values.is_empty() { "null".to_owned() } else { format!("{:?}", r.values) };
        let values = values.replace("\", \"", "\",\"");
        format!("{path}.values: Invalid value: {values}: {problem}")
    };
    match operator {
        "In" | "NotIn" if r.values.is_empty() => {
            errors.push(count("for 'in', 'notin' operators, values set can't be empty"));
        }
        "Exists" | "DoesNotExist" if !r.values.is_empty() => {
            errors.push(count("values set must be empty for exists and does not exist"));
        }
        "Gt" | "Lt" => {
            if r.values.len() != 1 {
                errors.push(count("for 'Gt', 'Lt' operators, exactly one value is required"));
            }
            for (i, v) in r.values.iter().enumerate().filter(|(_, v)| v.parse::<i64>().is_err()) {
                errors.push(format!(
                    "{path}.values[{i}]: Invalid value: {v:?}: for 'Gt', 'Lt' operators, the value \
                     must be an integer"
                ));
            }
        }
        _ => {}
    }
    for (i, value) in r.values.iter().enumerate() {
        let problems = label_value_errors(value);
        if !problems.is_empty() {
            errors.push(format!(
                "{path}.values[{i}][{}]: Invalid value: {value:?}: {}",
                r.key,
                problems.join("; ")
            ));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let key: Box<str> = r.key.as_str().into();
    let values = || r.values.iter().map(|v| v.as_str().into()).collect::<Box<[Box<str>]>>();
    let number = || r.values.first().and_then(|v| v.parse().ok()).unwrap_or_default();
    Ok(match operator {
        "In" => Requirement::In(key, values()),
        "NotIn" => Requirement::NotIn(key, values()),
        "Exists" => Requirement::Exists(key),
        "Gt" => Requirement::Greater(key, number()),
        "Lt" => Requirement::Less(key, number()),
        _ => Requirement::Absent(key),
    })
}

fn compile_field(r: &NodeSelectorRequirement, path: &str) -> Result<Requirement, Vec<String>> {
    let equal = match r.operator.as_str() {
        "In" => true,
        "NotIn" => false,
        other => {
            return Err(vec![format!(
                "{path}.operator: Unsupported value: {other:?}: supported values: \"In\", \"NotIn\""
            )]);
        }
    };
    let [value] = r.values.as_slice() else {
        let values =
            if r.values.is_empty() { "null".to_owned() } else { format!("{:?}", r.values) };
        let values = values.replace("\", \"", "\",\"");
        return Err(vec![format!("{path}.values: Invalid value: {values}: must have one element")]);
    };
    Ok(match (r.key == "metadata.name", equal) {
        (true, true) => Requirement::NameIs(value.as_str().into()),
        (true, false) => Requirement::NameIsNot(value.as_str().into()),
        (false, equal) => Requirement::NoField { expected_empty: value.is_empty() == equal },
    })
}

/// Several errors as apimachinery's aggregate prints them.
pub(crate) fn aggregate<'a>(errors: impl IntoIterator<Item = &'a str>) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for error in errors {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
    }
    match distinct.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}
