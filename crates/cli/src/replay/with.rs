//! What is changed for a replay: policies and profiles.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};
use atoll_api::ReservedNamespaces;
use atoll_scheduler::detect::{self, KindRef, Policy, PolicyKey, Subject, TemplateKey};
use atoll_scheduler::replay::Restored;
use atoll_scheduler::{Claim, Profiles, Request, SchedulerConfiguration};
use serde_json::Value;

use crate::input::{self, Validation};
use crate::print;

/// Kinds that a file may change.
const KINDS: [&str; 2] = ["PropagationPolicy", "ClusterPropagationPolicy"];

#[derive(Default)]
pub(super) struct Changed {
    policies: Vec<Arc<Policy>>,
    profiles: Option<Profiles>,
}

/// What a change means for a decision.
pub(super) enum Asked {
    /// It is made with these profiles.
    With(Profiles),
    /// No policy would claim the workload, so there would be no decision.
    Unclaimed(String),
    /// It cannot be made.
    Missing(String),
}

/// What claims a workload with the changed policies.
enum Claimed {
    /// What claimed it then.
    AsThen,
    /// This policy.
    By(Box<Claim>),
    /// None of them.
    Nobody,
}

impl Changed {
    pub(super) fn read(files: &[PathBuf], config: Option<&Path>) -> anyhow::Result<Self> {
        let mut objects = Vec::new();
        if !files.is_empty() {
            let errors =
                input::read_texts(input::all_texts(files)?, Validation::Strict, &mut |document| {
                    objects.push(document.object);
                    Ok(())
                })?;
            errors.iter().for_each(|error| print::note(format!("error: {error}")));
            ensure!(errors.is_empty(), "nothing is replayed: some objects could not be read");
            ensure!(!objects.is_empty(), "--with: there is no object in the given files");
        }
        let mut policies = Vec::new();
        for mut object in objects {
            let kind = object["kind"].as_str().unwrap_or_default();
            ensure!(
                KINDS.contains(&kind),
                "--with: {kind} cannot be changed in a replay; give {}",
                KINDS.join(" or ")
            );
            if kind == KINDS[0] && object["metadata"]["namespace"].is_null() {
                object["metadata"]["namespace"] = "default".into();
            }
            let policy = Policy::read(&object).context("--with: read a policy")?;
            if let Err(problem) = &policy.selectors {
                return Err(anyhow!("--with: {} {}: {problem}", policy.key.kind(), policy.key));
            }
            policies.push(Arc::new(policy));
        }
        let profiles = config.map(|path| {
            let named = || format!("--scheduler-config {}", path.display());
            let text = std::fs::read_to_string(path).with_context(named)?;
            let config = SchedulerConfiguration::read(&text).with_context(named)?;
            Profiles::read(&config).with_context(named)
        });
        Ok(Self { policies, profiles: profiles.transpose()? })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.profiles.is_none()
    }

    /// Changes the inputs.
    pub(super) fn apply(&self, restored: &mut Restored, recorded: &Profiles) -> Asked {
        let profiles = self.profiles.as_ref().unwrap_or(recorded);
        let mut covered = restored.covers(recorded, profiles);
        match claimed(&self.policies, &restored.request) {
            Claimed::AsThen => {}
            Claimed::By(claim) => covered &= restored.ask(&claim, profiles),
            Claimed::Nobody => {
                let then = restored.request.policies.first();
                let then = then.map_or(String::new(), |of| policy(of).to_string());
                return Asked::Unclaimed(format!(
                    "policy: {then} -> none: it would not select the workload, nor would another one that is given"
                ));
            }
        }
        match covered {
            true => Asked::With(profiles.clone()),
            false => Asked::Missing(
                "the change makes it read other workloads, which were not recorded with it"
                    .to_owned(),
            ),
        }
    }
}

fn policy(of: &atoll_decision::PolicyRef) -> PolicyKey {
    PolicyKey { namespace: of.namespace.clone(), name: of.name.clone() }
}

/// Selects again, if the policy that claimed the workload is given: among the given ones, by the rules of the controller. The
/// labels of namespaces were not recorded, so a `namespaceSelector` of that policy counts as then, and other policies with one
/// select nothing.
fn claimed(policies: &[Arc<Policy>], request: &Request) -> Claimed {
    let Some(then) = request.policies.first().map(policy) else { return Claimed::AsThen };
    if !policies.iter().any(|policy| policy.key == then) {
        return Claimed::AsThen;
    }
    let template = &request.template;
    let key = TemplateKey::new(
        KindRef::of(&template.api_version, &template.kind),
        template.namespace.as_deref(),
        &template.name,
    );
    let subject = Subject {
        key: &key,
        labels: &template.labels,
        namespace_labels: None,
        object: detect::Whole::Here(&Value::Null),
        reserved: &ReservedNamespaces::default(),
        controlled: false,
        owned: false,
        names_workload_policy: template.workload_policy.is_some(),
        has_spread: false,
    };
    let everywhere = |policy: &Arc<Policy>| match policy.key == then && policy.namespaces.is_some()
    {
        true => Arc::new(Policy { namespaces: None, ..(**policy).clone() }),
        false => policy.clone(),
    };
    let policies: Vec<Arc<Policy>> = policies.iter().map(everywhere).collect();
    let claim = detect::claim(&policies, &subject, Some(&then), || None);
    match claim.policy() {
        Some(_) => Claimed::By(Box::new(claim.asked(None))),
        None if claim.holds() => Claimed::AsThen,
        None => Claimed::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use atoll_decision::PolicyRef;
    use serde_json::json;

    use super::*;

    fn given(name: &str, selected: &str, more: Value) -> Arc<Policy> {
        let mut object = json!({
            "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": selected}],
                "placement": {"clusterAffinity": {"clusterNames": [name]}},
            },
        });
        let spec = object["spec"].as_object_mut().unwrap();
        spec.extend(more.as_object().unwrap().clone());
        Arc::new(Policy::read(&object).unwrap())
    }

    #[test]
    fn the_given_policies_select_again_if_the_one_of_then_is_among_them() {
        let policy = PolicyRef {
            kind: "PropagationPolicy".to_owned(),
            namespace: Some("shop".to_owned()),
            name: "a".to_owned(),
            ..PolicyRef::default()
        };
        let mut request = Request { policies: vec![policy], ..Request::default() };
        let template = &mut request.template;
        (template.api_version, template.kind) = ("apps/v1".to_owned(), "Deployment".to_owned());
        (template.namespace, template.name) = (Some("shop".to_owned()), "web".to_owned());
        let none = json!({});
        let by = |policies: &[Arc<Policy>]| match claimed(policies, &request) {
            Claimed::AsThen => "as then".to_owned(),
            Claimed::By(claim) => claim.policies[0].name.clone(),
            Claimed::Nobody => "nobody".to_owned(),
        };
        assert_eq!(by(&[]), "as then");
        assert_eq!(by(&[given("b", "web", none.clone())]), "as then");
        assert_eq!(by(&[given("a", "web", none.clone())]), "a");
        assert_eq!(by(&[given("a", "other", none.clone())]), "nobody");
        let both =
            |of_a: &str, b: Value| by(&[given("a", of_a, none.clone()), given("b", "web", b)]);
        assert_eq!(both("other", none.clone()), "b");
        assert_eq!(both("web", json!({"priority": 9})), "a", "a claim stays");
        assert_eq!(both("web", json!({"priority": 9, "preemption": "Always"})), "b");
    }
}
