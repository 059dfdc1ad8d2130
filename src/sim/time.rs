//! Durations and virtual time.
//!
//! Owns how a duration is read and written. A point in virtual time is a
//! [`Tick`]; runs begin at [`EPOCH`] so that timestamps look like timestamps.

use muster_core::io::Tick;

/// A duration in microseconds.
pub type Micros = i64;

/// One millisecond.
pub const MILLISECOND: Micros = 1_000;
/// One second.
pub const SECOND: Micros = 1_000 * MILLISECOND;
/// One minute.
pub const MINUTE: Micros = 60 * SECOND;
/// One hour.
pub const HOUR: Micros = 60 * MINUTE;
/// One day.
pub const DAY: Micros = 24 * HOUR;

/// When every run begins: 2026-01-01T00:00:00Z.
pub const EPOCH: Tick = Tick(1_767_225_600 * SECOND);

/// Microseconds from the beginning of the run to `tick`.
#[must_use]
pub const fn since_epoch(tick: Tick) -> Micros {
    tick.0 - EPOCH.0
}

const UNITS: [(&str, Micros); 5] =
    [("ms", MILLISECOND), ("s", SECOND), ("m", MINUTE), ("h", HOUR), ("d", DAY)];

/// Reads `90s`, `1h30m`, `250ms`, `2d` or `0`.
///
/// # Errors
///
/// A sentence that says what a duration looks like.
pub fn parse_duration(text: &str) -> Result<Micros, String> {
    let bad = || format!("{text:?} is not a duration; write e.g. 250ms, 90s, 10m, 1h30m or 2d");
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(0);
    }
    let mut total: Micros = 0;
    let mut smallest = Micros::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (number, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let scale = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?.1;
        if scale >= smallest {
            return Err(bad()); // 5m1h, 1m1m
        }
        smallest = scale;
        let number: Micros = number.parse().map_err(|_| bad())?;
        total =
            number.checked_mul(scale).and_then(|part| total.checked_add(part)).ok_or_else(bad)?;
        rest = tail;
    }
    if smallest == Micros::MAX { Err(bad()) } else { Ok(total) }
}

/// Writes a duration for people: the two largest units that matter.
#[must_use]
pub fn show_duration(micros: Micros) -> String {
    match micros {
        ..0 => format!("-{}", show_duration(-micros)),
        0 => "0s".to_owned(),
        1..MILLISECOND => format!("{micros}us"),
        MILLISECOND..SECOND => format!("{}ms", micros / MILLISECOND),
        SECOND..10_000_000 => {
            let tenths = micros / (SECOND / 10);
            if tenths % 10 == 0 {
                format!("{}s", tenths / 10)
            } else {
                format!("{}.{}s", tenths / 10, tenths % 10)
            }
        }
        10_000_000..MINUTE => format!("{}s", micros / SECOND),
        MINUTE..HOUR => two(micros, (MINUTE, "m"), (SECOND, "s")),
        HOUR..DAY => two(micros, (HOUR, "h"), (MINUTE, "m")),
        DAY.. => two(micros, (DAY, "d"), (HOUR, "h")),
    }
}

fn two(micros: Micros, big: (Micros, &str), small: (Micros, &str)) -> String {
    let (whole, part) = (micros / big.0, micros % big.0 / small.0);
    if part == 0 {
        format!("{whole}{}", big.1)
    } else {
        format!("{whole}{}{part:02}{}", big.1, small.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        let table = [
            ("0", 0),
            ("0s", 0),
            ("250ms", 250 * MILLISECOND),
            ("90s", 90 * SECOND),
            ("1h30m", 90 * MINUTE),
            ("2d12h", 60 * HOUR),
            (" 5m ", 5 * MINUTE),
        ];
        for (text, micros) in table {
            assert_eq!(parse_duration(text), Ok(micros), "{text}");
        }
        for text in ["", "5", "m", "5 m", "-5s", "5x", "1m1h", "1m1m", "1.5h", "99999999999999d"] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains("write e.g."), "{text}: {error}");
        }
    }

    #[test]
    fn durations_are_shown_in_two_units() {
        let table = [
            (0, "0s"),
            (7, "7us"),
            (12_345, "12ms"),
            (SECOND, "1s"),
            (4_250_000, "4.2s"),
            (59 * SECOND, "59s"),
            (MINUTE, "1m"),
            (754 * SECOND, "12m34s"),
            (65 * MINUTE, "1h05m"),
            (DAY + 2 * HOUR, "1d02h"),
            (-MINUTE, "-1m"),
        ];
        for (micros, text) in table {
            assert_eq!(show_duration(micros), text);
        }
    }
}
