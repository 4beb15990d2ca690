//! `atoll install`: prints the manifests of the hub side, for `kubectl apply --server-side -f -`.

pub(crate) mod record;

use anyhow::Context;
use atoll_install::{Address, History, Hub, IMAGE, Options, Part, ServiceType};
use clap::{Args, Parser, ValueEnum};
use serde_json::{Value, json};

use crate::args::{Cli, Command, Format, HubFlags};
use crate::print::Printer;

/// Default size of the bundled hub's volumes.
const HUB_VOLUME: &str = "10Gi";

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// Image of the controller, preferably by digest
    #[arg(long, value_name = "IMAGE", default_value = IMAGE)]
    image: String,
    /// Which API server is the hub. For a hub in one process on this machine: `atoll up`
    #[arg(long, value_name = "HUB", default_value = "existing")]
    hub: HubFlag,
    /// With --hub bundled: size of the hub's volume, and of that of its backups [default: 10Gi]
    #[arg(long, value_name = "SIZE")]
    hub_volume: Option<String>,
    /// With --hub bundled: print only the Job that restores the hub's etcd from this file of the volume atoll-hub-backups
    #[arg(long, value_name = "FILE")]
    hub_restore: Option<String>,
    /// Replicas of the controller; one leads, the others wait [default: 3 with --history-secret, otherwise 1]
    #[arg(long, value_name = "COUNT")]
    replicas: Option<u32>,
    /// Record history in PostgreSQL: a Secret in the controller's namespace whose key `url` is the database's URL, and whose
    /// optional key `ca.crt` is the authority of its certificate (`?sslrootcert=/etc/atoll/history/ca.crt`)
    #[arg(long, value_name = "NAME", conflicts_with = "history_volume")]
    history_secret: Option<String>,
    /// Record history in SQLite on a volume of this size, with one replica [default: 10Gi]
    #[arg(long, value_name = "SIZE")]
    history_volume: Option<String>,
    /// Address at which agents outside reach the controller. The Service has its port, and `atoll join` uses it by default
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<Address>,
    /// Type of the Service for agents
    #[arg(long, value_name = "TYPE", default_value = "load-balancer")]
    service_type: ServiceTypeFlag,
    /// Policies may select Secrets: the controller may then read every Secret of the hub
    #[arg(long)]
    secrets: bool,
    /// Policies may select cluster-scoped kinds, roles and CustomResourceDefinitions
    #[arg(long)]
    cluster_kinds: bool,
    /// Policies may let members' autoscalers set replicas: the controller may then scale every Deployment of the hub
    #[arg(long)]
    replica_sync: bool,
    /// Add alerts for the Prometheus operator, and dashboards for Grafana. docs/runbook.md says what to do about each alert
    #[arg(long)]
    observe: bool,
    /// Add a ServiceMonitor for the Prometheus operator
    #[arg(long)]
    service_monitor: bool,
    /// Namespace in which Prometheus runs
    #[arg(long, value_name = "NAME", default_value = "monitoring")]
    metrics_namespace: String,
    /// PriorityClass of the controller's Pods
    #[arg(long, value_name = "NAME")]
    priority_class: Option<String>,
    /// A further argument of `atoll controller`, for example `--controller-arg=--require-cluster-sets`; may be given several
    /// times
    #[arg(long = "controller-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    controller_args: Vec<String>,
    /// How to print the manifests
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: ManifestFormat,
}

/// How manifests are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ManifestFormat {
    /// Documents with comments
    Yaml,
    /// One List
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HubFlag {
    /// That of the cluster to which you apply the manifests. No other controllers may run workloads on it
    Existing,
    /// One of its own in that cluster: etcd, kube-apiserver and a reduced kube-controller-manager in one Pod, with certificates
    /// and hourly backups. For evaluation and small estates
    Bundled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ServiceTypeFlag {
    /// The cluster's provider assigns an address outside
    LoadBalancer,
    /// A port of every node
    NodePort,
    /// Reachable inside the cluster only
    ClusterIp,
}

impl From<ServiceTypeFlag> for ServiceType {
    fn from(flag: ServiceTypeFlag) -> Self {
        match flag {
            ServiceTypeFlag::LoadBalancer => Self::LoadBalancer,
            ServiceTypeFlag::NodePort => Self::NodePort,
            ServiceTypeFlag::ClusterIp => Self::ClusterIp,
        }
    }
}

impl InstallArgs {
    fn options(self, flags: &HubFlags) -> Options {
        let standard = Options::new(self.image);
        let hub = match self.hub {
            HubFlag::Existing => Hub::Existing,
            HubFlag::Bundled => {
                Hub::Bundled { volume: self.hub_volume.unwrap_or_else(|| HUB_VOLUME.to_owned()) }
            }
        };
        let history = match (self.history_secret, self.history_volume) {
            (Some(secret), _) => History::Secret(secret),
            (None, Some(size)) => History::Volume(size),
            (None, None) => standard.history,
        };
        Options {
            replicas: self.replicas,
            namespace: flags.namespace.clone().unwrap_or(standard.namespace),
            hub,
            history,
            address: self.address,
            service_type: self.service_type.into(),
            secrets: self.secrets,
            cluster_kinds: self.cluster_kinds,
            replica_sync: self.replica_sync,
            observe: self.observe,
            service_monitor: self.service_monitor,
            metrics_namespace: self.metrics_namespace,
            priority_class: self.priority_class,
            controller_args: self.controller_args,
            image: standard.image,
        }
    }
}

pub(crate) fn run(flags: &HubFlags, args: InstallArgs, out: &Printer) -> anyhow::Result<()> {
    let format = args.output;
    if args.hub_volume.is_some() && args.hub == HubFlag::Existing {
        anyhow::bail!("--hub-volume needs --hub bundled: the existing hub has its own storage");
    }
    let restore = args.hub_restore.clone();
    let options = args.options(flags);
    let parts = match restore {
        Some(snapshot) => vec![atoll_install::restore(&options, &snapshot)?],
        None => atoll_install::parts(&options)?,
    };
    check_arguments(&parts)?;
    match format {
        ManifestFormat::Yaml => out.line(atoll_install::text(&parts)?.trim_end()),
        ManifestFormat::Json => {
            let items: Vec<Value> = parts.into_iter().flat_map(|part| part.objects).collect();
            out.object(Format::Json, &json!({"apiVersion": "v1", "kind": "List", "items": items}))
        }
    }
}

/// Reads the controller's arguments as the controller would, so that a wrong one is an error now and no restarting Pod.
fn check_arguments(parts: &[Part]) -> anyhow::Result<()> {
    let objects = parts.iter().flat_map(|part| &part.objects);
    for deployment in objects.filter(|object| object["kind"] == "Deployment") {
        let given = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
        let given = given.into_iter().flatten().filter_map(Value::as_str);
        // Without its advice about usage, which is that of another verb.
        let problem = |error: clap::Error| {
            let text = error.to_string();
            let first = text.split("\n\n").next().unwrap_or_default().to_owned();
            anyhow::anyhow!("--controller-arg: {}", first.trim_start_matches("error: "))
        };
        let cli = Cli::try_parse_from(std::iter::once("atoll").chain(given)).map_err(problem)?;
        if let Command::Controller(args) = cli.command {
            args.reserved.namespaces().context("--controller-arg")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(line: &str) -> anyhow::Result<Vec<Part>> {
        let words = ["atoll", "install"].into_iter().chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words)?;
        cli.check()?;
        let Command::Install(args) = cli.command else { unreachable!() };
        let parts = atoll_install::parts(&args.options(&cli.hub))?;
        check_arguments(&parts)?;
        Ok(parts)
    }

    #[test]
    fn flags_choose_the_manifests_and_wrong_ones_are_named() {
        let parts = |line: &str| -> Vec<&'static str> {
            install(line).unwrap().iter().map(|part| part.name).collect()
        };
        assert!(!parts("").contains(&"secrets"));
        let all = parts(
            "--secrets --cluster-kinds --replica-sync --observe --service-monitor --history-secret db -n hub",
        );
        assert!(
            ["secrets", "kinds", "replica-sync", "monitoring", "observe"]
                .iter()
                .all(|part| all.contains(part)),
            "{all:?}"
        );
        let text = |line: &str| atoll_install::text(&install(line).unwrap()).unwrap();
        let chosen = text(
            "--image r/a:2 --replicas 2 --history-secret db --address hub:443 --service-type node-port -n hub \
             --metrics-namespace prom --priority-class high --controller-arg=--require-cluster-sets \
             --controller-arg=--reserved-namespaces=infra",
        );
        for part in [
            "image: r/a:2",
            "replicas: 2",
            "port: 443",
            "type: NodePort",
            "namespace: hub",
            "prom",
            "priorityClassName: high",
            "- --require-cluster-sets",
            "--reserved-namespaces=infra",
        ] {
            assert!(chosen.contains(part), "{part}");
        }
        assert!(text("--history-volume 3Gi").contains("storage: 3Gi"));
        for (line, part) in [
            ("--replicas 2", "--history-secret"),
            ("--history-secret db --history-volume 1Gi", "--history-volume"),
            ("--address hub", "HOST:PORT"),
            ("--context hub", "--context"),
            ("--controller-arg=--nonsense", "--controller-arg: unexpected argument '--nonsense'"),
            ("--controller-arg=--listen=0.0.0.0:1", "--listen"),
            ("--controller-arg=--reserved-namespaces=*", "--controller-arg"),
        ] {
            let error = format!("{:#}", install(line).unwrap_err());
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
