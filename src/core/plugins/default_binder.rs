//! DefaultBinder: binds through the API's binding subresource.

use super::names;
use crate::framework::{Bind, Plugin, Registration};

/// Binds every pod; the write itself is the driver's ([`crate::io::Effect::Bind`]).
pub struct DefaultBinder;

impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        names::DEFAULT_BINDER
    }

    fn events(&self) -> Vec<Registration> {
        Vec::new()
    }

    fn as_bind(&self) -> Option<&dyn Bind> {
        Some(self)
    }
}

impl Bind for DefaultBinder {}
