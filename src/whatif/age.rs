//! Ages as kubectl prints them.

/// `45s`, `3m20s`, `12m`, `5h30m`, `30h`, `3d4h`, `12d`: two units at most, fewer the older.
#[must_use]
pub fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |a: i64, unit: &str, b: i64, part: &str| match b {
        0 => format!("{a}{unit}"),
        b => format!("{a}{unit}{b}{part}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        _ => two(days / 365, "y", days % 365, "d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_kubectl_prints_them() {
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (600, "10m"),
            (10_799, "179m"),
            (19_800, "5h30m"),
            (108_000, "30h"),
            (273_600, "3d4h"),
            (1_036_800, "12d"),
            (63_072_000, "2y"),
            (65_000_000, "2y22d"),
        ] {
            assert_eq!(age(seconds), text, "{seconds}");
        }
    }
}
