//! How many members there are, and how many are missing.

use super::GangSpec;

/// A number of members, and how many of each role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All, whatever their role.
    pub all: usize,
    /// By role.
    pub roles: Vec<usize>,
}

impl Count {
    /// Nobody yet.
    #[must_use]
    pub fn none(spec: &GangSpec) -> Self {
        Self { all: 0, roles: vec![0; spec.roles.len()] }
    }

    /// One more.
    pub fn add(&mut self, role: Option<usize>) {
        self.all += 1;
        if let Some(count) = role.and_then(|role| self.roles.get_mut(role)) {
            *count += 1;
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let roles = self.roles.iter().zip(&other.roles).map(|(a, b)| a + b).collect();
        Self { all: self.all + other.all, roles }
    }

    /// These without the others.
    #[must_use]
    pub fn minus(&self, others: &Self) -> Self {
        let roles = self.roles.iter().zip(&others.roles).map(|(a, b)| a.saturating_sub(*b));
        Self { all: self.all.saturating_sub(others.all), roles: roles.collect() }
    }

    /// Whether these are enough.
    #[must_use]
    pub fn suffices(&self, spec: &GangSpec) -> bool {
        self.all >= spec.min && self.short_role(spec).is_none()
    }

    /// The first role of which there are not enough.
    #[must_use]
    pub fn short_role(&self, spec: &GangSpec) -> Option<usize> {
        spec.roles.iter().zip(&self.roles).position(|(role, count)| *count < role.min)
    }

    /// "3 of 8 members exist (role worker: 2 of 7)".
    #[must_use]
    pub fn share(&self, spec: &GangSpec, what: &str) -> String {
        let mut text = format!("{} of {} members {what}", self.all, spec.min);
        if let Some(short) = self.short_role(spec) {
            let role = &spec.roles[short];
            text += &format!(" (role {}: {} of {})", role.name, self.roles[short], role.min);
        }
        text
    }
}
