//! `atoll join`: registers a member on the hub and prints the command that starts its agent.

use anyhow::Context;
use atoll_api::cluster::ClusterSpec;
use atoll_api::{Clock, Cluster};
use atoll_controller::members;
use clap::Args;
use jiff::SignedDuration;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::args::{Format, HubFlags, OutputFlag};
use crate::hub::Hub;
use crate::print::{Printer, note};

#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// Name of the Cluster
    #[arg(value_name = "NAME")]
    name: String,
    /// Where agents reach the controller
    #[arg(long = "address", value_name = "HOST:PORT", required = true)]
    addresses: Vec<String>,
    /// Who runs the member's infrastructure
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// The member's region
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// The member's zones, comma separated
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    zones: Vec<String>,
    /// Minutes for which the token may be used, once
    #[arg(long, value_name = "MINUTES", default_value_t = 15)]
    token_life: u32,
    #[command(flatten)]
    output: OutputFlag,
}

pub(crate) async fn run(flags: &HubFlags, args: JoinArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    let doing = format!("look for Cluster {}", args.name);
    let cluster = match hub.call(&doing, clusters.get_opt(&args.name)).await? {
        Some(cluster) => {
            note(format!("Cluster {} is there already: this token joins it (again)", args.name));
            cluster
        }
        None => {
            let spec = ClusterSpec {
                provider: args.provider,
                region: args.region,
                zones: args.zones,
                ..ClusterSpec::default()
            };
            let cluster = Cluster::new(&args.name, spec);
            let params = PostParams::default();
            hub.call(&format!("make Cluster {}", args.name), clusters.create(&params, &cluster))
                .await?
        }
    };
    let clock = Clock::system();
    let life = SignedDuration::from_mins(i64::from(args.token_life));
    let authority = members::load(&hub.client)
        .await
        .context("the certificate authority")?
        .context("no controller has run on this hub yet: start `atoll controller` first")?;
    let token = members::create_token(&hub.client, &clock, &cluster, life)
        .await
        .context("make a token")?
        .reveal();
    let ca_hash = authority.hash().to_string();
    let addresses: String = args.addresses.iter().map(|a| format!(" --address {a}")).collect();
    let command = format!(
        "atoll agent --kubeconfig MEMBER_KUBECONFIG{addresses} --ca-hash {ca_hash} --token {token}"
    );
    match args.output.output {
        Format::Table => out.line(format!(
            "Within {} minutes, once, where {}'s API server can be reached:\n\n{command}",
            args.token_life, args.name
        )),
        format => out.object(
            format,
            &json!({
                "cluster": args.name,
                "addresses": args.addresses,
                "caHash": ca_hash,
                "token": token,
                "command": command,
            }),
        ),
    }
}
