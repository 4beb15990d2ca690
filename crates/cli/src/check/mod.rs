//! `atoll check`: one line for each fact about the hub and the federation, with the fix where something is wrong.

mod hub;
mod plane;
mod rights;

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::args::{Format, HubFlags, OutputFlag};
use crate::hub::Hub;
use crate::print::{Printer, Text, Tone, causes, counted};

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Before an installation: whether the cluster can be a hub, and whether you may install
    #[arg(long)]
    pre: bool,
    #[command(flatten)]
    output: OutputFlag,
}

/// How a fact is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum State {
    /// As it should be.
    Ok,
    /// It works, but something needs attention.
    Warning,
    /// Something does not work.
    Failed,
    /// It could not be found out.
    Unknown,
}

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Fact {
    /// What was checked.
    check: &'static str,
    state: State,
    text: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Fact {
    fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, state: State::Ok, text: text.into(), fix: None }
    }

    fn new(
        check: &'static str,
        state: State,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { check, state, text: text.into(), fix: Some(fix.into()) }
    }

    /// A fact that a failed request leaves open.
    fn unknown(check: &'static str, error: &anyhow::Error) -> Self {
        let fix = match crate::hub::status(error) {
            Some(401) => "renew your credentials for the hub",
            Some(403) => "repeat with rights to read it on the hub",
            Some(404) => {
                "the hub does not serve this kind: `atoll install | kubectl apply --server-side -f -`"
            }
            Some(_) => "look at the hub's log, then repeat",
            None => "repeat; if it stays so, check the connection to the hub",
        };
        Self::new(check, State::Unknown, causes(error), fix)
    }
}

pub(crate) async fn run(flags: &HubFlags, args: CheckArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    // Without an answer there are no facts, but one error.
    let mut facts = hub::server(&hub).await?;
    if args.pre {
        facts.push(hub::nodes(&hub).await);
        facts.push(hub::kinds(&hub, true).await);
        facts.push(rights::installer(&hub, flags.namespace.as_deref()).await);
    } else {
        facts.push(hub::kinds(&hub, false).await);
        facts.push(rights::operator(&hub).await);
        facts.extend(plane::facts(&hub).await);
    }
    let failed = facts.iter().filter(|fact| fact.state == State::Failed).count();
    match args.output.output {
        Format::Table => print(&facts, out)?,
        format => out.object(format, &json!({"healthy": failed == 0, "checks": facts}))?,
    }
    match failed {
        0 => Ok(()),
        failed => bail!("{} failed", counted(failed as u64, "check", "checks")),
    }
}

fn print(facts: &[Fact], out: &Printer) -> anyhow::Result<()> {
    let row = |fact: &Fact| {
        let (word, tone) = match fact.state {
            State::Ok => ("ok", Tone::Good),
            State::Warning => ("warning", Tone::Warn),
            State::Failed => ("FAILED", Tone::Bad),
            State::Unknown => ("unknown", Tone::Warn),
        };
        let text = match &fact.fix {
            Some(fix) => format!("{}. Fix: {fix}", fact.text),
            None => fact.text.clone(),
        };
        vec![Text::toned(word, tone), fact.check.into(), text.into()]
    };
    out.table_keeping(2, &["STATE", "CHECK", "RESULT"], facts.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_about_a_failed_request_depends_on_the_answer() {
        let fix = |code: u16| {
            let status = kube::core::Status { code, ..Default::default() };
            let error = kube::Error::Api(Box::new(status));
            let error = anyhow::Error::from(error).context("list members (context \"hub\")");
            Fact::unknown("members", &error).fix.unwrap()
        };
        assert!(fix(401).contains("credentials"), "{}", fix(401));
        assert!(fix(403).contains("rights"), "{}", fix(403));
        assert!(fix(404).contains("atoll install"), "{}", fix(404));
        assert!(fix(500).contains("hub's log"), "{}", fix(500));
        let silent = Fact::unknown("members", &anyhow::anyhow!("no answer")).fix.unwrap();
        assert!(silent.contains("connection"), "{silent}");
    }
}
