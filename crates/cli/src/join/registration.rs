//! Properties of a member that are given at registration.

use std::collections::BTreeMap;

use atoll_api::Cluster;
use atoll_api::cluster::{ClusterMode, ClusterSpec};
use clap::Args;
use k8s_openapi::api::core::v1::Taint;

use super::hosted::{Mode, secret_name};

/// Valid taint effects.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

#[derive(Debug, Args)]
pub(super) struct RegistrationFlags {
    /// Where the member's agent runs
    #[arg(long, value_name = "MODE", default_value = "agent")]
    pub(super) mode: Mode,
    /// Who runs the member's infrastructure
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// The member's region
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// The member's zones, comma separated
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    zones: Vec<String>,
    /// Labels of the Cluster, which policies select by, comma separated
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    labels: Vec<(String, String)>,
    /// Taints, which keep bindings away that do not tolerate them, comma separated
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT", value_delimiter = ',', value_parser = taint)]
    taints: Vec<Taint>,
}

impl RegistrationFlags {
    /// The Cluster as described.
    pub(super) fn cluster(self, name: &str) -> Cluster {
        let mode = ClusterMode::from(self.mode);
        let spec = ClusterSpec {
            mode,
            kubeconfig_secret: (mode == ClusterMode::Hosted).then(|| secret_name(name)),
            provider: self.provider,
            region: self.region,
            zones: self.zones,
            taints: self.taints,
            ..ClusterSpec::default()
        };
        let mut cluster = Cluster::new(name, spec);
        if !self.labels.is_empty() {
            cluster.metadata.labels = Some(self.labels.into_iter().collect::<BTreeMap<_, _>>());
        }
        cluster
    }

    /// The flags that are set.
    pub(super) fn given(&self) -> Vec<&'static str> {
        [
            ("--mode", self.mode != Mode::default()),
            ("--provider", self.provider.is_some()),
            ("--region", self.region.is_some()),
            ("--zones", !self.zones.is_empty()),
            ("--labels", !self.labels.is_empty()),
            ("--taints", !self.taints.is_empty()),
        ]
        .into_iter()
        .filter_map(|(flag, given)| given.then_some(flag))
        .collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.given().is_empty()
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as KEY=VALUE, for example env=prod".to_owned()),
    }
}

fn taint(text: &str) -> Result<Taint, String> {
    let example = "for example gpu=only:NoSchedule";
    let Some((head, effect)) = text.rsplit_once(':') else {
        return Err(format!("write it as KEY=VALUE:EFFECT or KEY:EFFECT, {example}"));
    };
    if !EFFECTS.contains(&effect) {
        return Err(format!("the effect must be one of {}, {example}", EFFECTS.join(", ")));
    }
    let (key, value) = head.split_once('=').map_or((head, None), |(key, value)| (key, Some(value)));
    if key.is_empty() {
        return Err(format!("the key is missing, {example}"));
    }
    Ok(Taint {
        key: key.to_owned(),
        value: value.filter(|value| !value.is_empty()).map(str::to_owned),
        effect: effect.to_owned(),
        time_added: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_read_as_kubectl_has_them() {
        let brief = |text| {
            taint(text).map(|taint| (taint.key, taint.value.unwrap_or_default(), taint.effect))
        };
        let parts = |key: &str, value: &str, effect: &str| {
            Ok((key.to_owned(), value.to_owned(), effect.to_owned()))
        };
        assert_eq!(brief("gpu=only:NoSchedule"), parts("gpu", "only", "NoSchedule"));
        assert_eq!(brief("example.com/gpu:NoExecute"), parts("example.com/gpu", "", "NoExecute"));
        for wrong in ["gpu", "gpu=only", "gpu:Never", ":NoSchedule", "=only:NoSchedule"] {
            assert!(taint(wrong).unwrap_err().contains("gpu=only:NoSchedule"), "{wrong}");
        }
        assert!(label("=prod").is_err() && label("env").is_err());
        assert_eq!(label("env=").unwrap(), ("env".to_owned(), String::new()));
    }
}
