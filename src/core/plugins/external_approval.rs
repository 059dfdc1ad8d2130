//! ExternalApproval: a placement waits until somebody outside approves of it.
//!
//! An opt-in Permit plugin of Muster's own. Either a condition of the pod decides
//! (`True` approves, `False` denies), or a server that is asked by POST. The pod keeps its
//! room while it waits; the deadline is the plugin's. A wait belongs to one attempt
//! of one pod: a gang whose members each have an attempt is held as a whole because
//! none of its members is bound before all of them have passed Permit.
//!
//! Must never ask faster than `retryAfterSeconds`, or more than one question at a time:
//! a server that fails or is silent is asked again until the deadline, and no longer.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::names;
use crate::framework::{
    Actions, Args, Held, Permit, PermitResult, Placed, Plugin, Registration, RegistryError,
    Resource, Status,
};
use crate::io::{Post, Request};
use crate::model::is_qualified_name;

/// The condition that decides if the arguments name none.
const DEFAULT_CONDITION: &str = "muster.dev/Approved";
/// Upstream's cap on waits at Permit.
const MAX_TIMEOUT: i64 = 15 * 60;
/// Longest that one answer may take.
const MAX_REQUEST_TIMEOUT: i64 = 60;
/// Longest pause between two questions.
const MAX_PAUSE: i64 = 600;

/// Arguments, as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Written {
    condition_type: Option<String>,
    url: Option<String>,
    ca_file: Option<String>,
    timeout_seconds: i64,
    request_timeout_seconds: i64,
    retry_after_seconds: i64,
}

impl Default for Written {
    fn default() -> Self {
        Self {
            condition_type: None,
            url: None,
            ca_file: None,
            timeout_seconds: 300,
            request_timeout_seconds: 5,
            retry_after_seconds: 10,
        }
    }
}

/// Who decides.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Judge {
    Condition(String),
    Server { url: Arc<str>, ca_file: Option<Arc<str>>, timeout_seconds: u32 },
}

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalApproval {
    judge: Judge,
    timeout_seconds: i64,
    retry_after_seconds: i64,
}

/// What a server is asked.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    pod: QuestionPod<'a>,
    node: &'a str,
    scheduler_name: &'a str,
}

#[derive(Serialize)]
struct QuestionPod<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
}

/// What a server answers. Without `allowed` it has not decided yet.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    allowed: Option<bool>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    retry_after_seconds: Option<i64>,
}

impl ExternalApproval {
    /// Reads and checks the arguments.
    ///
    /// # Errors
    ///
    /// If they are wrong: the error names the field.
    pub fn new(args: &Args<'_>) -> Result<Self, RegistryError> {
        let written: Written = args.parse()?;
        let range = |field: &str, value: i64, most: i64| {
            if (1..=most).contains(&value) {
                return Ok(value);
            }
            Err(args.invalid(field, value, format!("not in valid range [1, {most}]")))
        };
        let timeout = range("args.timeoutSeconds", written.timeout_seconds, MAX_TIMEOUT)?;
        let retry = range("args.retryAfterSeconds", written.retry_after_seconds, MAX_PAUSE)?;
        let field = "args.requestTimeoutSeconds";
        let request = range(field, written.request_timeout_seconds, MAX_REQUEST_TIMEOUT)?;
        let judge = match (written.url, written.condition_type) {
            (Some(url), Some(_)) => {
                let rule = "must not be set together with conditionType: either a condition \
                            decides or a server";
                return Err(args.invalid("args.url", url, rule));
            }
            (Some(url), None) => {
                check_url(args, &url)?;
                if let Some(file) = written.ca_file.as_ref().filter(|_| url.starts_with("http:")) {
                    let rule = "is of no use without TLS: give an https url";
                    return Err(args.invalid("args.caFile", file, rule));
                }
                Judge::Server {
                    url: url.into(),
                    ca_file: written.ca_file.map(Into::into),
                    timeout_seconds: u32::try_from(request).unwrap_or(u32::MAX),
                }
            }
            (None, condition) => {
                if let Some(file) = written.ca_file {
                    return Err(args.invalid("args.caFile", file, "is of no use without url"));
                }
                let kind = condition.unwrap_or_else(|| DEFAULT_CONDITION.to_owned());
                if !is_qualified_name(&kind) || kind == "PodScheduled" {
                    let rule = "must be a qualified name and not PodScheduled; write it as \
                                example.com/Approved";
                    return Err(args.invalid("args.conditionType", kind, rule));
                }
                Judge::Condition(kind)
            }
        };
        Ok(Self { judge, timeout_seconds: timeout, retry_after_seconds: retry })
    }

    /// What the pod's condition says.
    fn by_condition(kind: &str, placed: &Placed<'_>) -> Held {
        let condition = placed.pod.conditions.iter().find(|c| c.kind == kind);
        match condition.map(|c| (c, c.status.as_str())) {
            Some((_, "True")) => Held::Allow,
            Some((condition, "False")) => {
                let mut words = format!("not approved: condition {kind} is False");
                for part in [&condition.reason, &condition.message] {
                    if !part.is_empty() {
                        words = format!("{words}: {part}");
                    }
                }
                Held::Reject(Status::unschedulable(words))
            }
            _ => Held::Wait,
        }
    }

    fn question(&self, placed: &Placed<'_>) -> Option<Request> {
        let Judge::Server { url, ca_file, timeout_seconds } = &self.judge else {
            return None;
        };
        let key = &placed.pod.key;
        let question = Question {
            pod: QuestionPod { namespace: &key.namespace, name: &key.name, uid: &key.uid },
            node: &placed.node.info().name,
            scheduler_name: &placed.pod.scheduler_name,
        };
        Some(Request::Post(Arc::new(Post {
            url: Arc::clone(url),
            ca_file: ca_file.clone(),
            body: serde_json::to_string(&question).ok()?.into(),
            timeout_seconds: *timeout_seconds,
        })))
    }
}

/// Of a URL only so much is checked that a slip is found when the file is read.
fn check_url(args: &Args<'_>, url: &str) -> Result<(), RegistryError> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    let printable = url.bytes().all(|b| b.is_ascii_graphic());
    if host.is_empty() || host.starts_with(':') || host.contains('@') || !printable {
        let rule = "must be an http or https URL with a host and without credentials; write it \
                    as https://approvals.example.com/v1/pods";
        return Err(args.invalid("args.url", url, rule));
    }
    Ok(())
}

impl Plugin for ExternalApproval {
    fn name(&self) -> &'static str {
        names::EXTERNAL_APPROVAL
    }

    /// A pod that was denied, or waited in vain, is tried again when its conditions or
    /// labels change.
    fn events(&self) -> Vec<Registration> {
        let actions = Actions::UPDATE_POD_CONDITION | Actions::UPDATE_POD_LABEL;
        vec![Registration { resource: Resource::TargetPod, actions }]
    }

    fn as_permit(&self) -> Option<&dyn Permit> {
        Some(self)
    }
}

impl Permit for ExternalApproval {
    fn permit(&self, placed: &Placed<'_>) -> PermitResult {
        let seconds = self.timeout_seconds;
        if let Some(request) = self.question(placed) {
            return PermitResult::Ask { seconds, request };
        }
        match self.changed(placed) {
            Held::Allow => PermitResult::Allow,
            Held::Reject(status) => PermitResult::Reject(status),
            Held::Wait | Held::Ask { .. } => PermitResult::Wait { seconds },
        }
    }

    fn changed(&self, placed: &Placed<'_>) -> Held {
        match &self.judge {
            Judge::Condition(kind) => Self::by_condition(kind, placed),
            Judge::Server { .. } => Held::Wait,
        }
    }

    fn answered(&self, placed: &Placed<'_>, answer: Result<&str, &str>) -> Held {
        let Some(request) = self.question(placed) else {
            return Held::Wait;
        };
        let again = |pause: Option<i64>, why: String| Held::Ask {
            after_seconds: pause.unwrap_or(self.retry_after_seconds).clamp(1, MAX_PAUSE),
            request,
            why: why.into(),
        };
        let read = |text: &str| {
            serde_json::from_str::<Answer>(text).map_err(|error| format!("unreadable: {error}"))
        };
        let answer = match answer.map_err(str::to_owned).and_then(read) {
            Ok(answer) => answer,
            Err(error) => return again(None, format!("no answer: {error}")),
        };
        let message = answer.message.filter(|message| !message.is_empty());
        match answer.allowed {
            Some(true) => Held::Allow,
            Some(false) => {
                let words = message.map_or_else(
                    || "not approved".to_owned(),
                    |message| format!("not approved: {message}"),
                );
                Held::Reject(Status::unschedulable(words))
            }
            None => {
                let why = message.unwrap_or_else(|| "not decided yet".to_owned());
                again(answer.retry_after_seconds, why)
            }
        }
    }

    fn waits_for(&self) -> Option<String> {
        Some(match &self.judge {
            Judge::Condition(kind) => format!("condition {kind}"),
            Judge::Server { url, .. } => format!("an answer of {url}"),
        })
    }
}
