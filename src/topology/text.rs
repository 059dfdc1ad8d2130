//! Text in pictures: how wide it is, what fits, what must be escaped.
//!
//! Widths are those of DejaVu Sans, one of the widest faces a viewer may choose: text
//! set in another one is narrower and overlaps nothing.

/// How wide a text is at a size, in pixels, rounded up.
pub(super) fn width(text: &str, size: i32) -> i32 {
    let milli: i32 = text.chars().map(milli_em).sum();
    (milli * size + 999) / 1000
}

fn milli_em(c: char) -> i32 {
    match c {
        'i' | 'j' | 'l' | '\'' => 280,
        ' ' | '.' | ',' | ':' | ';' | '/' | '|' | '!' => 340,
        'I' | 'f' | '-' | '(' | ')' | '[' | ']' => 390,
        't' | 'r' => 420,
        's' | 'c' | 'z' | 'v' | 'x' | 'y' | 'k' | '_' => 600,
        'a'..='h' | 'n'..='q' | 'u' | '0'..='9' => 640,
        'm' => 980,
        'w' | '>' | '<' | '+' | '=' => 840,
        'W' | 'M' | '@' | '%' | '…' => 1000,
        'A'..='Z' => 790,
        c if c.is_ascii() => 840,
        _ => 1000,
    }
}

/// The text, or as much of it as fits with an ellipsis in the middle: names differ
/// at both ends.
pub(super) fn fit(text: &str, size: i32, room: i32) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let chars: Vec<char> = text.chars().collect();
    for kept in (1..chars.len()).rev() {
        let (front, back) = (kept.div_ceil(2), kept / 2);
        let mut short: String = chars[..front].iter().collect();
        short.push('…');
        short.extend(&chars[chars.len() - back..]);
        if width(&short, size) <= room {
            return short;
        }
    }
    String::new()
}

/// The text as XML has it.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML has no way to write them.
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(fit("rack-7", 10, 100), "rack-7");
        let short = fit("datacenter-west-hall-3-row-12-rack-7", 10, 100);
        assert!(short.starts_with("dat") && short.ends_with("k-7"), "{short}");
        assert!(width(&short, 10) <= 100);
        assert_eq!(fit("rack-7", 10, 3), "");
    }

    #[test]
    fn no_name_can_end_the_text() {
        assert_eq!(escape("a<b>&\"\u{1}"), "a&lt;b&gt;&amp;&quot;\u{fffd}");
    }
}
