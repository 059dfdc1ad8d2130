//! Names with a number in them: `gpu-{i}`, `rack-{i/4}`, `slot-{i%4}`.

/// A text in which `{i}` stands for the index of a node within its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// `index / divide % modulo`; a modulo of 0 is none.
    Index {
        divide: u32,
        modulo: u32,
    },
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// A sentence that says what may stand in braces.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let close =
                rest[open..].find('}').ok_or_else(|| format!("{text:?} lacks a }}"))? + open;
            if open > 0 {
                parts.push(Part::Text(rest[..open].to_owned()));
            }
            parts.push(index(&rest[open + 1..close]).ok_or_else(|| {
                format!(
                    "{text:?}: only {{i}}, {{i/N}} and {{i%N}} may stand in braces, e.g. rack-{{i/4}}"
                )
            })?);
            rest = &rest[close + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// As it is written in a scenario.
    #[must_use]
    pub fn text(&self) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Index { divide: 1, modulo: 0 } => "{i}".to_owned(),
            Part::Index { divide, modulo: 0 } => format!("{{i/{divide}}}"),
            Part::Index { modulo, .. } => format!("{{i%{modulo}}}"),
        };
        self.0.iter().map(part).collect()
    }

    /// Whether every index gives a text of its own.
    #[must_use]
    pub fn is_injective(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Index { divide: 1, modulo: 0 }))
    }

    /// The text for one index.
    #[must_use]
    pub fn expand(&self, index: u32) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(t) => text.push_str(t),
                Part::Index { divide, modulo } => {
                    let n = index / divide;
                    let n = if *modulo == 0 { n } else { n % modulo };
                    text.push_str(&n.to_string());
                }
            }
        }
        text
    }
}

fn index(inside: &str) -> Option<Part> {
    let rest = inside.trim().strip_prefix('i')?.trim();
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n > 0);
    match rest.split_at_checked(1) {
        None => Some(Part::Index { divide: 1, modulo: 0 }),
        Some(("/", n)) => Some(Part::Index { divide: number(n)?, modulo: 0 }),
        Some(("%", n)) => Some(Part::Index { divide: 1, modulo: number(n)? }),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_put_in() {
        let table = [
            ("plain", 5, "plain"),
            ("gpu-{i}", 5, "gpu-5"),
            ("rack-{i/4}-{i%4}", 9, "rack-2-1"),
            ("{ i / 2 }", 3, "1"),
        ];
        for (text, i, expanded) in table {
            assert_eq!(Template::parse(text).unwrap().expand(i), expanded, "{text}");
        }
        assert!(Template::parse("a-{i}").unwrap().is_injective());
        assert!(!Template::parse("a-{i/2}").unwrap().is_injective());
        for text in ["{", "{j}", "{i/0}", "{i+1}", "{}", "{i/x}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
