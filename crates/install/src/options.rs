//! What an installation may choose, and which choices contradict each other.

use std::fmt;
use std::str::FromStr;

use atoll_api::marks::SYSTEM_NAMESPACE;
use atoll_api::quantity::Quantity;

/// Replicas of the controller with a database: one leader, and a standby while a node is drained.
const REPLICAS: u32 = 3;
/// Most replicas that make sense: all but one wait.
const MOST_REPLICAS: u32 = 9;
/// Longest DNS label.
const LABEL: usize = 63;
/// Longest DNS subdomain, which names of Secrets and PriorityClasses are.
const SUBDOMAIN: usize = 253;

/// The choices of one installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Image of the controller.
    pub image: String,
    /// Replicas of the controller; by default 3 with a database, 1 with a volume.
    pub replicas: Option<u32>,
    /// Namespace of the controller's Pods. Atoll's own objects on the hub are always in `atoll-system`.
    pub namespace: String,
    /// Which API server is the hub.
    pub hub: Hub,
    /// Where history is stored.
    pub history: History,
    /// Where agents outside the cluster reach the controller.
    pub address: Option<Address>,
    /// Type of the Service for agents.
    pub service_type: ServiceType,
    /// Policies may select Secrets.
    pub secrets: bool,
    /// Policies may select cluster-scoped kinds, roles and CustomResourceDefinitions.
    pub cluster_kinds: bool,
    /// Members' replica counts may flow back to the templates of Deployments.
    pub replica_sync: bool,
    /// Alerts for the Prometheus operator, and dashboards for Grafana.
    pub observe: bool,
    /// A ServiceMonitor for the Prometheus operator.
    pub service_monitor: bool,
    /// Namespace in which Prometheus runs.
    pub metrics_namespace: String,
    /// PriorityClass of the controller's Pods.
    pub priority_class: Option<String>,
    /// Further arguments of `atoll controller`.
    pub controller_args: Vec<String>,
}

impl Options {
    /// The choices of `atoll install` without flags, with this image.
    #[must_use]
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            replicas: None,
            namespace: SYSTEM_NAMESPACE.to_owned(),
            hub: Hub::Existing,
            history: History::Volume("10Gi".to_owned()),
            address: None,
            service_type: ServiceType::LoadBalancer,
            secrets: false,
            cluster_kinds: false,
            replica_sync: false,
            observe: false,
            service_monitor: false,
            metrics_namespace: "monitoring".to_owned(),
            priority_class: None,
            controller_args: Vec::new(),
        }
    }

    /// Replicas of the controller.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.replicas.unwrap_or(match self.history {
            History::Secret(_) => REPLICAS,
            History::Volume(_) => 1,
        })
    }

    /// Checks every choice, and that they do not contradict each other.
    ///
    /// # Errors
    /// Names the first wrong flag and the fix.
    pub fn check(&self) -> Result<(), Error> {
        if self.image.is_empty() || self.image.chars().any(|c| c.is_whitespace() || c.is_control())
        {
            return Err(Error::Image(self.image.clone()));
        }
        let replicas = self.replicas();
        if !(1..=MOST_REPLICAS).contains(&replicas) {
            return Err(Error::Replicas(replicas));
        }
        match &self.history {
            History::Volume(_) if replicas > 1 => return Err(Error::OneWriter(replicas)),
            History::Volume(size) => {
                let bytes = Quantity::new(size.clone()).units();
                if !bytes.is_ok_and(|bytes| bytes > 0) {
                    return Err(Error::Size(size.clone()));
                }
            }
            History::Secret(name) => check_name("--history-secret", name, SUBDOMAIN)?,
        }
        if let Hub::Bundled { volume } = &self.hub {
            let bytes = Quantity::new(volume.clone()).units();
            if !bytes.is_ok_and(|bytes| bytes > 0) {
                return Err(Error::HubSize(volume.clone()));
            }
        }
        check_name("--namespace", &self.namespace, LABEL)?;
        if self.namespace.contains('.') {
            return Err(Error::Name { flag: "--namespace", given: self.namespace.clone() });
        }
        if self.namespace.starts_with("kube-") || self.namespace == "default" {
            return Err(Error::Shared(self.namespace.clone()));
        }
        check_name("--metrics-namespace", &self.metrics_namespace, LABEL)?;
        match &self.priority_class {
            Some(name) => check_name("--priority-class", name, SUBDOMAIN),
            None => Ok(()),
        }
    }
}

/// Whether a text may be the name of an object.
fn check_name(flag: &'static str, given: &str, most: usize) -> Result<(), Error> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let part = |part: &str| {
        !part.is_empty()
            && part.chars().all(inner)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    match given.len() <= most && given.split('.').all(part) {
        true => Ok(()),
        false => Err(Error::Name { flag, given: given.to_owned() }),
    }
}

/// The API server that is the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hub {
    /// That of the cluster to which the manifests are applied.
    Existing,
    /// One of its own, which runs in that cluster, for evaluation and small estates.
    Bundled {
        /// Size of its volume, and of that of its backups.
        volume: String,
    },
}

/// Where history is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum History {
    /// In PostgreSQL: the Secret with this name has its URL.
    Secret(String),
    /// In SQLite on a volume of this size.
    Volume(String),
}

/// Type of the Service on which agents connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceType {
    /// The cluster's provider assigns an address outside.
    LoadBalancer,
    /// A port of every node.
    NodePort,
    /// Reachable inside the cluster only, for example behind a gateway that passes TCP through.
    ClusterIp,
}

impl ServiceType {
    /// The value of `spec.type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LoadBalancer => "LoadBalancer",
            Self::NodePort => "NodePort",
            Self::ClusterIp => "ClusterIP",
        }
    }
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// A DNS name or an IP address; IPv6 in brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Address(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let usable = match bare {
            Some(ip) => ip.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
                !host.is_empty() && host.len() <= SUBDOMAIN && host.chars().all(inner)
            }
        };
        match usable {
            true => Ok(Self { host: host.to_owned(), port }),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Why there are no manifests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No image can have this name.
    #[error(
        "--image {0:?} is no image: write it as REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST"
    )]
    Image(String),
    /// Too few or too many replicas.
    #[error("--replicas {0}: give 1 to {MOST_REPLICAS}. One leads, the others wait")]
    Replicas(u32),
    /// Several processes would write one file.
    #[error(
        "--replicas {0} needs --history-secret: the history on a volume is a SQLite file, which one Pod can use. Give a \
         PostgreSQL database, or leave --replicas out"
    )]
    OneWriter(u32),
    /// The size of a volume.
    #[error("--history-volume {0:?} is no size: write it as 10Gi")]
    Size(String),
    /// The size of the hub's volume.
    #[error("--hub-volume {0:?} is no size: write it as 10Gi")]
    HubSize(String),
    /// The name of a snapshot.
    #[error(
        "--hub-restore {0:?} is no snapshot: name a file of the volume atoll-hub-backups, for example NAME.db"
    )]
    Snapshot(String),
    /// Only a bundled hub has backups here.
    #[error("--hub-restore needs --hub bundled: an existing hub is restored with its own tools")]
    RestoreNeedsBundled,
    /// The name of an object.
    #[error("{flag} {given:?} is no name: use lower-case letters, digits and -")]
    Name {
        /// The flag.
        flag: &'static str,
        /// What it was given.
        given: String,
    },
    /// A namespace in which others have rights.
    #[error(
        "--namespace {0}: who may read Secrets or create Pods in the controller's namespace controls every member; give it a \
         namespace of its own"
    )]
    Shared(String),
    /// The address for agents.
    #[error("{0:?} is no address: write it as HOST:PORT, for example atoll.example.com:7443")]
    Address(String),
    /// A template that cannot be read or written: a bug.
    #[error("template {name}: {reason}")]
    Template {
        /// Its name.
        name: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    pub(crate) fn template(name: &'static str, reason: &dyn fmt::Display) -> Self {
        Self::Template { name, reason: reason.to_string() }
    }
}
