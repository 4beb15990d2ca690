//! What is changed for a replay: policies and profiles.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use atoll_api::policy::PropagationPolicySpec;
use atoll_scheduler::replay::Restored;
use atoll_scheduler::{Claim, Profiles, SchedulerConfiguration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use crate::input::{self, Validation};
use crate::print;

/// Kinds that a file may change.
const KINDS: [&str; 2] = ["PropagationPolicy", "ClusterPropagationPolicy"];

#[derive(Default)]
pub(super) struct Changed {
    policies: Vec<Claim>,
    profiles: Option<Profiles>,
}

#[derive(Deserialize)]
struct Policy {
    kind: String,
    #[serde(default)]
    metadata: ObjectMeta,
    spec: PropagationPolicySpec,
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
        for object in objects {
            let kind = object["kind"].as_str().unwrap_or_default();
            ensure!(
                KINDS.contains(&kind),
                "--with: {kind} cannot be changed in a replay; give {}",
                KINDS.join(" or ")
            );
            let mut policy = Policy::deserialize(object).context("--with: read a policy")?;
            if policy.kind == KINDS[0] {
                policy.metadata.namespace.get_or_insert_with(|| "default".to_owned());
            }
            policies.push(Claim::of_policy(&policy.kind, &policy.metadata, &policy.spec));
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

    /// Changes the inputs; returns the profiles to decide with, or what is missing for that.
    pub(super) fn apply(
        &self,
        restored: &mut Restored,
        recorded: &Profiles,
    ) -> Result<Profiles, String> {
        let profiles = self.profiles.as_ref().unwrap_or(recorded);
        let covered = restored.covers(recorded, profiles);
        let of = restored.request.policies.first();
        let changed = self.policies.iter().find(|claim| {
            let (Some(of), Some(new)) = (of, claim.policies.first()) else { return false };
            (&of.kind, &of.namespace, &of.name) == (&new.kind, &new.namespace, &new.name)
        });
        let covered = match changed {
            Some(claim) => restored.ask(claim, profiles) && covered,
            None => covered,
        };
        match covered {
            true => Ok(profiles.clone()),
            false => {
                Err("the change makes it read other workloads, which were not recorded with it"
                    .to_owned())
            }
        }
    }
}
