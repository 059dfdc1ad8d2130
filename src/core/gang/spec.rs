//! What a gang asks for, whatever API it comes from.

use muster_api::k8s::{CoschedulingPodGroup, NativePodGroup, ObjectMeta};
use muster_api::muster::{HalfBound, MAX_MEMBERS, PodGroup, Reservation, condition, labels};

use super::Wish;
use crate::io::{Object, Tick};
use crate::model::{LabelSet, Selector};
use crate::policy::GangTerms;

/// How long room may be held before the minimum is bound, if nothing else is said.
const TIMEOUT_SECONDS: i64 = 300;

/// What a gang asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangSpec {
    /// Members that must be placed together.
    pub min: usize,
    /// Each pod goes alone: the group is no gang.
    pub alone: bool,
    /// Kinds of members with minimums of their own.
    pub roles: Vec<GangRole>,
    /// Where its members shall be, relative to each other.
    pub topology: Option<Wish>,
    /// How long room may be held before the minimum is bound.
    pub timeout_seconds: i64,
    /// How long it may be passed over before room is kept for it.
    pub starvation_seconds: Option<i64>,
    /// Keep what was found while there is not enough.
    pub accumulate: bool,
    /// Let the bound members go if the rest cannot be bound in time.
    pub release: bool,
    /// Its own priority.
    pub priority: Option<i32>,
    /// The class that its priority comes from.
    pub class: Option<Box<str>>,
    /// Created.
    pub created: Tick,
    /// Incarnation.
    pub uid: Box<str>,
    /// Its status says that the minimum was bound once.
    pub was_bound: bool,
    /// What it leaves to policies.
    left: Left,
}

/// What a group leaves to policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    timeout: bool,
    starvation: bool,
    release: bool,
    topology: bool,
}

/// A kind of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangRole {
    /// Name.
    pub name: Box<str>,
    /// Members of it that must be placed together with the rest.
    pub min: usize,
    /// Where members of it shall be, relative to each other.
    pub topology: Option<Wish>,
    selector: Selector,
}

fn amount(number: i32) -> usize {
    usize::try_from(number.clamp(0, MAX_MEMBERS)).unwrap_or(0)
}

impl GangSpec {
    /// What a pod group asks for; none of another kind of object.
    #[must_use]
    pub fn of(object: &Object) -> Option<Self> {
        match object {
            Object::PodGroup(group) => Some(Self::muster(group)),
            Object::NativePodGroup(group) => Some(Self::native(group)),
            Object::CoschedulingPodGroup(group) => Some(Self::coscheduling(group)),
            _ => None,
        }
    }

    fn plain(meta: &ObjectMeta, min: i32) -> Self {
        Self {
            min: amount(min).max(1),
            alone: false,
            roles: Vec::new(),
            topology: None,
            timeout_seconds: TIMEOUT_SECONDS,
            starvation_seconds: None,
            accumulate: false,
            release: true,
            priority: None,
            class: None,
            created: Tick(meta.creation_timestamp.unwrap_or_default().0),
            uid: meta.uid.as_str().into(),
            was_bound: false,
            left: Left { timeout: true, starvation: true, release: true, topology: true },
        }
    }

    fn muster(group: &PodGroup) -> Self {
        let spec = &group.spec;
        let roles = spec.roles.iter().map(|role| GangRole {
            name: role.name.as_str().into(),
            min: amount(role.min_member),
            topology: Wish::of(role.topology.as_ref()),
            // A selector that makes no sense selects nothing.
            selector: Selector::compile(Some(&role.selector))
                .unwrap_or_else(|_| Selector::nothing()),
        });
        let plain = Self::plain(&group.metadata, spec.min_member());
        Self {
            roles: roles.collect(),
            topology: Wish::of(spec.topology.as_ref()),
            timeout_seconds: spec.schedule_timeout_seconds.map_or(TIMEOUT_SECONDS, i64::from),
            starvation_seconds: spec.starvation_seconds.map(i64::from),
            accumulate: spec.reservation == Reservation::Accumulate,
            release: spec.when_half_bound.unwrap_or_default() == HalfBound::Release,
            class: spec.priority_class_name.as_deref().map(Into::into),
            was_bound: group.status.scheduled_time.is_some()
                || group.status.is_true(condition::SCHEDULED),
            left: Left {
                timeout: spec.schedule_timeout_seconds.is_none(),
                starvation: spec.starvation_seconds.is_none(),
                release: spec.when_half_bound.is_none(),
                topology: spec.topology.is_none(),
            },
            ..plain
        }
    }

    fn native(group: &NativePodGroup) -> Self {
        let (spec, kind) = (&group.spec, NativePodGroup::INITIALLY_SCHEDULED);
        let gang = spec.scheduling_policy.gang.as_ref();
        let class = spec.priority_class_name.as_str();
        let was_bound = group.status.conditions.iter().any(|c| c.kind == kind && c.is_true());
        let topology = spec.scheduling_constraints.topology.first();
        let topology = Wish::of_label(topology.map(|t| t.key.as_str()));
        let plain = Self::plain(&group.metadata, gang.map_or(1, |gang| gang.min_count));
        Self {
            alone: gang.is_none(),
            left: Left { topology: topology.is_none(), ..plain.left },
            topology,
            priority: spec.priority,
            class: (!class.is_empty()).then(|| class.into()),
            was_bound,
            ..plain
        }
    }

    fn coscheduling(group: &CoschedulingPodGroup) -> Self {
        let spec = &group.spec;
        let timeout = spec.schedule_timeout_seconds.filter(|seconds| *seconds > 0);
        let plain = Self::plain(&group.metadata, spec.min_member);
        Self {
            timeout_seconds: timeout.map_or(TIMEOUT_SECONDS, i64::from),
            was_bound: matches!(group.status.phase.as_str(), "Scheduled" | "Running" | "Finished"),
            left: Left { timeout: timeout.is_none(), ..plain.left },
            ..plain
        }
    }

    /// The same under what policies say, where the group leaves it out.
    #[must_use]
    pub fn under(mut self, terms: &GangTerms) -> Self {
        if self.left.timeout {
            self.timeout_seconds = terms.timeout_seconds.unwrap_or(TIMEOUT_SECONDS);
        }
        if self.left.starvation {
            self.starvation_seconds = terms.starvation_seconds;
        }
        if self.left.release {
            self.release = terms.release.unwrap_or(true);
        }
        if self.left.topology {
            self.topology = Wish::of(terms.topology.as_deref());
        }
        self
    }

    /// Which role a member with these labels has.
    #[must_use]
    pub fn role_of(&self, labels: &LabelSet) -> Option<usize> {
        self.roles.iter().position(|role| role.selector.matches(labels))
    }

    /// Whether it matters where members are, relative to each other.
    #[must_use]
    pub fn has_topology(&self) -> bool {
        self.topology.is_some() || self.roles.iter().any(|role| role.topology.is_some())
    }

    /// What is asked of members relative to each other: by all of them, and by those of a
    /// role.
    pub fn wishes(&self) -> impl Iterator<Item = (Option<usize>, &Wish)> {
        let roles = self.roles.iter().enumerate();
        let roles = roles.filter_map(|(i, role)| Some((Some(i), role.topology.as_ref()?)));
        self.topology.as_ref().map(|wish| (None, wish)).into_iter().chain(roles)
    }

    /// The same, as far as it concerns a member of this role.
    pub fn wishes_on(&self, role: Option<usize>) -> impl Iterator<Item = (Option<usize>, &Wish)> {
        self.wishes().filter(move |(of, _)| of.is_none() || *of == role)
    }

    /// Whether it wants a domain for itself, or does for a role.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.wishes().any(|(_, wish)| wish.exclusive)
    }

    /// Whether members of consecutive ranks are kept together.
    #[must_use]
    pub fn has_segments(&self) -> bool {
        self.wishes().any(|(_, wish)| !wish.segments.is_empty())
    }

    /// The pod label that holds the rank of members of a role.
    #[must_use]
    pub fn rank_label(&self, role: Option<usize>) -> &str {
        let own = role.and_then(|role| self.roles.get(role)?.topology.as_ref());
        own.or(self.topology.as_ref()).map_or(labels::DEFAULT_RANK, Wish::rank_label)
    }

    /// Whether this asks for the same as before; what is known of its past aside.
    #[must_use]
    pub fn asks_as(&self, before: &Self) -> bool {
        let was_bound = before.was_bound;
        *before == Self { was_bound, ..self.clone() }
    }
}
