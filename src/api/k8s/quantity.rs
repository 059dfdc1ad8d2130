//! Quantities, exact as in Kubernetes.

use std::fmt;
use std::ops::AddAssign;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

const NANO: i128 = 1_000_000_000;
/// Kubernetes caps quantities at 2^63-1 units.
const MAX_NANOS: i128 = (i64::MAX as i128) * NANO;

/// A resource quantity in billionths of its unit.
///
/// As in apimachinery, anything finer than 10^-9 is rounded up (away from zero)
/// while parsing and values are capped at ±(2^63-1), so an `i128` is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantity {0:?} must match <number>[n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e<exponent>], e.g. 500m or 2Gi"
)]
pub struct ParseQuantityError(String);

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// From whole units.
    #[must_use]
    pub const fn from_units(units: i64) -> Self {
        Self(units as i128 * NANO)
    }

    /// From thousandths.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis as i128 * (NANO / 1000))
    }

    /// Whole units, rounded up (away from zero).
    #[must_use]
    pub fn value(self) -> i64 {
        self.scaled(NANO)
    }

    /// Thousandths, rounded up (away from zero).
    #[must_use]
    pub fn milli_value(self) -> i64 {
        self.scaled(NANO / 1000)
    }

    /// Whether it is exactly zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    fn scaled(self, unit: i128) -> i64 {
        let quotient = div_away(self.0, unit);
        i64::try_from(quotient).unwrap_or(if quotient < 0 { i64::MIN } else { i64::MAX })
    }

    /// Parses the API's text form.
    pub fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        parse(text.trim()).ok_or_else(|| ParseQuantityError(text.to_owned()))
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

fn div_away(value: i128, unit: i128) -> i128 {
    let quotient = value / unit;
    if value % unit == 0 { quotient } else { quotient + value.signum() }
}

fn parse(text: &str) -> Option<Quantity> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number_end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (base2, exponent) = scale(suffix)?;
    let nanos = magnitude(whole, fraction, base2, exponent);
    Some(Quantity(if negative { -nanos } else { nanos }))
}

/// The suffix as (power of two, power of ten).
fn scale(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            let magnitude = digits.parse::<i32>().unwrap_or(i32::MAX / 2).min(i32::MAX / 2);
            (0, if exponent.starts_with('-') { -magnitude } else { magnitude })
        }
    })
}

/// |value| in nanos, rounded up, capped. Digits beyond what can matter only
/// decide the rounding, so arbitrarily long texts cost linear time and no memory.
fn magnitude(whole: &str, fraction: &str, base2: u32, exponent: i32) -> i128 {
    // All digits as one integer `digits` with `exponent` tens behind it; kept to
    // 36 significant digits, `lost` tells whether anything non-zero was cut.
    let mut digits: i128 = 0;
    let mut tens = i64::from(exponent) + 9 - fraction.len() as i64;
    let mut kept = 0;
    let mut lost = false;
    let mut cut = 0i64;
    for digit in whole.bytes().chain(fraction.bytes()).map(|b| i128::from(b - b'0')) {
        if kept == 36 {
            lost |= digit != 0;
            cut += 1;
        } else if digits != 0 || digit != 0 {
            digits = digits * 10 + digit;
            kept += 1;
        }
    }
    tens += cut;
    if digits == 0 {
        return 0;
    }
    // Make room for the power of two; what is cut off only matters for rounding.
    while tens < 0 && digits > (i128::MAX >> base2) {
        lost |= digits % 10 != 0;
        digits /= 10;
        tens += 1;
    }
    if digits > (i128::MAX >> base2) {
        return MAX_NANOS;
    }
    let mut value = digits << base2;
    while tens > 0 {
        value = value.saturating_mul(10);
        tens -= 1;
        if value > MAX_NANOS {
            return MAX_NANOS;
        }
    }
    while tens < 0 {
        lost |= value % 10 != 0;
        value /= 10;
        tens += 1;
        if value == 0 {
            break;
        }
    }
    (value + i128::from(lost)).min(MAX_NANOS)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n, unit) = [(NANO, ""), (NANO / 1000, "m"), (NANO / 1_000_000, "u"), (1, "n")]
            .into_iter()
            .find(|(scale, _)| self.0 % scale == 0)
            .unwrap_or((1, "n"));
        write!(f, "{}{unit}", self.0 / n)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as \"500m\", \"2Gi\" or 4")
            }

            fn visit_str<E: Error>(self, v: &str) -> Result<Quantity, E> {
                Quantity::parse(v).map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, v: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(v))
            }

            fn visit_u64<E: Error>(self, v: u64) -> Result<Quantity, E> {
                Ok(Quantity((i128::from(v) * NANO).min(MAX_NANOS)))
            }

            fn visit_f64<E: Error>(self, v: f64) -> Result<Quantity, E> {
                Quantity::parse(&v.to_string()).map_err(E::custom)
            }

            fn visit_unit<E>(self) -> Result<Quantity, E> {
                Ok(Quantity::ZERO)
            }
        }
        d.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_as_upstream_parses_them() {
        // (text, value() rounded up, milli_value() rounded up)
        let table = [
            ("0", 0, 0),
            ("1", 1, 1000),
            ("100m", 1, 100),
            ("1.5", 2, 1500),
            (".5", 1, 500),
            ("5.", 5, 5000),
            ("1e3", 1000, 1_000_000),
            ("1E3", 1000, 1_000_000),
            ("1E", 1_000_000_000_000_000_000, i64::MAX),
            ("12e-1", 2, 1200),
            ("1Ki", 1024, 1_024_000),
            ("0.5Gi", 536_870_912, 536_870_912_000),
            ("1n", 1, 1),
            ("0.1n", 1, 1), // finer than nano is rounded up
            ("999999999999999999999", i64::MAX, i64::MAX),
            ("8Ei", i64::MAX, i64::MAX),
            ("-1500m", -2, -1500),
            ("+2", 2, 2000),
        ];
        for (text, value, milli) in table {
            let q = Quantity::parse(text).unwrap();
            assert_eq!((q.value(), q.milli_value()), (value, milli), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_a_remedy() {
        for text in ["", "abc", "1.2.3", "1ki", "1Kib", "--1", "1e", "1e+", "Gi", "1 Gi", "0x10"] {
            let error = Quantity::parse(text).unwrap_err().to_string();
            assert!(error.contains("500m or 2Gi"), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics_and_display_round_trips(text in "[-+]?[0-9]{0,40}\\.?[0-9]{0,40}(n|u|m|k|M|G|Ki|Mi|Ei|E|e[0-9]{1,12})?") {
            if let Ok(q) = Quantity::parse(&text) {
                proptest::prop_assert_eq!(Quantity::parse(&q.to_string()).unwrap(), q);
            }
        }
    }
}
