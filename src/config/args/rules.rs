//! Rules on arguments of plugins: upstream's, in its words.

use muster_core::model::{NodeTerm, NodeTerms, label_key_errors};
use serde::Deserialize;
use serde_json::Value;

use super::super::duration::GoDuration;
use super::super::error::FieldError;
use super::typed::{
    Affinity, Balanced, Binding, Fit, InterPod, Point, Preemption, Resource, Spread,
};

const SECOND: GoDuration = GoDuration(1_000_000_000);
const STRATEGIES: [&str; 3] = ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];

/// What is wrong with the arguments of a plugin, as they are kept. `enabled`: some
/// of upstream's rules hold only then.
pub(crate) fn check(
    path: &str,
    plugin: &str,
    json: &Value,
    enabled: bool,
) -> Result<Vec<FieldError>, serde_json::Error> {
    let mut rules = Rules { path, errors: Vec::new() };
    match plugin {
        "DefaultPreemption" => rules.preemption(&Preemption::deserialize(json)?),
        "DynamicResources" => rules.dynamic_resources(json),
        "InterPodAffinity" => {
            let weight = InterPod::deserialize(json)?.hard_pod_affinity_weight;
            rules.range("hardPodAffinityWeight", weight.into(), 0, 100);
        }
        "NodeAffinity" => rules.node_affinity(&Affinity::deserialize(json)?),
        "NodeResourcesBalancedAllocation" => rules.balanced(&Balanced::deserialize(json)?),
        "NodeResourcesFit" if enabled => rules.fit(&Fit::deserialize(json)?),
        "PodTopologySpread" => rules.spread(&Spread::deserialize(json)?),
        "VolumeBinding" => rules.volume_binding(&Binding::deserialize(json)?),
        _ => {}
    }
    Ok(rules.errors)
}

struct Rules<'a> {
    path: &'a str,
    errors: Vec<FieldError>,
}

impl Rules<'_> {
    fn at(&self, field: &str) -> String {
        format!("{}.{field}", self.path)
    }

    fn invalid(&mut self, field: &str, value: &impl serde::Serialize, detail: &str, remedy: &str) {
        let error = FieldError::invalid(self.at(field), value, detail);
        self.errors.push(error.remedy(remedy));
    }

    fn range(&mut self, field: &str, value: i64, least: i64, most: i64) {
        if !(least..=most).contains(&value) {
            let detail = format!("not in valid range [{least}, {most}]");
            self.invalid(field, &value, &detail, "choose a number in the range");
        }
    }

    fn unsupported(&mut self, field: &str, value: &str, supported: &[&str]) {
        let list: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
        let detail = format!("supported values: {}", list.join(", "));
        let error = FieldError::unsupported(self.at(field), &value, detail);
        self.errors.push(error.remedy("choose one of them"));
    }

    fn required(&mut self, field: &str, detail: &str, remedy: &str) {
        let error = FieldError::required(self.at(field), detail);
        self.errors.push(error.remedy(remedy));
    }

    fn label_name(&mut self, field: &str, name: &str) {
        for problem in label_key_errors(name) {
            self.invalid(field, &name, &problem, "correct the name");
        }
    }

    fn preemption(&mut self, args: &Preemption) {
        let (percentage, absolute) =
            (args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute);
        self.range("minCandidateNodesPercentage", percentage.into(), 0, 100);
        if absolute < 0 {
            let rule = "not in valid range [0, inf)";
            self.invalid("minCandidateNodesAbsolute", &absolute, rule, "choose a number from 0 up");
        }
        if percentage == 0 && absolute == 0 {
            for (field, other) in [
                ("minCandidateNodesPercentage", "minCandidateNodesAbsolute"),
                ("minCandidateNodesAbsolute", "minCandidateNodesPercentage"),
            ] {
                let rule = format!("cannot be zero at the same time as {other}");
                self.invalid(field, &0, &rule, "raise one of them");
            }
        }
    }

    fn dynamic_resources(&mut self, json: &Value) {
        let duration = |key: &str| {
            let text = json.get(key).and_then(Value::as_str)?;
            Some((text.to_owned(), GoDuration::parse(text).ok()?))
        };
        if let Some((text, timeout)) = duration("filterTimeout")
            && timeout < GoDuration(0)
        {
            self.invalid("filterTimeout", &text, "must be zero or positive", "remove the sign");
        }
        if let Some((text, timeout)) = duration("bindingTimeout")
            && timeout < SECOND
        {
            self.invalid("bindingTimeout", &text, "must be at least 1 second", "raise it");
        }
    }

    fn node_affinity(&mut self, args: &Affinity) {
        let Some(affinity) = &args.added_affinity else {
            return;
        };
        let required = affinity.required.iter().flat_map(|required| {
            let terms = NodeTerms::compile(&required.node_selector_terms);
            let at = self.at("addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.");
            terms.errors().map(|error| format!("{at}{error}")).collect::<Vec<_>>()
        });
        let preferred = affinity.preferred.iter().flatten().enumerate().flat_map(|(i, term)| {
            let at = self.at("addedAffinity.preferredDuringSchedulingIgnoredDuringExecution");
            let at = format!("{at}[{i}]");
            let compiled = (term.weight != 0).then(|| NodeTerm::compile(&term.preference, &at));
            compiled.iter().flat_map(NodeTerm::errors).map(str::to_owned).collect::<Vec<_>>()
        });
        let all: Vec<String> = required.chain(preferred).collect();
        for error in all {
            let (path, words) = error.split_once(": ").unwrap_or(("", &error));
            let error = FieldError::said(path, words);
            self.errors.push(error.remedy("correct it as in a pod's nodeAffinity"));
        }
    }

    fn balanced(&mut self, args: &Balanced) {
        for (i, resource) in args.resources.iter().enumerate() {
            if args.resources[..i].iter().any(|other| other.name == resource.name) {
                let path = self.at(&format!("resources[{i}].name"));
                let error = FieldError::duplicate(path, &resource.name);
                self.errors.push(error.remedy("keep one"));
            }
            if resource.weight != 1 {
                let field = format!("resources[{i}].weight");
                self.invalid(&field, &resource.weight, "must be 1", "remove the field");
            }
        }
    }

    fn fit(&mut self, args: &Fit) {
        for (i, name) in args.ignored_resources.iter().enumerate() {
            self.label_name(&format!("ignoredResources[{i}]"), name);
        }
        for (i, group) in args.ignored_resource_groups.iter().enumerate() {
            let field = format!("ignoredResourceGroups[{i}]");
            if group.contains('/') {
                let rule = "resource group name can't contain '/'";
                self.invalid(&field, group, rule, "write what is before the slash");
            }
            self.label_name(&field, group);
        }
        let strategy = &args.scoring_strategy;
        let kind = strategy.r#type.as_str();
        if !STRATEGIES.contains(&kind) {
            self.unsupported("scoringStrategy.type", kind, &STRATEGIES);
        }
        self.resources(&strategy.resources);
        let field = "scoringStrategy.requestedToCapacityRatio";
        match (kind == "RequestedToCapacityRatio", &strategy.requested_to_capacity_ratio) {
            (true, Some(ratio)) => self.shape(&format!("{field}.shape"), &ratio.shape),
            (true, None) => {
                let rule = "must be specified when type is RequestedToCapacityRatio";
                self.required(field, rule, "give it a shape");
            }
            (false, Some(_)) => {
                let rule = "must be nil when type is not RequestedToCapacityRatio";
                let error = FieldError::forbidden(self.at(field), rule);
                self.errors.push(error.remedy("remove it, or change the type"));
            }
            (false, None) => {}
        }
    }

    fn resources(&mut self, list: &[Resource]) {
        for (i, resource) in list.iter().enumerate() {
            if !(1..=100).contains(&resource.weight) {
                let field = format!("scoringStrategy.resources[{i}].weight");
                let name = &resource.name;
                let rule = format!("resource weight of {name} not in valid range (0, 100]");
                self.invalid(&field, &resource.weight, &rule, "choose a number in the range");
            }
        }
    }

    fn shape(&mut self, field: &str, shape: &[Point]) {
        if shape.is_empty() {
            return self.required(field, "at least one point must be specified", "add a point");
        }
        let falls = |pair: &[Point]| pair[0].utilization >= pair[1].utilization;
        if let Some(i) = shape.windows(2).position(falls) {
            let rule = "values must be sorted in increasing order";
            let value = shape[i + 1].utilization;
            self.invalid(&format!("{field}[{}].utilization", i + 1), &value, rule, "sort them");
        }
        for (i, point) in shape.iter().enumerate() {
            self.range(&format!("{field}[{i}].utilization"), point.utilization, 0, 100);
            self.range(&format!("{field}[{i}].score"), point.score, 0, 10);
        }
    }

    fn spread(&mut self, args: &Spread) {
        let (kind, constraints) = (args.defaulting_type.as_str(), &args.default_constraints);
        if kind != "System" && kind != "List" {
            self.unsupported("defaultingType", kind, &["System", "List"]);
        } else if kind == "System" && !constraints.is_empty() {
            let rule = "when .defaultConstraints are not empty";
            self.invalid("defaultingType", &kind, rule, "write List");
        }
        for (i, one) in constraints.iter().enumerate() {
            let at = |field: &str| format!("defaultConstraints[{i}].{field}");
            if one.max_skew <= 0 {
                let rule = "not in valid range (0, inf)";
                self.invalid(&at("maxSkew"), &one.max_skew, rule, "choose a number from 1 up");
            }
            if one.topology_key.is_empty() {
                let remedy = "name a label of nodes";
                self.required(&at("topologyKey"), "can not be empty", remedy);
            } else {
                self.label_name(&at("topologyKey"), &one.topology_key);
            }
            match one.when_unsatisfiable.as_str() {
                "DoNotSchedule" | "ScheduleAnyway" => {}
                "" => {
                    let remedy = "write ScheduleAnyway or DoNotSchedule";
                    self.required(&at("whenUnsatisfiable"), "can not be empty", remedy);
                }
                other => {
                    let supported = ["DoNotSchedule", "ScheduleAnyway"];
                    self.unsupported(&at("whenUnsatisfiable"), other, &supported);
                }
            }
            if one.label_selector.is_some() {
                let rule = "constraint must not define a selector, as they deduced for each pod";
                let error = FieldError::forbidden(self.at(&at("labelSelector")), rule);
                self.errors.push(error.remedy("remove it"));
            }
            let same = |other: &muster_api::k8s::TopologySpreadConstraint| {
                (&other.topology_key, &other.when_unsatisfiable)
                    == (&one.topology_key, &one.when_unsatisfiable)
            };
            if constraints[..i].iter().any(same) {
                let path = self.at(&format!("defaultConstraints[{i}]"));
                let shown = format!("{{{}, {}}}", one.topology_key, one.when_unsatisfiable);
                self.errors.push(FieldError::duplicate(path, &shown).remedy("keep one"));
            }
        }
    }

    fn volume_binding(&mut self, args: &Binding) {
        if args.bind_timeout_seconds < 0 {
            let rule = "invalid BindTimeoutSeconds, should not be a negative value";
            let value = args.bind_timeout_seconds;
            self.invalid("bindTimeoutSeconds", &value, rule, "remove the sign");
        }
        self.shape("shape", &args.shape);
    }
}
