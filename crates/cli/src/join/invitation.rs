//! What the administrator of a member receives: one command or one manifest that joins the member within a few minutes.

use anyhow::bail;
use atoll_install::{Address, IMAGE};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::manifest;
use crate::args::{Format, OutputFlag, ReservedFlag};
use crate::hub::Hub;
use crate::install::record;
use crate::print::{Printer, counted};

/// What the agent may do on its member: the kinds of objects that it writes, and whether users of the hub reach the member
/// through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Rights {
    /// Workloads and what they need: the kinds of deploy/agent/rbac.yaml
    Workloads,
    /// In addition, the other built-in kinds in namespaces. Roles may grant only the agent's own rights
    Namespaced,
    /// Every kind, also cluster-scoped ones, custom resources and roles. Equivalent to cluster-admin on the member
    All,
    /// In addition to one of the others: users of the hub reach the member's API through the agent, which impersonates them
    Proxy,
}

impl Rights {
    /// The manifest of the ClusterRole that widens the rights of [`atoll_agent::RBAC`].
    pub(super) fn role(self) -> Option<&'static str> {
        match self {
            Self::Workloads => None,
            Self::Namespaced => Some(atoll_agent::RBAC_NAMESPACED),
            Self::All => Some(atoll_agent::RBAC_ALL),
            Self::Proxy => Some(atoll_agent::RBAC_PROXY),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct InvitationFlags {
    /// Address at which the member's agent reaches the controller; may be given several times [default: that of `atoll install
    /// --address`]. Not needed for mode hosted
    #[arg(long = "address", value_name = "HOST:PORT", value_parser = address)]
    pub(super) addresses: Vec<String>,
    /// Minutes for which the token is valid; at most 1440. It can be used once
    #[arg(long, value_name = "MINUTES", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1440))]
    pub(super) token_life: u32,
    /// Image of the agent, in the manifest that `-o yaml` prints
    #[arg(long, value_name = "IMAGE", default_value = IMAGE)]
    pub(super) image: String,
    /// Rights of the agent on its member, comma separated, in the manifest that `-o yaml` prints [default: workloads]
    #[arg(long, value_name = "RIGHTS", value_delimiter = ',')]
    pub(super) rights: Vec<Rights>,
    /// The agent serves its metrics on this port: in the manifest that `-o yaml` prints on all addresses of its Pod, to which the
    /// NetworkPolicy then lets namespace `monitoring` connect; in the printed command on 127.0.0.1 [default: no metrics]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1024..))]
    pub(super) metrics_port: Option<u16>,
    #[command(flatten)]
    pub(super) reserved: ReservedFlag,
    #[command(flatten)]
    pub(super) output: OutputFlag,
}

impl InvitationFlags {
    /// Without an address on the command line: the one that `atoll install` recorded.
    ///
    /// # Errors
    /// When the hub does not answer or refuses.
    pub(super) async fn with_recorded_address(mut self, hub: &Hub) -> anyhow::Result<Self> {
        if self.addresses.is_empty() {
            let record = record::find(hub).await?;
            self.addresses.extend(record.and_then(|record| record.address));
        }
        Ok(self)
    }

    /// Checks what the agent needs: the controller's address, and patterns of namespaces that it accepts.
    ///
    /// # Errors
    /// The address is missing, a pattern is invalid, or a flag has no effect on the chosen output.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.reserved.namespaces()?;
        if self.addresses.is_empty() {
            bail!(
                "--address HOST:PORT is missing: the address at which the member's agent reaches the controller. `atoll install \
                 --address` records it for all members"
            );
        }
        let kinds = self.rights.iter().filter(|right| **right != Rights::Proxy).count();
        if kinds > 1 {
            bail!("--rights: choose one of workloads, namespaced and all");
        }
        if self.metrics_port == Some(manifest::HEALTH_PORT) {
            bail!(
                "--metrics-port {}: this port of the Pod is for probes; choose another one",
                manifest::HEALTH_PORT
            );
        }
        if !self.rights.is_empty() && self.output.output != Format::Yaml {
            bail!(
                "--rights needs -o yaml: the printed command uses the rights of the user in the member's kubeconfig"
            );
        }
        Ok(())
    }

    /// Checks that there is no setting of an agent that this command starts elsewhere.
    ///
    /// # Errors
    /// When there is one: for a hosted member the controller's own setting applies.
    pub(super) fn check_hosted(&self) -> anyhow::Result<()> {
        if !self.reserved.patterns().is_empty() {
            bail!(
                "--reserved-namespaces: for mode hosted the flag of `atoll controller` applies; leave it out"
            );
        }
        if self.metrics_port.is_some() {
            bail!(
                "--metrics-port: for mode hosted the controller runs the agent, without metrics of its own; leave it out"
            );
        }
        if !self.rights.is_empty() {
            bail!(
                "--rights: for mode hosted the agent has the rights of the user in the member's kubeconfig; leave it out"
            );
        }
        Ok(())
    }

    /// Arguments of `atoll agent` that follow from the flags.
    pub(super) fn agent_args(&self) -> Vec<String> {
        let addresses = self.addresses.iter();
        let mut args: Vec<String> =
            addresses.flat_map(|address| ["--address".to_owned(), address.clone()]).collect();
        if !self.reserved.patterns().is_empty() {
            args.extend(["--reserved-namespaces".to_owned(), self.reserved.patterns().join(",")]);
        }
        if self.rights.contains(&Rights::Proxy) {
            args.push("--proxy".to_owned());
        }
        args
    }
}

/// A token and the address it is valid for.
pub(super) struct Invitation {
    pub(super) cluster: String,
    pub(super) token: String,
    pub(super) ca_hash: String,
    pub(super) flags: InvitationFlags,
}

impl Invitation {
    /// Prints it: the command for users, the parts for scripts, the manifest for the member.
    pub(super) fn print(&self, out: &Printer) -> anyhow::Result<()> {
        let command = self.command();
        let minutes = counted(self.flags.token_life, "minute", "minutes");
        match self.flags.output.output {
            Format::Table => out.line(format!(
                "Run once within {minutes}, where the API server of {} is reachable:\n\n{command}\n\n\
                 It reads the token from standard input:\n\n{}",
                self.cluster, self.token
            )),
            Format::Json => out.object(
                Format::Json,
                &json!({
                    "cluster": self.cluster,
                    "addresses": self.flags.addresses,
                    "caHash": self.ca_hash,
                    "token": self.token,
                    "command": command,
                }),
            ),
            Format::Yaml => out.line(manifest::text(self)?),
        }
    }

    pub(super) fn command(&self) -> String {
        // The shell would expand the * of a pattern.
        let quoted = |arg: String| if arg.contains('*') { format!("'{arg}'") } else { arg };
        let mut args: Vec<String> = self.flags.agent_args().into_iter().map(quoted).collect();
        if let Some(port) = self.flags.metrics_port {
            args.extend(["--metrics-listen".to_owned(), format!("127.0.0.1:{port}")]);
        }
        // Arguments are visible in the process list and the shell's history, so the token is not one of them.
        format!(
            "atoll agent --kubeconfig MEMBER_KUBECONFIG {} --ca-hash {} --token-file -",
            args.join(" "),
            self.ca_hash
        )
    }
}

fn address(text: &str) -> Result<String, String> {
    let parsed = text.parse::<Address>();
    parsed.map(|address| address.to_string()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for good in ["atoll.example.com:7443", "10.0.0.1:1", "[::1]:7443"] {
            assert_eq!(address(good).unwrap(), good);
        }
        for wrong in ["atoll.example.com", ":7443", "host:0", "host:65536", "host:https"] {
            assert!(address(wrong).unwrap_err().contains("HOST:PORT"), "{wrong}");
        }
    }
}
