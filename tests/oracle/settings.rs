//! What the environment says of a run against upstream's own code.

use std::env;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

/// The seed of a run: the one that is asked for, or a new one.
pub(crate) fn seed() -> Result<u64> {
    if let Some(seed) = number("MUSTER_ORACLE_SEED")? {
        return Ok(seed);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(now.as_secs() ^ u64::from(now.subsec_nanos()) << 20)
}

/// A number in the environment.
pub(crate) fn number<T: FromStr>(name: &str) -> Result<Option<T>> {
    match env::var(name) {
        Err(_) => Ok(None),
        Ok(text) => match text.replace('_', "").parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => bail!("{name}={text} is not a number"),
        },
    }
}
