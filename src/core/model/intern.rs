//! Interned strings.

use std::sync::Arc;

use crate::hash::TextMap;

/// An interned string: equal symbols are equal strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sym(u32);

impl Sym {
    /// Its number.
    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    /// The symbol of a number that [`Sym::number`] gave.
    pub(crate) const fn of_number(number: u32) -> Self {
        Self(number)
    }
}

/// Interned strings, numbered in the order of first sight.
///
/// Holds names that recur: label keys and values of nodes, taints, images,
/// resource and namespace names. What differs from pod to pod (names, UIDs,
/// arbitrary labels) is never interned, so the table grows with the variety of
/// nodes, not with the number of pods that pass through.
#[derive(Clone, Default)]
pub struct Interner {
    names: Vec<Arc<str>>,
    index: TextMap<Arc<str>, Sym>,
}

impl Interner {
    /// The symbol of `text`, made if need be.
    pub fn intern(&mut self, text: &str) -> Sym {
        if let Some(&sym) = self.index.get(text) {
            return sym;
        }
        let sym = Sym(u32::try_from(self.names.len()).expect("fewer than 2^32 distinct names"));
        let name: Arc<str> = text.into();
        self.names.push(Arc::clone(&name));
        self.index.insert(name, sym);
        sym
    }

    /// The symbol of `text`, if it was ever interned.
    #[must_use]
    pub fn get(&self, text: &str) -> Option<Sym> {
        self.index.get(text).copied()
    }

    /// The text of `sym`.
    #[must_use]
    pub fn text(&self, sym: Sym) -> &Arc<str> {
        &self.names[sym.0 as usize]
    }
}
