//! Taints and tolerations.

use muster_api::k8s;

use super::{Interner, Sym};

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Keeps pods away.
    NoSchedule,
    /// Keeps pods away if it can.
    PreferNoSchedule,
    /// Keeps pods away and evicts.
    NoExecute,
    /// Not known to us: never matched by a filter or a score.
    Other(Sym),
}

impl Effect {
    pub(crate) fn parse(text: &str, syms: &mut Interner) -> Self {
        match text {
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            other => Self::Other(syms.intern(other)),
        }
    }

    fn as_str(self, syms: &Interner) -> &str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
            Self::Other(sym) => syms.text(sym),
        }
    }
}

/// An interned taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// Key.
    pub key: Sym,
    /// Value.
    pub value: Sym,
    /// Effect.
    pub effect: Effect,
}

impl Taint {
    pub(crate) fn of(wire: &k8s::Taint, syms: &mut Interner) -> Self {
        Self {
            key: syms.intern(&wire.key),
            value: syms.intern(&wire.value),
            effect: Effect::parse(&wire.effect, syms),
        }
    }

    /// Whether any of `tolerations` tolerates this taint.
    #[must_use]
    pub fn tolerated_by(&self, tolerations: &[k8s::Toleration], syms: &Interner) -> bool {
        let (key, value, effect) =
            (syms.text(self.key), syms.text(self.value), self.effect.as_str(syms));
        tolerations.iter().any(|t| tolerates(t, key, value, effect))
    }
}

/// Upstream's `ToleratesTaint` with the alpha operators off.
#[must_use]
pub fn tolerates(toleration: &k8s::Toleration, key: &str, value: &str, effect: &str) -> bool {
    if !toleration.effect.is_empty() && toleration.effect != effect {
        return false;
    }
    if !toleration.key.is_empty() && toleration.key != key {
        return false;
    }
    match toleration.operator.as_str() {
        "" | "Equal" => toleration.value == value,
        "Exists" => true,
        _ => false,
    }
}
