//! Scoring strategies of NodeResourcesFit.

use crate::framework::{MAX_SCORE, RegistryError};
use crate::plugins::names;

/// A resource and its weight in a score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceSpec {
    /// Resource name.
    pub name: String,
    /// Weight, 1 to 100; 0 counts as 1.
    pub weight: i64,
}

/// A point of a utilisation curve: utilisation in percent, score 0 to 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapePoint {
    /// Utilisation, 0 to 100.
    pub utilization: i64,
    /// Score, 0 to 10.
    pub score: i64,
}

/// How utilisation becomes a score.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ScoringStrategy {
    /// Emptier is better.
    #[default]
    LeastAllocated,
    /// Fuller is better.
    MostAllocated,
    /// By a curve.
    RequestedToCapacityRatio(Vec<ShapePoint>),
}

impl ScoringStrategy {
    /// Checks a curve as upstream does.
    pub(super) fn validate(&self) -> Result<(), RegistryError> {
        let Self::RequestedToCapacityRatio(shape) = self else {
            return Ok(());
        };
        let fail = |field: String, problem: &str| {
            Err(RegistryError::Args {
                plugin: names::NODE_RESOURCES_FIT,
                field: format!("scoringStrategy.requestedToCapacityRatio.{field}"),
                problem: problem.to_owned(),
            })
        };
        if shape.is_empty() {
            return fail("shape".into(), "Required value: at least one point must be specified");
        }
        for (i, point) in shape.iter().enumerate() {
            if !(0..=100).contains(&point.utilization) {
                let field = format!("shape[{i}].utilization");
                return fail(field, "Invalid value: not in valid range [0-100]");
            }
            if i > 0 && point.utilization <= shape[i - 1].utilization {
                let field = format!("shape[{i}].utilization");
                return fail(
                    field,
                    "Invalid value: utilization values must be sorted in increasing order",
                );
            }
            if !(0..=10).contains(&point.score) {
                return fail(
                    format!("shape[{i}].score"),
                    "Invalid value: not in valid range [0-10]",
                );
            }
        }
        Ok(())
    }

    /// A node's score from (requested, allocatable, weight) per resource.
    pub(super) fn score(&self, loads: impl Iterator<Item = (i64, i64, i64)>) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for (requested, allocatable, weight) in loads {
            let score = match self {
                Self::LeastAllocated if requested > allocatable => 0,
                Self::LeastAllocated => percent(allocatable.saturating_sub(requested), allocatable),
                Self::MostAllocated => percent(requested.min(allocatable), allocatable),
                Self::RequestedToCapacityRatio(shape) => {
                    let used =
                        if requested > allocatable { 100 } else { percent(requested, allocatable) };
                    match interpolate(shape, used) {
                        0 => continue,
                        score => score,
                    }
                }
            };
            sum += score * weight;
            weights += weight;
        }
        match (weights, self) {
            (0, _) => 0,
            (_, Self::RequestedToCapacityRatio(_)) => (sum as f64 / weights as f64).round() as i64,
            _ => sum / weights,
        }
    }
}

/// `part * 100 / whole`, also near 2^63; what only negative quantities could push
/// out of range is cut.
fn percent(part: i64, whole: i64) -> i64 {
    let percent = match part.checked_mul(MAX_SCORE) {
        Some(product) => product / whole,
        None => (i128::from(part) * i128::from(MAX_SCORE) / i128::from(whole)) as i64,
    };
    percent.clamp(0, MAX_SCORE)
}

/// Upstream's broken linear function, with scores stretched from 0..10 to 0..100.
pub(in crate::plugins) fn interpolate(shape: &[ShapePoint], x: i64) -> i64 {
    let y = |p: &ShapePoint| p.score * (MAX_SCORE / 10);
    for (i, point) in shape.iter().enumerate() {
        if x <= point.utilization {
            if i == 0 {
                return y(point);
            }
            let previous = &shape[i - 1];
            return y(previous)
                + (y(point) - y(previous)) * (x - previous.utilization)
                    / (point.utilization - previous.utilization);
        }
    }
    shape.last().map_or(0, y)
}
