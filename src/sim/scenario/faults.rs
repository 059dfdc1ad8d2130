//! The `faults` section: what goes wrong, how often, and until when.

use super::ScenarioError;
use super::cursor::{Cursor, Fields};
use crate::limits::MAX_EVENTS;
use crate::time::{Micros, SECOND};

/// A fault that is drawn each time there is an opportunity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Fault {
    /// A call: 409 without a write.
    Conflict,
    /// A call: 429 without `Retry-After`.
    Throttle,
    /// A call: 429 with `Retry-After`.
    ThrottleRetryAfter,
    /// A call: 500; written half of the times.
    ServerError,
    /// A call: 503 with `Retry-After`, not written.
    Unavailable,
    /// A call that never arrives; the client waits to its deadline.
    LostCall,
    /// A call that is carried out, and whose answer never arrives.
    LostAnswer,
    /// A call that takes seconds.
    SlowCall,
    /// A watch is cut; what was on its way is lost, and asked for again.
    CutStream,
    /// A watch event, and those behind it, take seconds.
    SlowWatch,
    /// A watch that is asked for again from a version that is compacted: 410, and a list.
    Expired,
    /// A list served from an older revision.
    StaleList,
    /// The process dies between two effects.
    KillBetweenEffects,
    /// A kubelet refuses a pod that was bound to it.
    KubeletRefuses,
    /// A running pod fails.
    PodFails,
    /// A version of an object that cannot be decoded.
    Malformed,
    /// A renewal of the lease that does not arrive.
    LostRenewal,
    /// An eviction that a budget refuses, because somebody else's came first.
    BudgetSpent,
}

impl Fault {
    /// All of them, in order.
    pub const ALL: [Self; 18] = [
        Self::Conflict,
        Self::Throttle,
        Self::ThrottleRetryAfter,
        Self::ServerError,
        Self::Unavailable,
        Self::LostCall,
        Self::LostAnswer,
        Self::SlowCall,
        Self::CutStream,
        Self::SlowWatch,
        Self::Expired,
        Self::StaleList,
        Self::KillBetweenEffects,
        Self::KubeletRefuses,
        Self::PodFails,
        Self::Malformed,
        Self::LostRenewal,
        Self::BudgetSpent,
    ];

    /// As a scenario names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Throttle => "throttle",
            Self::ThrottleRetryAfter => "throttleRetryAfter",
            Self::ServerError => "serverError",
            Self::Unavailable => "unavailable",
            Self::LostCall => "lostCall",
            Self::LostAnswer => "lostAnswer",
            Self::SlowCall => "slowCall",
            Self::CutStream => "cutStream",
            Self::SlowWatch => "slowWatch",
            Self::Expired => "expired",
            Self::StaleList => "staleList",
            Self::KillBetweenEffects => "killBetweenEffects",
            Self::KubeletRefuses => "kubeletRefuses",
            Self::PodFails => "podFails",
            Self::Malformed => "malformed",
            Self::LostRenewal => "lostRenewal",
            Self::BudgetSpent => "budgetSpent",
        }
    }
}

/// A fault at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// A scheduler process dies; a new one with empty memory starts later.
    Kill {
        /// Which replica.
        replica: u8,
        /// How long until the new one starts.
        back: Micros,
    },
    /// A scheduler process stands still, and then goes on as if nothing had happened.
    Freeze {
        /// Which replica.
        replica: u8,
        /// How long.
        span: Micros,
    },
    /// The API server is away: all streams are cut, calls find nobody.
    RestartServer {
        /// How long.
        span: Micros,
    },
    /// The clock of a scheduler process jumps ahead.
    ClockJump {
        /// Which replica.
        replica: u8,
        /// How far.
        by: Micros,
    },
    /// All versions so far are compacted, all streams of a replica are cut.
    Compact {
        /// Which replica.
        replica: u8,
    },
}

impl Blow {
    /// As a scenario names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        BLOWS[self.index()]
    }

    /// Position in [`BLOWS`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Kill { .. } => 0,
            Self::Freeze { .. } => 1,
            Self::RestartServer { .. } => 2,
            Self::ClockJump { .. } => 3,
            Self::Compact { .. } => 4,
        }
    }
}

/// Names of all faults that happen at a given time.
pub const BLOWS: [&str; 5] = ["kill", "freeze", "restartServer", "clockJump", "compact"];

/// Everything that goes wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// When all of it stops.
    pub until: Micros,
    /// How often, in a thousand opportunities, by [`Fault`].
    pub per_mille: [u16; Fault::ALL.len()],
    /// What happens at a given time, in order.
    pub blows: Vec<(Micros, Blow)>,
}

impl FaultPlan {
    /// How often, in a thousand opportunities.
    #[must_use]
    pub const fn rate(&self, fault: Fault) -> u16 {
        self.per_mille[fault as usize]
    }

    /// Whether anything goes wrong at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blows.is_empty() && self.per_mille.iter().all(|rate| *rate == 0)
    }

    /// Whether a process may end, or be taken for ended.
    #[must_use]
    pub fn kills(&self) -> bool {
        self.rate(Fault::KillBetweenEffects) > 0
            || self.blows.iter().any(|(_, b)| matches!(b, Blow::Kill { .. } | Blow::Freeze { .. }))
    }

    pub(super) fn decode(at: &Cursor<'_>, replicas: u8) -> Result<Self, ScenarioError> {
        let fields = at.fields(&["until", "perMille", "events"])?;
        let until = fields.need("until", "when all faults stop, e.g. 2m")?.duration(SECOND)?;
        let mut plan = Self { until, ..Self::default() };
        if let Some(rates) = fields.get("perMille") {
            let known = Fault::ALL.map(Fault::name);
            let rates = rates.fields(&known)?;
            for fault in Fault::ALL {
                if let Some(rate) = rates.get(fault.name()) {
                    let rate = rate.int(0, 1000)?;
                    plan.per_mille[fault as usize] = u16::try_from(rate).unwrap_or(0);
                }
            }
        }
        if let Some(events) = fields.get("events") {
            for event in events.list(MAX_EVENTS)? {
                plan.blows.push(decode_blow(&event, replicas)?);
            }
            plan.blows.sort_by_key(|(at, _)| *at); // stable
        }
        Ok(plan)
    }
}

fn decode_blow(at: &Cursor<'_>, replicas: u8) -> Result<(Micros, Blow), ScenarioError> {
    let fields = at.fields(&[
        "at",
        "kill",
        "back",
        "freeze",
        "for",
        "restartServer",
        "clockJump",
        "by",
        "compact",
    ])?;
    let when = fields.need("at", "when it happens, e.g. 30s")?.duration(0)?;
    let mut named = BLOWS.iter().filter(|name| fields.get(name).is_some());
    let (Some(name), None) = (named.next(), named.next()) else {
        return Err(at.error(format!("name exactly one of {}", BLOWS.join(", "))));
    };
    let replica = |fields: &Fields<'_>| -> Result<u8, ScenarioError> {
        let most = i64::from(replicas.max(1)) - 1;
        let number = fields.need(name, "")?.int(0, most)?;
        Ok(u8::try_from(number).unwrap_or(0))
    };
    let blow = match *name {
        "kill" => {
            let back = fields.need("back", "when a new process starts, e.g. 3s")?.duration(0)?;
            Blow::Kill { replica: replica(&fields)?, back }
        }
        "freeze" => {
            let span = fields.need("for", "how long, e.g. 20s")?.duration(0)?;
            Blow::Freeze { replica: replica(&fields)?, span }
        }
        "restartServer" => Blow::RestartServer { span: fields.need(name, "")?.duration(0)? },
        "clockJump" => {
            let by = fields.need("by", "how far ahead, e.g. 1h")?.duration(0)?;
            Blow::ClockJump { replica: replica(&fields)?, by }
        }
        _ => Blow::Compact { replica: replica(&fields)? },
    };
    Ok((when, blow))
}
