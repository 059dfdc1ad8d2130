//! Who holds which node: the picture of the busiest moment.
//!
//! Which of a node's GPUs a pod holds is the kubelet's to say; here a pod gets the
//! lowest free places, so that the picture is stable.

use std::collections::BTreeMap;

use muster_core::io::Tick;

use super::chart::{NOTHING, bar, spark, sparkline};
use super::summary::Summary;
use super::usage;
use super::words;
use crate::record::{NodeRecord, PodRecord, Record};
use crate::time::{EPOCH, show_duration, since_epoch};

/// Up to so many nodes have a line each; more are drawn as a field.
const MAX_LINES: usize = 32;
/// Nodes per line of the field.
const FIELD_WIDTH: usize = 60;
/// Lines of the field.
const MAX_FIELD_LINES: usize = 40;
/// Up to so many GPUs of a node are drawn one by one.
const MAX_PLACES: i64 = 16;
/// Parts of the run in a node's line.
const LINE_BUCKETS: usize = 36;
/// Names for workloads; what has none is drawn as `#`.
const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The map of GPUs in use, or of CPUs if there is no GPU.
pub(crate) fn draw(summary: &Summary<'_>) -> Vec<String> {
    let record = &summary.outcome.record;
    let gpus = summary.gpu.offered > 0;
    let at = busiest(record, gpus, summary.outcome.end).max(EPOCH);
    let what = if gpus { "GPUs" } else { "CPUs" };
    let when = show_duration(since_epoch(at));
    let mut lines = vec![format!("{what} in use by node at {when}, the busiest moment")];
    let view = View { record, at, end: summary.outcome.end, gpus, pods: by_node(record) };
    let nodes: Vec<usize> =
        (0..record.nodes.len()).filter(|i| view.offer(&record.nodes[*i]) > 0).collect();
    if nodes.len() > MAX_LINES {
        lines.extend(view.field(&nodes));
        return lines;
    }
    let letters = letters(summary);
    let rows: Vec<Vec<String>> = nodes.iter().map(|node| view.line(*node, &letters)).collect();
    let mut heading = vec![String::new(), String::new(), String::new()];
    heading.push(format!("from 0s to {}", show_duration(since_epoch(view.end))));
    heading.push(String::new());
    let table: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
    let right = [false, false, true, false, false];
    lines.extend(words::columns(&table, &right).into_iter().map(|line| format!("  {line}")));
    if gpus {
        let legend: Vec<String> = letters
            .iter()
            .map(|(workload, letter)| {
                format!("{letter} {}", summary.scenario.workloads[*workload as usize].name)
            })
            .collect();
        lines.extend(
            words::wrap(&legend.join(" · "), 88).into_iter().map(|line| format!("  {line}")),
        );
    }
    lines
}

struct View<'a> {
    record: &'a Record,
    at: Tick,
    end: Tick,
    gpus: bool,
    pods: BTreeMap<u32, Vec<&'a PodRecord>>,
}

impl View<'_> {
    fn offer(&self, node: &NodeRecord) -> i64 {
        if self.gpus { node.offers.gpus } else { node.offers.cpu }
    }

    fn ask(&self, pod: &PodRecord) -> i64 {
        let ask = self.record.ask(pod);
        if self.gpus { ask.gpus } else { ask.cpu }
    }

    fn pods(&self, node: usize) -> &[&PodRecord] {
        self.pods.get(&(node as u32)).map_or(&[], Vec::as_slice)
    }

    fn holds(&self, pod: &PodRecord) -> bool {
        let mut held = self.record.held(pod);
        held.any(|(from, to)| from <= self.at && to.is_none_or(|to| to > self.at))
    }

    fn used(&self, node: usize) -> i64 {
        let pods = self.pods(node).iter();
        pods.filter(|pod| self.holds(pod)).map(|pod| self.ask(pod)).sum()
    }

    /// One node: places, number, history, notes.
    fn line(&self, id: usize, letters: &BTreeMap<u32, char>) -> Vec<String> {
        let node = &self.record.nodes[id];
        let (used, offer) = (self.used(id), self.offer(node));
        let share = used as f64 / offer as f64;
        let (places, number) = if self.gpus && offer <= MAX_PLACES {
            (self.places(id, letters), format!("{used}/{offer}"))
        } else if self.gpus {
            (bar(share, MAX_PLACES as usize), format!("{used}/{offer}"))
        } else {
            (
                bar(share, MAX_PLACES as usize),
                format!("{}/{}", words::cpus(used), words::cpus(offer)),
            )
        };
        let held = usage::held(self.record, self.pods(id).iter().copied(), |pod| self.ask(pod));
        let integrals = held.integrals(EPOCH, self.end, LINE_BUCKETS);
        let bucket = i128::from((self.end.0 - EPOCH.0).max(1)) / LINE_BUCKETS as i128;
        let shares: Vec<f64> = integrals
            .iter()
            .map(|sum| usage::ratio(*sum, bucket.max(1) * i128::from(offer)))
            .collect();
        vec![node.name.clone(), places, number, sparkline(&shares), self.note(node)]
    }

    fn note(&self, node: &NodeRecord) -> String {
        let when = |tick: &Tick| show_duration(since_epoch(*tick));
        let mut notes = Vec::new();
        for (from, to) in &node.cordoned {
            notes.push(match to {
                None => format!("cordoned at {}", when(from)),
                Some(to) => format!("cordoned {} to {}", when(from), when(to)),
            });
        }
        for (i, (from, to)) in node.present.iter().enumerate() {
            if *from > EPOCH {
                notes.push(format!("{} at {}", if i == 0 { "added" } else { "back" }, when(from)));
            }
            notes.extend(to.iter().map(|to| format!("removed at {}", when(to))));
        }
        notes.join(", ")
    }

    /// A letter per GPU in use, by workload.
    fn places(&self, id: usize, letters: &BTreeMap<u32, char>) -> String {
        let offer = self.offer(&self.record.nodes[id]);
        let mut places: Vec<Option<&PodRecord>> = vec![None; usize::try_from(offer).unwrap_or(0)];
        let mut pods: Vec<&PodRecord> = self.pods(id).to_vec();
        pods.sort_by_key(|pod| pod.bound);
        for pod in pods.iter().filter(|pod| pod.bound.is_some_and(|b| b <= self.at)) {
            let mut wanted = self.ask(pod);
            for place in &mut places {
                let free = place.is_none_or(|holder| {
                    holder.ended.is_some_and(|ended| Some(ended) <= pod.bound)
                });
                if wanted > 0 && free {
                    *place = Some(pod);
                    wanted -= 1;
                }
            }
        }
        let letter = |place: &Option<&PodRecord>| match place {
            Some(pod) if self.holds(pod) => *letters.get(&pod.workload).unwrap_or(&'#'),
            _ => NOTHING,
        };
        places.iter().map(letter).collect()
    }

    /// A character per node.
    fn field(&self, nodes: &[usize]) -> Vec<String> {
        let mut lines =
            vec!["  one character per node: · empty, ▁ to █ by how full it is, x gone".to_owned()];
        let width =
            nodes.iter().map(|i| self.record.nodes[*i].name.chars().count()).max().unwrap_or(0);
        let group =
            |id: &usize| self.record.nodes[*id].name.trim_end_matches(|c: char| c.is_ascii_digit());
        let rows: Vec<&[usize]> = nodes
            .chunk_by(|a, b| group(a) == group(b))
            .flat_map(|group| group.chunks(FIELD_WIDTH))
            .collect();
        for row in rows.iter().take(MAX_FIELD_LINES) {
            let cells: String = row.iter().map(|id| self.cell(*id)).collect();
            lines.push(format!("  {:<width$}  {cells}", self.record.nodes[row[0]].name));
        }
        let rest: usize = rows.iter().skip(MAX_FIELD_LINES).map(|row| row.len()).sum();
        if rest > 0 {
            lines.push(format!("  … and {} nodes more", words::count(rest as u64)));
        }
        lines
    }

    fn cell(&self, id: usize) -> char {
        let node = &self.record.nodes[id];
        let here = |(from, to): &(Tick, Option<Tick>)| {
            *from <= self.at && to.is_none_or(|to| to > self.at)
        };
        if !node.present.iter().any(here) {
            return 'x';
        }
        spark(self.used(id) as f64 / self.offer(node) as f64)
    }
}

/// The moment with the most in use; of several, the first at which most workloads share it.
fn busiest(record: &Record, gpus: bool, end: Tick) -> Tick {
    let amount = |pod: &PodRecord| {
        let ask = record.ask(pod);
        if gpus { ask.gpus } else { ask.cpu }
    };
    let mut changes: Vec<(Tick, i64, u32)> = Vec::new();
    for pod in &record.pods {
        let amount = amount(pod);
        for (from, to) in record.held(pod).filter(|_| amount > 0) {
            changes.push((from, amount, pod.workload));
            changes.extend(to.map(|to| (to, -amount, pod.workload)));
        }
    }
    changes.sort_unstable();
    let mut used = 0;
    let mut sharing: BTreeMap<u32, i64> = BTreeMap::new();
    let mut best = (0, 0);
    let mut at = EPOCH;
    for now in changes.chunk_by(|a, b| a.0 == b.0).take_while(|now| now[0].0 <= end) {
        for (_, amount, workload) in now {
            used += amount;
            let held = sharing.entry(*workload).or_default();
            *held += amount;
            if *held == 0 {
                sharing.remove(workload);
            }
        }
        if (used, sharing.len()) > best {
            best = (used, sharing.len());
            at = now[0].0;
        }
    }
    at
}

fn by_node(record: &Record) -> BTreeMap<u32, Vec<&PodRecord>> {
    let mut pods: BTreeMap<u32, Vec<&PodRecord>> = BTreeMap::new();
    for pod in &record.pods {
        if let Some(node) = pod.node {
            pods.entry(node).or_default().push(pod);
        }
    }
    pods
}

/// A letter for each workload that was ever on a GPU.
fn letters(summary: &Summary<'_>) -> BTreeMap<u32, char> {
    let on_gpus = summary
        .workloads
        .iter()
        .filter(|row| row.waits.placed > 0 && summary.outcome.record.asks[row.workload].gpus > 0);
    on_gpus.zip(LETTERS.chars()).map(|(row, letter)| (row.workload as u32, letter)).collect()
}
