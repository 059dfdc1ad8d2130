//! A shard: the nodes that one of several schedulers looks after.
//!
//! Owns the text of the selector: kubectl's syntax, checked before the API server
//! sees it. The server itself does the selecting. Must never match labels here: there
//! would be two opinions.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use muster_core::model::{label_key_errors, label_value_errors};

/// A label selector of nodes, in the one way to write it: requirements by key, values
/// in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSelector(String);

impl NodeSelector {
    /// As the API server is asked.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is wrong with a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write for example 'pool=a,zone in (x,y),!spot'")]
pub struct SelectorError(String);

/// What a process schedules, in words that can be compared.
#[must_use]
pub fn describe(names: &[impl AsRef<str>], nodes: Option<&NodeSelector>) -> String {
    let names: BTreeSet<&str> = names.iter().map(AsRef::as_ref).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let names = names.join(", ");
    nodes.map_or_else(
        || format!("pods of {names} on all nodes"),
        |nodes| format!("pods of {names} on nodes {nodes}"),
    )
}

impl FromStr for NodeSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let parsed = Parser { tokens: tokens(text).map_err(SelectorError)?, at: 0 }.parse();
        let mut requirements = parsed.map_err(SelectorError)?;
        requirements.sort();
        let texts: Vec<String> = requirements.into_iter().map(|(_, text)| text).collect();
        if texts.is_empty() {
            return Err(SelectorError("it selects every node, as no selector would".to_owned()));
        }
        Ok(Self(texts.join(",")))
    }
}

/// A piece of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// One of `= == != ! ( ) , < >`.
    Symbol(&'static str),
    Word(String),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symbol(symbol) => f.write_str(symbol),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// Longer ones first.
const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", "<", ">"];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = rest[symbol.len()..].trim_start();
            continue;
        }
        let ends = |c: char| c.is_whitespace() || "=!(),<>".contains(c);
        let (word, after) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
        if word.contains(char::is_control) {
            return Err(format!("found {word:?}, expected: a key or a value"));
        }
        tokens.push(Token::Word(word.to_owned()));
        rest = after.trim_start();
    }
    Ok(tokens)
}

/// Follows apimachinery's `labels.Parse`, with its words.
struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

/// A requirement: its key, and its text.
type Requirement = (String, String);

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn is_at(&self, symbol: &str) -> bool {
        matches!(self.peek(), Some(Token::Symbol(s)) if *s == symbol)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = self.is_at(symbol);
        self.at += usize::from(found);
        found
    }

    fn found(&self) -> String {
        self.peek().map_or_else(|| "the end".to_owned(), |token| format!("'{token}'"))
    }

    fn word(&mut self) -> Option<String> {
        let Some(Token::Word(word)) = self.tokens.get(self.at) else {
            return None;
        };
        self.at += 1;
        Some(word.clone())
    }

    fn parse(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        if self.tokens.is_empty() {
            return Ok(requirements);
        }
        loop {
            requirements.push(self.requirement()?);
            if self.peek().is_none() {
                return Ok(requirements);
            }
            if !self.take(",") {
                return Err(format!("found {}, expected: ',' or the end", self.found()));
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.take("!");
        let Some(key) = self.word() else {
            return Err(format!("found {}, expected: a label key", self.found()));
        };
        valid(&key, &label_key_errors(&key))?;
        if absent {
            return Ok((key.clone(), format!("!{key}")));
        }
        if self.peek().is_none() || self.is_at(",") {
            return Ok((key.clone(), key));
        }
        let text = match self.tokens.get(self.at).cloned() {
            Some(Token::Word(word)) if word == "in" || word == "notin" => {
                self.at += 1;
                let values: Vec<String> = self.values()?.into_iter().collect();
                format!("{key} {word} ({})", values.join(","))
            }
            Some(Token::Symbol(operator @ ("=" | "==" | "!=" | "<" | ">"))) => {
                self.at += 1;
                let value = self.value(&key, operator)?;
                format!("{key}{}{value}", if operator == "==" { "=" } else { operator })
            }
            _ => {
                let found = self.found();
                return Err(format!("found {found}, expected: in, notin, =, ==, !=, > or <"));
            }
        };
        Ok((key, text))
    }

    /// One value; nothing is the empty one.
    fn value(&mut self, key: &str, operator: &str) -> Result<String, String> {
        let value = match self.word() {
            Some(value) => value,
            None if self.peek().is_none() || self.is_at(",") => String::new(),
            None => return Err(format!("found {}, expected: a value of {key}", self.found())),
        };
        if matches!(operator, "<" | ">") && value.parse::<i64>().is_err() {
            return Err(format!("{key}{operator}{value}: the value must be an integer"));
        }
        valid(&value, &label_value_errors(&value))?;
        Ok(value)
    }

    /// Values in brackets; where one is missing it is the empty one.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        if !self.take("(") {
            return Err(format!("found {}, expected: '('", self.found()));
        }
        let mut values = BTreeSet::new();
        loop {
            let value = self.word().unwrap_or_default();
            valid(&value, &label_value_errors(&value))?;
            values.insert(value);
            if self.take(")") {
                return Ok(values);
            }
            if !self.take(",") {
                return Err(format!("found {}, expected: ',' or ')'", self.found()));
            }
        }
    }
}

fn valid(text: &str, errors: &[String]) -> Result<(), String> {
    if errors.is_empty() { Ok(()) } else { Err(format!("{text:?}: {}", errors.join("; "))) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_selector_is_read_as_kubectl_reads_it() {
        let table = [
            ("pool=a", "pool=a"),
            (" pool == a ", "pool=a"),
            ("zone in (y, x,y),pool=a", "pool=a,zone in (x,y)"),
            ("a.b/c notin (1)", "a.b/c notin (1)"),
            ("!spot,gpu", "gpu,!spot"),
            ("n>3,m<2", "m<2,n>3"),
            ("k=", "k="),
            ("k!=v", "k!=v"),
            ("x in (foo,,baz),y,z notin ()", "x in (,baz,foo),y,z notin ()"),
            ("in in (in)", "in in (in)"),
        ];
        for (text, expected) in table {
            assert_eq!(
                text.parse::<NodeSelector>().map(|s| s.0).as_deref(),
                Ok(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn a_selector_that_is_none_is_refused_with_the_place() {
        let table = [
            ("", "it selects every node"),
            ("pool=a,", "found the end, expected: a label key"),
            (",a", "found ',', expected: a label key"),
            ("pool a", "found 'a', expected: in, notin, =, ==, !=, > or <"),
            ("pool=a b", "found 'b', expected: ',' or the end"),
            ("!pool=a", "found '=', expected: ',' or the end"),
            ("zone in x", "found 'x', expected: '('"),
            ("zone in (x", "found the end, expected: ',' or ')'"),
            ("zone in (x y)", "found 'y', expected: ',' or ')'"),
            ("pool=(a)", "found '(', expected: a value of pool"),
            ("n>x", "n>x: the value must be an integer"),
            ("n>-2", "\"-2\": a valid label must be an empty string"),
            ("-a=b", "\"-a\": name part must consist of"),
            ("a=-b", "\"-b\": a valid label must be an empty string or consist of"),
            ("a/b/c", "\"a/b/c\": a valid label key"),
        ];
        for (text, expected) in table {
            let error = text.parse::<NodeSelector>().expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
            assert!(error.ends_with("; write for example 'pool=a,zone in (x,y),!spot'"), "{error}");
        }
    }

    #[test]
    fn what_a_process_schedules_is_said_in_one_way() {
        let nodes: NodeSelector = "pool = a".parse().unwrap();
        assert_eq!(describe(&["b", "a", "b"], Some(&nodes)), "pods of a, b on nodes pool=a");
        assert_eq!(describe(&["a"], None), "pods of a on all nodes");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_and_what_is_read_reads_the_same(
            text in "[a-c!=<>(), 1]{0,12}|[a-c]{1,2}( (not)?in \\([a-c,]{0,4}\\)|!?=[a-c]?)?(,!?[a-c])?|.*"
        ) {
            if let Ok(selector) = text.parse::<NodeSelector>() {
                prop_assert_eq!(selector.as_str().parse(), Ok(selector.clone()));
            }
        }
    }
}
