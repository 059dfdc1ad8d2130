//! The order in which people count: rack-2 before rack-10.

use std::cmp::Ordering;

/// Compares names, with numbers in them by their value. Names that differ only in
/// leading zeros are told apart by their text, so the order is total.
#[must_use]
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    while let (Some(x), Some(y)) = (left.first(), right.first()) {
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let (n, m) = (number(&mut left), number(&mut right));
            // More digits without leading zeros is more.
            n.len().cmp(&m.len()).then_with(|| n.cmp(m))
        } else {
            (left, right) = (&left[1..], &right[1..]);
            x.cmp(y)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// Takes the digits at the front, without leading zeros.
fn number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|c| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    let zeros = digits.iter().take_while(|c| **c == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_compared_by_value() {
        let mut names = ["rack-10", "rack-2", "rack-1", "rack", "a-2-10", "a-2-9", "rack-02", "b"];
        names.sort_by(|a, b| natural(a, b));
        let expected = ["a-2-9", "a-2-10", "b", "rack", "rack-1", "rack-02", "rack-2", "rack-10"];
        assert_eq!(names, expected);
    }
}
