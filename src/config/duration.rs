//! Durations as Go writes and reads them (`15s`, `1m30s`, `-1.5h`).
//!
//! Owns the exact rules of `time.ParseDuration` and `Duration.String`, because
//! configuration files are shared with kube-scheduler. A table in the tests was
//! printed by Go itself.

use std::fmt;
use std::time::Duration;

/// A signed number of nanoseconds, as Go's `time.Duration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(pub i64);

/// Why a string is no duration, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not of the form `[-+]?([0-9]*(\.[0-9]*)?[a-z]+)+`, or too large.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A unit other than ns, us, ms, s, m, h.
    #[error("time: unknown unit {unit:?} in duration {whole:?}")]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole string.
        whole: String,
    },
}

/// 2⁶³, the magnitude of the smallest duration.
const LIMIT: u64 = 1 << 63;
const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

fn unit(name: &str) -> Option<u64> {
    Some(match name {
        "ns" => 1,
        // U+00B5 is the micro sign, U+03BC the Greek letter mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    })
}

impl GoDuration {
    /// Reads a duration as Go does.
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        let invalid = || DurationError::Invalid(text.to_owned());
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (part, after) = term(rest, text)?;
            total = total.checked_add(part).filter(|t| *t <= LIMIT).ok_or_else(invalid)?;
            rest = after;
        }
        match (negative, i64::try_from(total)) {
            (false, Ok(nanos)) => Ok(Self(nanos)),
            (false, Err(_)) => Err(invalid()),
            (true, Ok(nanos)) => Ok(Self(-nanos)),
            // The only one that fits no positive i64.
            (true, Err(_)) => Ok(Self(i64::MIN)),
        }
    }

    /// The same as an unsigned duration; none if it is negative.
    #[must_use]
    pub fn to_std(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }

    /// The nearest duration that Go can hold.
    #[must_use]
    pub fn from_std(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// One number with its unit, and what follows it.
fn term<'a>(text: &'a str, whole: &str) -> Result<(u64, &'a str), DurationError> {
    let invalid = || DurationError::Invalid(whole.to_owned());
    let (integer, rest) = digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    if integer.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let mut value: u64 = 0;
    for digit in integer.bytes() {
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(digit - b'0')))
            .filter(|v| *v <= LIMIT)
            .ok_or_else(invalid)?;
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    if name.is_empty() {
        return Err(DurationError::MissingUnit(whole.to_owned()));
    }
    let unit = unit(name).ok_or_else(|| DurationError::UnknownUnit {
        unit: name.to_owned(),
        whole: whole.to_owned(),
    })?;
    let value = value
        .checked_mul(unit)
        .and_then(|v| v.checked_add(fractional(fraction, unit)))
        .filter(|v| *v <= LIMIT)
        .ok_or_else(invalid)?;
    Ok((value, rest))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// `0.digits` of a unit, in Go's floating point: digits beyond what an integer
/// holds are dropped.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn fractional(digits: &str, unit: u64) -> u64 {
    let mut value: u64 = 0;
    let mut scale = 1.0_f64;
    for digit in digits.bytes() {
        if value > (LIMIT - 1) / 10 {
            break;
        }
        let next = value * 10 + u64::from(digit - b'0');
        if next > LIMIT {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..MICROSECOND => write!(f, "{nanos}ns"),
            MICROSECOND..MILLISECOND => write!(f, "{}µs", Decimal(nanos, MICROSECOND)),
            MILLISECOND..SECOND => write!(f, "{}ms", Decimal(nanos, MILLISECOND)),
            _ => {
                let (hours, minutes) = (nanos / HOUR, nanos / MINUTE % 60);
                if hours > 0 {
                    write!(f, "{hours}h")?;
                }
                if hours > 0 || minutes > 0 {
                    write!(f, "{minutes}m")?;
                }
                write!(f, "{}s", Decimal(nanos % MINUTE, SECOND))
            }
        }
    }
}

/// A quotient with as many decimals as it needs.
struct Decimal(u64, u64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, unit) = *self;
        write!(f, "{}", value / unit)?;
        let mut fraction = value % unit;
        if fraction == 0 {
            return Ok(());
        }
        let mut width = unit.ilog10() as usize;
        while fraction.is_multiple_of(10) {
            fraction /= 10;
            width -= 1;
        }
        write!(f, ".{fraction:0width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Parsed = Result<(i64, &'static str), &'static str>;

    /// Printed by Go 1.26: input, nanoseconds and `String()`, or the error.
    #[rustfmt::skip]
    const GO: &[(&str, Parsed)] = &[
        ("0", Ok((0, "0s"))),
        ("0s", Ok((0, "0s"))),
        ("+0", Ok((0, "0s"))),
        ("-0", Ok((0, "0s"))),
        ("5s", Ok((5_000_000_000, "5s"))),
        ("30s", Ok((30_000_000_000, "30s"))),
        ("1478s", Ok((1_478_000_000_000, "24m38s"))),
        ("-5s", Ok((-5_000_000_000, "-5s"))),
        ("+5s", Ok((5_000_000_000, "5s"))),
        ("1m30s", Ok((90_000_000_000, "1m30s"))),
        ("1h15m30.918273645s", Ok((4_530_918_273_645, "1h15m30.918273645s"))),
        ("-2m3.4s", Ok((-123_400_000_000, "-2m3.4s"))),
        ("1h2m3s4ms5us6ns", Ok((3_723_004_005_006, "1h2m3.004005006s"))),
        ("39h9m14.425s", Ok((140_954_425_000_000, "39h9m14.425s"))),
        ("5.s", Ok((5_000_000_000, "5s"))),
        (".5s", Ok((500_000_000, "500ms"))),
        ("1.0s", Ok((1_000_000_000, "1s"))),
        ("1.00s", Ok((1_000_000_000, "1s"))),
        ("1.004s", Ok((1_004_000_000, "1.004s"))),
        ("1.0040s", Ok((1_004_000_000, "1.004s"))),
        ("100.00100s", Ok((100_001_000_000, "1m40.001s"))),
        ("10ns", Ok((10, "10ns"))),
        ("11us", Ok((11_000, "11µs"))),
        ("12µs", Ok((12_000, "12µs"))),
        ("12μs10ns", Ok((12_010, "12.01µs"))),
        ("13ms", Ok((13_000_000, "13ms"))),
        ("14s", Ok((14_000_000_000, "14s"))),
        ("15m", Ok((900_000_000_000, "15m0s"))),
        ("16h", Ok((57_600_000_000_000, "16h0m0s"))),
        ("3h30m", Ok((12_600_000_000_000, "3h30m0s"))),
        ("10.5s4m", Ok((250_500_000_000, "4m10.5s"))),
        ("52763797000ns", Ok((52_763_797_000, "52.763797s"))),
        ("0.3333333333333333333h", Ok((1_200_000_000_000, "20m0s"))),
        ("9007199254740993ns", Ok((9_007_199_254_740_993, "2501h59m59.254740993s"))),
        ("9223372036854775807ns", Ok((9_223_372_036_854_775_807, "2562047h47m16.854775807s"))),
        ("9223372036854775.807us", Ok((9_223_372_036_854_775_807, "2562047h47m16.854775807s"))),
        ("9223372036s854ms775us807ns", Ok((9_223_372_036_854_775_807, "2562047h47m16.854775807s"))),
        ("-9223372036854775808ns", Ok((-9_223_372_036_854_775_808, "-2562047h47m16.854775808s"))),
        ("-9223372036854775.808us", Ok((-9_223_372_036_854_775_808, "-2562047h47m16.854775808s"))),
        ("0.100000000000000000000h", Ok((360_000_000_000, "6m0s"))),
        ("0.830103483285477580700h", Ok((2_988_372_539_827, "49m48.372539827s"))),
        ("2562047h47m16.854775807s", Ok((9_223_372_036_854_775_807, "2562047h47m16.854775807s"))),
        ("", Err("time: invalid duration \"\"")),
        ("3", Err("time: missing unit in duration \"3\"")),
        ("-", Err("time: invalid duration \"-\"")),
        ("s", Err("time: invalid duration \"s\"")),
        (".", Err("time: invalid duration \".\"")),
        ("-.", Err("time: invalid duration \"-.\"")),
        (".s", Err("time: invalid duration \".s\"")),
        ("+.s", Err("time: invalid duration \"+.s\"")),
        ("1d", Err("time: unknown unit \"d\" in duration \"1d\"")),
        ("1s1", Err("time: missing unit in duration \"1s1\"")),
        ("1.2.3s", Err("time: missing unit in duration \"1.2.3s\"")),
        (" 1s", Err("time: invalid duration \" 1s\"")),
        ("1 s", Err("time: unknown unit \" s\" in duration \"1 s\"")),
        ("9223372036854775808ns", Err("time: invalid duration \"9223372036854775808ns\"")),
        ("9223372036854775810ns", Err("time: invalid duration \"9223372036854775810ns\"")),
        ("3000000h", Err("time: invalid duration \"3000000h\"")),
        ("1e3s", Err("time: unknown unit \"e\" in duration \"1e3s\"")),
        ("15S", Err("time: unknown unit \"S\" in duration \"15S\"")),
    ];

    #[test]
    fn as_go_does() {
        for (text, expected) in GO {
            let got = GoDuration::parse(text).map(|d| (d.0, d.to_string()));
            match (got, expected) {
                (Ok((nanos, shown)), Ok((want, want_shown))) => {
                    assert_eq!((nanos, shown.as_str()), (*want, *want_shown), "{text:?}");
                }
                (Err(error), Err(want)) => assert_eq!(error.to_string(), *want, "{text:?}"),
                (got, want) => panic!("{text:?}: {got:?}, Go says {want:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read(nanos: i64) {
            let duration = GoDuration(nanos);
            prop_assert_eq!(GoDuration::parse(&duration.to_string()), Ok(duration));
        }

        #[test]
        fn small_ones_too(nanos in -3_700_000_000_000_i64..3_700_000_000_000) {
            let duration = GoDuration(nanos);
            prop_assert_eq!(GoDuration::parse(&duration.to_string()), Ok(duration));
        }

        #[test]
        fn nothing_panics(text in "[-+]?[0-9.]{0,22}(ns|us|µs|ms|s|m|h|x)?[0-9.]{0,22}[a-zµ]{0,2}") {
            let _ = GoDuration::parse(&text);
        }

        #[test]
        fn order_of_terms_does_not_matter(h in 0_i64..100, m in 0_i64..100, s in 0_i64..100) {
            let there = GoDuration::parse(&format!("{h}h{m}m{s}s"));
            let back = GoDuration::parse(&format!("{s}s{m}m{h}h"));
            prop_assert_eq!(&there, &back);
            prop_assert_eq!(there, Ok(GoDuration(((h * 60 + m) * 60 + s) * 1_000_000_000)));
        }
    }
}
