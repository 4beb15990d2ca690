//! Finds mistakes in an override policy before it is applied to an object.

use atoll_api::marks;
use atoll_api::override_policy::{
    ImageComponent, ImageScope, LabelAnnotationOverrider, OverriderOperator,
};
use atoll_api::policy::ResourceSelector;
use atoll_api::selector::Selector;
use serde::Deserialize;
use serde_json::Value;

use super::containers;
use super::policy::{Field, Image, Plaintext, Policy, Rule};
use super::reference::{is_digest, is_tag};
use super::value::Source;

/// A mistake in a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Whether the policy cannot work as written; otherwise a part of it has no effect or a surprising one.
    pub error: bool,
    /// Path of the field.
    pub field: String,
    /// The problem.
    pub problem: String,
    /// How to fix it.
    pub fix: String,
}

#[derive(Default)]
struct Page(Vec<Problem>);

impl Page {
    fn put(&mut self, error: bool, field: String, problem: impl Into<String>, fix: &str) {
        self.0.push(Problem { error, field, problem: problem.into(), fix: fix.to_owned() });
    }

    fn error(&mut self, field: String, problem: impl Into<String>, fix: &str) {
        self.put(true, field, problem, fix);
    }

    fn warning(&mut self, field: String, problem: impl Into<String>, fix: &str) {
        self.put(false, field, problem, fix);
    }
}

/// Checks a policy of either scope alone.
#[must_use]
pub fn check(object: &Value) -> Vec<Problem> {
    let mut page = Page::default();
    let policy = match Policy::read(object) {
        Ok(policy) => policy,
        Err(error) => {
            page.error(error.field, error.problem, "correct the value, or remove the field");
            return page.0;
        }
    };
    let spec = &object["spec"];
    selectors(&mut page, &policy, spec);
    let given = |field: &str| spec.get(field).is_some_and(|value| !value.is_null());
    let listed = spec["overrideRules"].as_array().is_some_and(|rules| !rules.is_empty());
    for field in ["targetCluster", "overriders"].into_iter().filter(|field| given(field)) {
        if listed {
            let problem = "is ignored because there are overrideRules";
            page.warning(format!("spec.{field}"), problem, "move it into a rule");
        }
    }
    if !listed && !given("overriders") {
        page.warning("spec.overrideRules".to_owned(), "is empty: nothing is changed", "add a rule");
    }
    for rule in &policy.rules {
        check_rule(&mut page, rule);
    }
    page.0
}

fn selectors(page: &mut Page, policy: &Policy, spec: &Value) {
    let selectors = spec["resourceSelectors"].as_array().into_iter().flatten().enumerate();
    for (at, selector) in selectors {
        let field = format!("spec.resourceSelectors[{at}]");
        // Unreadable ones were reported when the policy was read.
        let Ok(selector) = ResourceSelector::deserialize(selector) else { continue };
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(labels) = &selector.label_selector {
            let field = format!("{field}.labelSelector");
            if given(&selector.name).is_some() {
                let problem = "is ignored because name is set";
                page.warning(field, problem, "remove one of the two");
            } else if let Err(error) = Selector::parse(labels) {
                page.error(field, error.to_string(), "correct it: until then it selects nothing");
            }
        }
        if let (Some(own), Some(other)) = (&policy.namespace, given(&selector.namespace))
            && *own != other
        {
            let problem = format!(
                "is {other:?}: an OverridePolicy selects in its own namespace {own:?} only"
            );
            let fix = "remove it, or use a ClusterOverridePolicy";
            page.error(format!("{field}.namespace"), problem, fix);
        }
        let group = selector.api_version.split_once('/').map_or("", |(group, _)| group);
        if group.ends_with(".atoll.dev") {
            let problem =
                format!("{:?} is a group of Atoll, whose kinds are not propagated", group);
            page.error(format!("{field}.apiVersion"), problem, "remove the selector");
        }
    }
}

fn check_rule(page: &mut Page, rule: &Rule) {
    for (field, problem) in &rule.target.problems {
        let fix = "correct it: until then the rule selects no cluster as meant";
        page.error(format!("{}.targetCluster.{field}", rule.path), problem, fix);
    }
    if rule.target.excludes_all() {
        let field = format!("{}.targetCluster.exclude", rule.path);
        page.error(field, "excludes every cluster of clusterNames", "leave at least one of them");
    }
    let path = |list: &str, at: usize| format!("{}.overriders.{list}[{at}]", rule.path);
    for (at, image) in rule.images.iter().enumerate() {
        check_image(page, &path("imageOverrider", at), image);
    }
    for (list, changes) in
        [("labelsOverrider", &rule.labels), ("annotationsOverrider", &rule.annotations)]
    {
        for (at, change) in changes.iter().enumerate() {
            check_entries(page, &path(list, at), change);
        }
    }
    for (at, field) in rule.fields.iter().enumerate() {
        check_field(page, &path("fieldOverrider", at), field);
    }
    for (at, change) in rule.plaintext.iter().enumerate() {
        check_plaintext(page, &path("plaintext", at), change);
    }
}

/// Checks where a value comes from. Returns whether there is one.
fn check_source(page: &mut Page, path: &str, source: &Source, operator: OverriderOperator) -> bool {
    let removes = operator == OverriderOperator::Remove;
    match source {
        Source::Missing => false,
        Source::Invalid(problem) => {
            let field = format!("{path}.valueFrom.cluster.cel");
            page.error(field, problem, "correct the expression");
            true
        }
        Source::Given(_) | Source::Computed(_) if removes => {
            let field = format!("{path}.value");
            page.warning(field, "is ignored by operator remove", "remove it");
            true
        }
        Source::Given(_) | Source::Computed(_) => true,
    }
}

fn check_image(page: &mut Page, path: &str, image: &Image) {
    let has_value = check_source(page, path, &image.value, image.operator);
    let removes = image.operator == OverriderOperator::Remove;
    if !has_value && !removes {
        let fix = "give a value, or use operator remove";
        page.error(format!("{path}.value"), "is missing", fix);
    }
    match &image.predicate {
        Some(Err(problem)) => {
            page.error(format!("{path}.predicate.path"), problem, "correct the path");
        }
        Some(Ok(_)) if image.scope != ImageScope::Containers => {
            let problem = "is ignored because predicate names one image";
            page.warning(format!("{path}.scope"), problem, "remove one of the two");
        }
        _ => {}
    }
    if removes && image.component == ImageComponent::Repository {
        let problem = "removes the repository, and no image name is left without it";
        page.error(format!("{path}.operator"), problem, "replace it, or remove the registry");
    }
    if let (ImageComponent::Tag, OverriderOperator::Replace, Source::Given(Value::String(tag))) =
        (image.component, image.operator, &image.value)
        && !is_tag(tag)
        && !is_digest(tag)
    {
        let problem = format!("{tag:?} is neither a tag nor a digest, so nothing is changed");
        page.warning(format!("{path}.value"), problem, "correct it");
    }
}

fn check_entries(page: &mut Page, path: &str, change: &LabelAnnotationOverrider) {
    for key in change.value.keys().filter(|key| marks::is_own(key)) {
        let problem = format!("{key:?} is a mark that only Atoll sets");
        page.error(format!("{path}.value"), problem, "remove it");
    }
}

fn check_field(page: &mut Page, path: &str, field: &Field) {
    if let Err(problem) = &field.path {
        page.error(format!("{path}.fieldPath"), problem, "correct the path");
    }
    match (field.json.is_empty(), field.yaml.is_empty()) {
        (true, true) => {
            let problem = "has neither json nor yaml, so the text of the field becomes empty";
            page.warning(path.to_owned(), problem, "add an operation, or remove the overrider");
        }
        (false, false) => {
            let problem = "is ignored because there is yaml";
            page.warning(format!("{path}.json"), problem, "remove one of the two");
        }
        _ => {}
    }
    for (list, operations) in [("json", &field.json), ("yaml", &field.yaml)] {
        for (at, operation) in operations.iter().enumerate() {
            if operation.value.is_none() && operation.operator != OverriderOperator::Remove {
                let field = format!("{path}.{list}[{at}].value");
                page.warning(field, "is missing, so null is written", "give a value");
            }
            if let Err(problem) = super::pointer::Pointer::patch(&operation.sub_path) {
                page.error(format!("{path}.{list}[{at}].subPath"), problem, "correct the path");
            }
        }
    }
}

fn check_plaintext(page: &mut Page, path: &str, change: &Plaintext) {
    let has_value = check_source(page, path, &change.value, change.operator);
    if !has_value && change.operator != OverriderOperator::Remove {
        let fix = "give a value, or use operator remove";
        page.error(format!("{path}.value"), "is missing", fix);
    }
    match &change.path {
        Err(problem) => page.error(format!("{path}.path"), problem, "correct the path"),
        Ok(_) if !change.absolute => {
            let problem = "has no slash at its start: what is before the first slash is ignored";
            page.warning(format!("{path}.path"), problem, "start it with a slash");
        }
        Ok(pointer) if pointer.is_identity() => {
            let problem = "identifies the object and cannot be overridden";
            page.error(format!("{path}.path"), problem, "remove the overrider");
        }
        Ok(_) => {}
    }
}

/// The image overriders of a policy that leave out images of an object: they have no predicate and the scope
/// Containers, and the object has init or ephemeral containers, or pod templates of a kind that this scope does not
/// cover. Each is the path of an overrider, and what it leaves out.
#[must_use]
pub fn left_out(policy: &Policy, object: &Value) -> Vec<(String, &'static str)> {
    let images = policy.rules.iter().flat_map(|rule| {
        let images = rule.images.iter().enumerate();
        images
            .filter(|(_, image)| image.predicate.is_none() && image.scope == ImageScope::Containers)
            .map(|(at, _)| format!("{}.overriders.imageOverrider[{at}].scope", rule.path))
    });
    let Some(what) = containers::outside_scope(object) else { return Vec::new() };
    images.map(|path| (path, what)).collect()
}
