//! `atoll token`: bootstrap tokens, with which members join.

use anyhow::{Context, bail};
use atoll_api::Clock;
use atoll_controller::members::{self, IssuedToken};
use atoll_history::api::text::age;
use atoll_protocol::token::TokenId;
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::args::{Format, HubFlags, OutputFlag};
use crate::hub::Hub;
use crate::join;
use crate::print::{Printer, Text, Tone};

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a token for a member and print it; it is shown only once
    Create {
        /// The member; its Cluster must exist
        #[arg(value_name = "MEMBER")]
        member: String,
        /// Minutes for which it is valid; at most 1440. It can be used once
        #[arg(long, value_name = "MINUTES", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1440))]
        token_life: u32,
        #[command(flatten)]
        output: OutputFlag,
    },
    /// List the valid tokens; their secrets are not stored
    List {
        #[command(flatten)]
        output: OutputFlag,
    },
    /// Revoke a token; a member that joined with it stays
    Revoke {
        /// Its id: the part before the dot
        #[arg(value_name = "ID")]
        id: String,
    },
}

pub(crate) async fn run(flags: &HubFlags, args: TokenArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    match args.verb {
        Verb::Create { member, token_life, output } => {
            let ca_hash = join::authority(&hub).await?;
            let Some(cluster) = join::find(&hub, &member).await? else {
                bail!("there is no Cluster {member}: `atoll join {member}` makes it, with a token");
            };
            let life = SignedDuration::from_mins(i64::from(token_life));
            let token = members::create_token(&hub.client, &Clock::system(), &cluster, life)
                .await
                .context("make a token")?
                .reveal();
            match output.output {
                Format::Table => out.line(format!(
                    "Flags for `atoll agent`, which reads the token from standard input:\n\n\
                     --ca-hash {ca_hash} --token-file -\n\n{token}"
                )),
                format => out
                    .object(format, &json!({"cluster": member, "token": token, "caHash": ca_hash})),
            }
        }
        Verb::List { output } => {
            let tokens = members::list_tokens(&hub.client).await.context("list the tokens")?;
            let now = Timestamp::now();
            match output.output {
                Format::Table if tokens.is_empty() => out.line("No tokens."),
                Format::Table => out.table(
                    &["ID", "MEMBER", "STATE", "ENDS IN"],
                    tokens.iter().map(|token| row(token, now)).collect(),
                ),
                format => {
                    let items: Vec<_> = tokens.iter().map(|token| item(token, now)).collect();
                    out.object(format, &json!({"tokens": items}))
                }
            }
        }
        Verb::Revoke { id } => {
            // Users often paste the whole token instead of its id; the secret half is dropped.
            let id = id.split_once('.').map_or(id.as_str(), |(id, _)| id);
            let token = TokenId::new(id).context("ID: `atoll token list` shows them")?;
            let revoked = members::revoke_token(&hub.client, &token).await;
            if !revoked.with_context(|| format!("revoke token {id}"))? {
                bail!("there is no token {id}: `atoll token list` shows them");
            }
            out.line(format!("Token {id} is revoked."))
        }
    }
}

fn state(token: &IssuedToken, now: Timestamp) -> (&'static str, Tone) {
    if token.used {
        ("Used", Tone::Plain)
    } else if token.expires.is_none_or(|expires| expires <= now) {
        ("Expired", Tone::Plain)
    } else {
        ("Open", Tone::Warn)
    }
}

fn row(token: &IssuedToken, now: Timestamp) -> Vec<Text> {
    let (state, tone) = state(token, now);
    let left = match token.expires {
        Some(expires) if expires > now => age(now, expires),
        _ => "-".to_owned(),
    };
    vec![(&token.id).into(), (&token.cluster).into(), Text::toned(state, tone), left.into()]
}

fn item(token: &IssuedToken, now: Timestamp) -> Value {
    json!({
        "id": token.id,
        "cluster": token.cluster,
        "state": state(token, now).0,
        "expires": token.expires.map(|expires| expires.to_string()),
    })
}
