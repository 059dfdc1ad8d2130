//! apimachinery's rules for label keys and values, with its words.

const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and \
                    end with an alphanumeric character";
const NAME_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                         characters, '-' or '.', and must start and end with an alphanumeric \
                         character (e.g. 'example.com', regex used for validation is \
                         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn name_rule() -> String {
    format!(
        "{NAME} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '{NAME_FORMAT}')"
    )
}

/// What is wrong with a label key; empty if nothing.
#[must_use]
pub fn label_key_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > 253 {
                    errors.push("prefix part must be no more than 253 bytes".to_owned());
                }
                if !is_dns_subdomain(prefix) {
                    errors.push(format!("prefix part {SUBDOMAIN}"));
                }
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')",
                name_rule()
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name(name) {
        errors.push(format!("name part {}", name_rule()));
    }
    errors
}

/// What is wrong with a label value; empty if nothing.
#[must_use]
pub fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  \
             or 'my_value',  or '12345', regex used for validation is '({NAME_FORMAT})?')"
        ));
    }
    errors
}

/// `IsQualifiedName`.
pub(crate) fn is_qualified_name(key: &str) -> bool {
    label_key_errors(key).is_empty()
}

/// The same of a key with something put before its prefix: labels that end with a
/// dot. Asked of every pod, so nothing is put together for it.
pub(crate) fn is_qualified_under(before: &str, key: &str) -> bool {
    key.split_once('/').is_some_and(|(prefix, name)| {
        before.len() + prefix.len() <= 253
            && is_dns_subdomain(prefix)
            && name.len() <= 63
            && is_name(name)
    })
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_dns_subdomain(text: &str) -> bool {
    let lower = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.split('.').all(|label| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(lower)
            && bytes.last().is_some_and(lower)
            && bytes.iter().all(|b| lower(b) || *b == b'-')
    })
}
