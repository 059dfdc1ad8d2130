//! API timestamps.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A point in time as the API writes it, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// Parses RFC 3339.
    pub fn parse(text: &str) -> Result<Self, jiff::Error> {
        text.parse::<jiff::Timestamp>().map(|t| Self(t.as_microsecond()))
    }
}

impl Time {
    /// The time without its fraction of a second: what `metav1.Time` can hold.
    #[must_use]
    pub fn whole_seconds(self) -> Self {
        Self(self.0.div_euclid(1_000_000) * 1_000_000)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(t) => write!(f, "{t}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        Self::parse(&text).map_err(|e| D::Error::custom(format!("invalid time {text:?}: {e}")))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
