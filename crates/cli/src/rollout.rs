//! `atoll rollout`: how far a workload's new template has come on each member, and its restart.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::{ArgAction, Args, Subcommand};
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::args::{HubFlags, seconds};
use crate::hub::Hub;
use crate::join::MANAGER;
use crate::print::{Printer, Text, Tone};
use crate::reach::{self, Failure, Member};
use crate::read::workload::{self, Workload};

/// How often the members are asked.
const LOOK: Duration = Duration::from_secs(1);
/// What `kubectl rollout restart` sets too.
const RESTARTED: &str = "kubectl.kubernetes.io/restartedAt";
/// Kinds of group `apps` that roll out.
const KINDS: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];

#[derive(Debug, Args)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show how far the rollout is on each member, until it is complete
    Status(StatusArgs),
    /// Restart the pods of a workload on all members, one after another as in a rollout
    Restart(RestartArgs),
}

#[derive(Debug, Args)]
struct StatusArgs {
    /// TYPE/NAME or TYPE NAME, for example deploy/web
    #[arg(num_args = 1..=2, required = true, value_name = "WORKLOAD")]
    workload: Vec<String>,
    /// Until it is complete; with --watch=false only its state now, and exit code 0 unless it is stuck
    #[arg(
        short = 'w',
        long,
        value_name = "BOOL",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    watch: bool,
    /// How long to wait: seconds, or 90s, 5m [default: without limit]
    #[arg(long, value_name = "DURATION", value_parser = seconds::<u64>)]
    timeout: Option<u64>,
    /// On this member only; may be given several times
    #[arg(long = "cluster", value_name = "MEMBER")]
    members: Vec<String>,
}

#[derive(Debug, Args)]
struct RestartArgs {
    /// TYPE/NAME or TYPE NAME, for example deploy/web
    #[arg(num_args = 1..=2, required = true, value_name = "WORKLOAD")]
    workload: Vec<String>,
}

pub(crate) async fn run(flags: &HubFlags, args: RolloutArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    match args.verb {
        Verb::Status(args) => status(&hub, &args, out).await,
        Verb::Restart(args) => restart(&hub, &args.workload, out).await,
    }
}

/// A workload of a kind that rolls out.
async fn resolve(hub: &Hub, words: &[String]) -> anyhow::Result<Workload> {
    let workload = workload::resolve(hub, words).await?;
    if workload.kind.group != "apps" || !KINDS.contains(&workload.kind.kind.as_str()) {
        bail!("{workload} has no rollout: name a Deployment, StatefulSet or DaemonSet");
    }
    Ok(workload)
}

fn templates(hub: &Hub, workload: &Workload) -> Api<DynamicObject> {
    let gvk = kube::core::GroupVersionKind::gvk("apps", "v1", &workload.kind.kind);
    let namespace = workload.namespace.as_deref().unwrap_or(&hub.namespace);
    Api::namespaced_with(hub.client.clone(), namespace, &ApiResource::from_gvk(&gvk))
}

async fn restart(hub: &Hub, words: &[String], out: &Printer) -> anyhow::Result<()> {
    let workload = resolve(hub, words).await?;
    let api = templates(hub, &workload);
    let template = hub.call(&format!("get {workload}"), api.get(&workload.name)).await?;
    if template.data["spec"]["paused"] == true {
        bail!("{workload} is paused: set spec.paused to false first");
    }
    let now = Timestamp::now().to_string();
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {RESTARTED: now}}}}});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(patch);
    let patched = api.patch(&workload.name, &params, &patch);
    hub.call(&format!("restart {workload}"), patched).await?;
    out.line(format!(
        "{workload} restarts; `atoll rollout status {}` shows how far it is",
        words.join("/")
    ))
}

/// How far a member is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Progress {
    Done(String),
    Waiting(String),
    /// It will not become complete by itself.
    Stuck(String),
    NotRead(String),
}

impl Progress {
    fn shown(&self) -> Text {
        match self {
            Self::Done(text) => Text::toned(text, Tone::Good),
            Self::Waiting(text) => Text::toned(text, Tone::Warn),
            Self::Stuck(text) | Self::NotRead(text) => Text::toned(text, Tone::Bad),
        }
    }
}

async fn status(hub: &Hub, args: &StatusArgs, out: &Printer) -> anyhow::Result<()> {
    let workload = resolve(hub, &args.workload).await?;
    let members = reach::members(hub, &args.members).await?;
    let deadline =
        args.timeout.map(|limit| tokio::time::Instant::now() + Duration::from_secs(limit));
    let width = members.iter().map(|member| member.name.len()).max().unwrap_or_default();
    let mut shown: BTreeMap<String, Progress> = BTreeMap::new();
    loop {
        let look = Look::at(hub, &workload, &members).await?;
        for (member, progress) in &look.members {
            if shown.get(member) != Some(progress) {
                let name = Text::from(member).padded(width + 2);
                out.styled_line(&[name, progress.shown()])?;
                shown.insert(member.clone(), progress.clone());
            }
        }
        if look.is_complete() {
            return Ok(());
        }
        if let Some(stuck) = look.stuck() {
            bail!("the rollout of {workload} does not continue on {stuck}");
        }
        if !args.watch {
            let unread = look.unread();
            ensure!(unread.is_empty(), "not all members could be read: {}", unread.join(", "));
            if look.members.is_empty() {
                out.line(format!("{workload}: {}", look.missing()))?;
            }
            return Ok(());
        }
        let late = deadline.is_some_and(|deadline| tokio::time::Instant::now() >= deadline);
        if late {
            bail!("the rollout of {workload} was not complete in time: {}", look.missing());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The state at one time.
struct Look {
    /// The hub's template has reached all members that it is for.
    sent: bool,
    members: BTreeMap<String, Progress>,
}

impl Look {
    async fn at(hub: &Hub, workload: &Workload, members: &[Member]) -> anyhow::Result<Self> {
        let api = templates(hub, workload);
        let template = hub.call(&format!("get {workload}"), api.get(&workload.name)).await?;
        // The smallest generation that all members report.
        let observed = template.data["status"]["observedGeneration"].as_i64().unwrap_or_default();
        let sent = observed >= template.metadata.generation.unwrap_or_default();
        let path = workload.path();
        let answers = reach::each(members, |member| member.get(&path, None)).await;
        let progress = answers.into_iter().filter_map(|(member, answer)| {
            Some((member.name.clone(), of_answer(&workload.kind.kind, answer)?))
        });
        Ok(Self { sent, members: progress.collect() })
    }

    fn is_complete(&self) -> bool {
        self.sent
            && !self.members.is_empty()
            && self.members.values().all(|progress| matches!(progress, Progress::Done(_)))
    }

    fn unread(&self) -> Vec<&str> {
        let unread = self.members.iter().filter(|(_, p)| matches!(p, Progress::NotRead(_)));
        unread.map(|(name, _)| name.as_str()).collect()
    }

    fn stuck(&self) -> Option<&str> {
        let mut all = self.members.iter();
        all.find(|(_, progress)| matches!(progress, Progress::Stuck(_)))
            .map(|(name, _)| name.as_str())
    }

    /// What is missing.
    fn missing(&self) -> String {
        let waits =
            self.members.iter().filter(|(_, progress)| !matches!(progress, Progress::Done(_)));
        let mut names: Vec<&str> = waits.map(|(name, _)| name.as_str()).collect();
        if names.is_empty() {
            names.push(match self.members.is_empty() {
                true => "no member has it",
                false => "not all members have the newest template",
            });
        }
        names.join(", ")
    }
}

/// `None`: the workload is not on the member.
fn of_answer(kind: &str, answer: Result<Value, Failure>) -> Option<Progress> {
    match answer {
        Ok(object) => Some(progress(kind, &object)),
        Err(failure) if failure.is_not_found() => None,
        Err(failure) => Some(Progress::NotRead(failure.to_string())),
    }
}

/// By the rules of `kubectl rollout status`.
fn progress(kind: &str, object: &Value) -> Progress {
    let (spec, status) = (&object["spec"], &object["status"]);
    let count = |field: &str| status[field].as_i64().unwrap_or_default().max(0);
    let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
    if count("observedGeneration") < generation {
        return Progress::Waiting("waiting for the member to see the new template".to_owned());
    }
    let wanted = match kind {
        "DaemonSet" => count("desiredNumberScheduled"),
        _ => spec["replicas"].as_i64().unwrap_or(1).max(0),
    };
    let (updated, available) = match kind {
        "DaemonSet" => (count("updatedNumberScheduled"), count("numberAvailable")),
        "StatefulSet" => (count("updatedReplicas"), count("readyReplicas")),
        _ => (count("updatedReplicas"), count("availableReplicas")),
    };
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    if conditions.any(|condition| condition["reason"] == "ProgressDeadlineExceeded") {
        return Progress::Stuck(format!("{updated} of {wanted} updated; its deadline has passed"));
    }
    if kind != "Deployment" && spec["updateStrategy"]["type"] == "OnDelete" {
        return Progress::Stuck("its updateStrategy is OnDelete: nothing rolls out".to_owned());
    }
    let partition = spec["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
    if updated < wanted - partition.clamp(0, wanted) {
        return Progress::Waiting(format!("{updated} of {wanted} updated"));
    }
    let old = if kind == "Deployment" { count("replicas") - updated } else { 0 };
    if old > 0 {
        return Progress::Waiting(format!("{old} old replicas have not ended"));
    }
    if available < wanted {
        return Progress::Waiting(format!("{available} of {wanted} available"));
    }
    Progress::Done(format!("complete: {available} of {wanted} available"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(status: Value) -> Progress {
        progress(
            "Deployment",
            &json!({"metadata": {"generation": 2}, "spec": {"replicas": 3}, "status": status}),
        )
    }

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: StatusArgs,
    }

    #[test]
    fn watch_is_spelled_as_for_kubectl() {
        let watch = |words: &[&str]| {
            let words = [&["status", "deploy/web"], words].concat();
            <Command as clap::Parser>::try_parse_from(words).map(|command| command.args.watch)
        };
        for (words, expected) in [
            (&[][..], true),
            (&["--watch"], true),
            (&["-w"], true),
            (&["--watch=true"], true),
            (&["--watch=false"], false),
            (&["-w=false"], false),
            (&["--watch=false", "--timeout", "5s"], false),
        ] {
            assert_eq!(watch(words).unwrap(), expected, "{words:?}");
        }
        assert!(watch(&["--watch=maybe"]).is_err());
    }

    #[test]
    fn a_rollout_is_complete_when_all_replicas_are_new_and_available() {
        let status = |observed: i64, replicas: i64, updated: i64, available: i64| json!({"observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated, "availableReplicas": available});
        for (given, part) in [
            (status(1, 3, 3, 3), "new template"),
            (status(2, 4, 1, 3), "1 of 3 updated"),
            (status(2, 4, 3, 3), "1 old replicas"),
            (status(2, 3, 3, 2), "2 of 3 available"),
        ] {
            let Progress::Waiting(text) = deployment(given) else { panic!("{part}") };
            assert!(text.contains(part), "{text}");
        }
        assert!(matches!(deployment(status(2, 3, 3, 3)), Progress::Done(_)));
        let mut late = status(2, 4, 1, 3);
        late["conditions"] = json!([{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]);
        assert!(matches!(deployment(late), Progress::Stuck(_)));
        let by_hand = json!({"spec": {"updateStrategy": {"type": "OnDelete"}}});
        assert!(matches!(progress("DaemonSet", &by_hand), Progress::Stuck(_)));
    }

    #[test]
    fn a_member_without_the_workload_does_not_count_and_one_that_cannot_be_read_does() {
        assert_eq!(
            of_answer("Deployment", Err(Failure::silent())).map(|p| p.shown().is_empty()),
            Some(false)
        );
        let look = |members: &[(&str, Progress)], sent| Look {
            sent,
            members: members.iter().map(|(name, p)| ((*name).to_owned(), p.clone())).collect(),
        };
        let done = Progress::Done("x".to_owned());
        assert!(look(&[("m1", done.clone())], true).is_complete());
        assert!(!look(&[("m1", done.clone())], false).is_complete());
        assert!(!look(&[], true).is_complete());
        let silent = look(&[("m1", done), ("m2", Progress::NotRead("x".to_owned()))], true);
        assert!(!silent.is_complete());
        assert_eq!(silent.missing(), "m2");
    }
}
