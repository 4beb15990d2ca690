//! `atoll drain`: empties a member. The verb sets two taints and prints the controller's progress. The controller does
//! the work, and its pace and timers are stored in the hub, so the verb may be interrupted at any time.

mod plan;

use std::time::Duration;

use anyhow::{bail, ensure};
use atoll_api::binding::TargetCluster;
use atoll_api::cluster::ClusterSpec;
use atoll_api::{Cluster, ResourceBinding, conditions};
use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use kube::Api;
use serde_json::json;
use tokio::time::Instant;

use crate::args::{Format, HubFlags, OutputFlag, TenancyFlag, seconds};
use crate::cordon;
use crate::hub::Hub;
use crate::join;
use crate::print::{self, Printer};
use crate::read::bindings;

/// Interval at which the hub is polled for progress.
const ASK: Duration = Duration::from_secs(1);
/// A condition older than the drain counts after this time: by then a controller has seen the taint and had no change
/// to report.
const SETTLED: SignedDuration = SignedDuration::from_secs(15);
/// Without a status from a controller for this long, the user is warned that none may be running.
const NO_WORD: Duration = Duration::from_secs(15);

#[derive(Debug, Args)]
#[command(
    after_help = "The controller moves the work, within its pace (`atoll controller --eviction-rate`, \
                        `--eviction-room-percent`), and an old copy goes when its replacement is healthy. It goes on \
                        when this verb ends; `atoll uncordon MEMBER` stops it. What no other member can take is never \
                        removed: it is named, and holds the drain unless it takes no room (configuration, access rules, \
                        Jobs that have ended, DaemonSets). Exit code 0 when the member is empty, 1 when something holds \
                        it or the time is over."
)]
pub(crate) struct DrainArgs {
    /// The member
    #[arg(value_name = "MEMBER")]
    member: String,
    /// Only list what would move, as the scheduler decides now
    #[arg(
        long,
        value_name = "STRATEGY",
        num_args = 0..=1,
        require_equals = true,
        default_value = "none",
        default_missing_value = "client"
    )]
    dry_run: DryRun,
    /// Do not wait until the member is empty
    #[arg(long, conflicts_with = "dry_run")]
    no_wait: bool,
    #[command(flatten)]
    tenancy: TenancyFlag,
    /// How long to wait: seconds, or 90s, 5m, 1h; 0 = until it is empty [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds::<u64>, conflicts_with_all = ["dry_run", "no_wait"])]
    timeout: Option<u64>,
    /// Let DaemonSets that have no other place stay; =false refuses to drain a member that has a DaemonSet
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    ignore_daemonsets: bool,
    #[command(flatten)]
    kubectls: KubectlFlags,
    #[command(flatten)]
    output: OutputFlag,
}

/// Whether anything is changed, as kubectl has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum DryRun {
    /// The member is drained
    #[default]
    None,
    /// Nothing is sent
    Client,
    /// The hub also checks whether it would take the drain's taints
    Server,
}

/// Flags of `kubectl drain` that have no counterpart. They are known so that the error can say what to do instead.
#[derive(Debug, Args)]
struct KubectlFlags {
    #[arg(long, hide = true)]
    force: bool,
    #[arg(long, hide = true)]
    delete_emptydir_data: bool,
    #[arg(long, hide = true)]
    disable_eviction: bool,
    #[arg(long, hide = true, value_name = "SECONDS", allow_hyphen_values = true)]
    grace_period: Option<String>,
}

impl DrainArgs {
    /// Refuses flags of `kubectl drain` that mean nothing here.
    ///
    /// # Errors
    /// Names the flag and what to do instead.
    pub(crate) fn check(&self) -> Result<(), String> {
        const PODS: &str =
            "a drain moves workloads between members and evicts no pods; leave it out";
        let flags = &self.kubectls;
        let refused = [
            (
                flags.force,
                "--force",
                "what runs is never removed before it runs elsewhere; for what has no other place, change its policy or \
                 delete it, or see `atoll unjoin --force`",
            ),
            (flags.delete_emptydir_data, "--delete-emptydir-data", PODS),
            (flags.disable_eviction, "--disable-eviction", PODS),
            (
                flags.grace_period.is_some(),
                "--grace-period",
                "the policy sets how long the old copy stays: spec.failover.cluster.gracePeriodSeconds",
            ),
        ];
        match refused.into_iter().find(|(given, ..)| *given) {
            Some((_, flag, why)) => Err(format!("`atoll drain` has no {flag}: {why}")),
            None => Ok(()),
        }
    }
}

pub(crate) async fn run(flags: &HubFlags, args: DrainArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let member = &args.member;
    if join::find(&hub, member).await?.is_none() {
        bail!("there is no member {member}: `atoll get members` lists them");
    }
    if !args.ignore_daemonsets {
        let found = daemon_sets(&hub, member).await?;
        ensure!(
            found.is_empty(),
            "cannot drain {member}: it has DaemonSets (without --ignore-daemonsets=false they stay): {}",
            found.join(", ")
        );
    }
    if args.dry_run != DryRun::None {
        if args.dry_run == DryRun::Server {
            cordon::try_drain(&hub, member).await?;
        }
        return plan::run(&hub, member, args.tenancy, args.output.output, out).await;
    }
    let cluster = cordon::drain(&hub, member).await?;
    if args.no_wait {
        return tell(out, args.output.output, member, None);
    }
    print::note(format!(
        "Draining {member}. The controller continues without this command; `atoll uncordon {member}` stops the drain."
    ));
    let timeout = args.timeout.filter(|seconds| *seconds > 0);
    let until = timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let word = wait(&hub, &cluster, until).await?;
    let left = (!word.done).then(|| word.message.clone());
    tell(out, args.output.output, member, Some(&word))?;
    match left {
        None => Ok(()),
        Some(left) => bail!("{member} is not empty: {left}"),
    }
}

/// DaemonSets with a share on the member.
async fn daemon_sets(hub: &Hub, member: &str) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    bindings::each_of::<ResourceBinding>(hub, None, &mut |binding| {
        let (spec, here) = (binding.spec, |target: &TargetCluster| target.name == member);
        if spec.resource.kind == "DaemonSet" && spec.clusters.iter().any(here) {
            let namespace = spec.resource.namespace.unwrap_or_default();
            found.push(format!("{namespace}/{}", spec.resource.name));
        }
    })
    .await?;
    Ok(found)
}

/// The controller's report on a member that is being drained.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    done: bool,
    reason: String,
    message: String,
}

impl Word {
    /// The condition of a Cluster, if it is about this drain.
    fn of(cluster: &Cluster, drained: Timestamp, now: Timestamp) -> Option<Self> {
        let held = &cluster.status.as_ref()?.conditions;
        let said = conditions::find(held, conditions::EMPTIED)?;
        let fresh =
            said.last_transition_time.0 >= drained || now.duration_since(drained) >= SETTLED;
        fresh.then(|| Self {
            done: said.status == "True",
            reason: said.reason.clone(),
            message: said.message.clone(),
        })
    }

    /// Whether the status can no longer change.
    fn is_final(&self) -> bool {
        self.done || self.reason == "PolicyKeeps"
    }
}

/// When the drain began, from its taint.
fn began(spec: &ClusterSpec) -> Option<Timestamp> {
    let taint = spec.taints.iter().find(|taint| cordon::is_drain(taint))?;
    Some(taint.time_added.as_ref()?.0)
}

/// Follows the controller's reports until one is final or the time is up.
async fn wait(hub: &Hub, cluster: &Cluster, until: Option<Instant>) -> anyhow::Result<Word> {
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let (start, mut warned) = (Instant::now(), false);
    let mut last: Option<Word> = None;
    loop {
        let Some(cluster) =
            hub.call(&format!("get member {name}"), clusters.get_opt(&name)).await?
        else {
            bail!("{name} is no longer a member");
        };
        let Some(drained) = began(&cluster.spec) else {
            bail!("the drain of {name} was stopped: its taint was removed");
        };
        let word = Word::of(&cluster, drained, Timestamp::now());
        if let Some(word) = word {
            if last.as_ref() != Some(&word) && !word.done {
                print::note(format!("{name}: {}", word.message));
            }
            if word.is_final() {
                return Ok(word);
            }
            last = Some(word);
        }
        if last.is_none() && !warned && start.elapsed() >= NO_WORD {
            warned = true;
            print::note("no progress reported yet: is a controller running?");
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            let silent = Word {
                done: false,
                reason: "NoWord".to_owned(),
                message: "no controller reported any progress; is one running?".to_owned(),
            };
            return Ok(last.unwrap_or(silent));
        }
        tokio::time::sleep(ASK).await;
    }
}

fn tell(out: &Printer, format: Format, member: &str, word: Option<&Word>) -> anyhow::Result<()> {
    match (format, word) {
        (Format::Table, None) => out.line(format!(
            "Draining {member}: `atoll get members {member}` and its condition Emptied show the progress."
        )),
        (Format::Table, Some(word)) if word.done => out.line(format!(
            "{member} is drained: {}. `atoll uncordon {member}` allows work on it again.",
            word.message
        )),
        (Format::Table, Some(_)) => Ok(()),
        (format, word) => out.object(
            format,
            &json!({
                "member": member,
                "emptied": word.is_some_and(|word| word.done),
                "reason": word.map(|word| &word.reason),
                "message": word.map(|word| &word.message),
            }),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(status: &str, reason: &str, since: &str) -> Cluster {
        serde_json::from_value(json!({
            "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m1"},
            "spec": {"taints": [{"key": "cluster.atoll.dev/drain", "effect": "NoExecute",
                "timeAdded": "2026-01-01T00:10:00Z"}]},
            "status": {"conditions": [{"type": "Emptied", "status": status, "reason": reason,
                "message": "m", "lastTransitionTime": since}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_word_on_an_earlier_drain_is_not_believed_at_once() {
        let now = "2026-01-01T00:10:02Z".parse().unwrap();
        let old = cluster("True", "Emptied", "2026-01-01T00:00:00Z");
        let drained = began(&old.spec).unwrap();
        assert_eq!(Word::of(&old, drained, now), None);
        let later = "2026-01-01T00:10:15Z".parse().unwrap();
        assert!(Word::of(&old, drained, later).unwrap().is_final());
        let new = cluster("False", "Paced", "2026-01-01T00:10:01Z");
        assert!(!Word::of(&new, drained, now).unwrap().is_final());
        let kept = cluster("False", "PolicyKeeps", "2026-01-01T00:10:01Z");
        let word = Word::of(&kept, drained, now).unwrap();
        assert!(word.is_final() && !word.done);
    }
}
