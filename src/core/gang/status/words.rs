//! What the status says to people: who, how many, why.

use muster_api::muster::{MAX_MESSAGE, MemberCounts, PodGroupSpec};

use super::Lost;
use super::count::Tally;
use super::member::{Member, cut};

/// Most members or nodes that a message names.
const NAMED: usize = 3;

/// "3 of 8 members exist (role worker: 2 of 7)".
pub(super) fn share(
    spec: &PodGroupSpec,
    tally: &Tally<'_>,
    of: impl Fn(&MemberCounts) -> i32 + Copy,
    what: &str,
) -> String {
    let mut text = format!("{} of {} members {what}", of(&tally.all), spec.min_member());
    if let Some(short) = tally.short_role(of) {
        let role = &spec.roles[short];
        text +=
            &format!(" (role {}: {} of {})", role.name, of(&tally.roles[short]), role.min_member);
    }
    text
}

/// Which nodes are lost, and who was there.
pub(super) fn lost(lost: &[(&Member, Lost)]) -> String {
    let mut nodes: Vec<(&str, Lost, Vec<&str>)> = Vec::new();
    for (member, why) in lost {
        match nodes.iter_mut().find(|(node, ..)| *node == &*member.node) {
            Some((.., names)) => names.push(&member.name),
            None => nodes.push((&member.node, *why, vec![&*member.name])),
        }
    }
    let mut parts: Vec<String> = nodes
        .iter()
        .take(NAMED)
        .map(|(node, why, names)| format!("node {node} {why}: lost {}", list(names)))
        .collect();
    if nodes.len() > NAMED {
        parts.push(format!("and {} more nodes", nodes.len() - NAMED));
    }
    bounded(&parts.join("; "))
}

/// Which members have failed, and of what.
pub(super) fn failed(members: &[&Member]) -> String {
    let parts: Vec<String> = members.iter().take(NAMED).map(|m| trouble(m, "failed")).collect();
    let more = members.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", parts.join("; "))
}

/// Who does not run, and what keeps them. Those who say so come first.
pub(super) fn unstarted(tally: &Tally<'_>) -> String {
    let mut members: Vec<&Member> = tally.unstarted.clone();
    members.sort_by_key(|m| m.trouble.as_ref().is_none_or(|t| t.message.is_empty()));
    let mut parts: Vec<String> =
        members.iter().take(NAMED).map(|m| trouble(m, "does not run")).collect();
    let room = NAMED.saturating_sub(parts.len());
    parts.extend(tally.failed.iter().take(room).map(|m| trouble(m, "failed")));
    let more = (members.len() + tally.failed.len()).saturating_sub(parts.len());
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", parts.join("; "))
}

/// "member train-3 does not run: ImagePullBackOff: …".
fn trouble(member: &Member, what: &str) -> String {
    let name = &member.name;
    let place =
        if member.node.is_empty() { String::new() } else { format!(" on node {}", member.node) };
    match &member.trouble {
        Some(trouble) => format!("member {name}{place} {what}: {trouble}"),
        None => format!("member {name}{place} {what}"),
    }
}

fn list(names: &[&str]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A message of bounded length.
pub(super) fn bounded(text: &str) -> String {
    if text.len() <= MAX_MESSAGE {
        return text.to_owned();
    }
    format!("{}…", cut(text, MAX_MESSAGE - '…'.len_utf8()))
}
