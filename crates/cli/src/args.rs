//! The command line: the verbs, and the flags that verbs share.

use atoll_controller::pace::{self, PaceLimits};
use atoll_scheduler::RecoverAfter;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

pub(crate) use atoll_program::flags::{HubFlags, LogFlag, ReservedFlag, TraceFlags, tracer};
use atoll_program::logging::LogFormat;

use crate::{
    accept_term, approve, ca, check, completion, confirm_lost, console, convert, cordon, drain,
    events, hub_setup, install, interpret, join, kubeconfig, kubectl, lint, logs, man, migrate,
    orphans, plan, promote, read, rebalance, render, replay, revoke, rollout, schedule, serve, sim,
    status, token, top, uninstall, unjoin, up, version,
};

/// Exit codes are a stable interface for scripts.
const EXIT_CODES: &str = "Exit codes:
  0  done; `up`, `controller` and `agent`: ended by Ctrl-C or SIGTERM
  1  not done: an error, something that does not exist, bad objects (`lint`, `schedule`, `render`), a member that is not empty
     (`drain`). The last line on stderr says what and how to fix it
  2  wrong arguments; nothing was tried. `plan`: done, and something would change (wrong arguments are 1 there)
  *  `exec`, `attach`, `port-forward`, `cp` and `describe`: that of kubectl
  3  `convert`: done, but parts of the input have no equivalent; the report names them";

/// A federation control plane for Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "atoll", version, propagate_version = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) hub: HubFlags,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a whole federation on this machine: a hub and simulated members
    Up(up::UpArgs),
    /// Cause faults in the simulated members of `atoll up`
    Sim(sim::SimArgs),
    /// Print the manifests of the hub side, for `kubectl apply --server-side -f -`
    Install(install::InstallArgs),
    /// Check hub, controllers and members, and say how to fix what is wrong
    Check(check::CheckArgs),
    /// Remove the hub side; workloads on members keep running
    Uninstall(uninstall::UninstallArgs),
    /// Run the control plane against a hub
    Controller(serve::controller::ControllerArgs),
    /// Run a member's agent
    Agent(atoll_program::agent::AgentArgs),
    /// Print contexts with which kubectl and other clients reach members through the hub
    Kubeconfig(kubeconfig::KubeconfigArgs),
    /// Print the logs of a workload's pods on all members
    Logs(logs::LogsArgs),
    /// Print what pods or nodes of all members use
    Top(top::TopArgs),
    /// List Events of all members
    Events(events::EventsArgs),
    /// Run a command in a pod of a member, with kubectl
    Exec(kubectl::ExecArgs),
    /// Attach to a pod of a member, with kubectl
    Attach(kubectl::AttachArgs),
    /// Forward local ports to a pod of a member, with kubectl
    PortForward(kubectl::PortForwardArgs),
    /// Copy files to or from a pod of a member, with kubectl
    Cp(kubectl::CpArgs),
    /// Describe a pod or another object of a member, with kubectl
    Describe(kubectl::DescribeArgs),
    /// Show how far a workload's rollout is on each member, or restart its pods
    Rollout(rollout::RolloutArgs),
    /// Take an object that a member has already to the hub, with a policy that keeps it there; its pods run on
    Promote(promote::PromoteArgs),
    /// Register a member and print the command that joins it
    Join(join::JoinArgs),
    /// Print a new command for a member that joined once
    Rejoin(join::RejoinArgs),
    /// Revoke all certificates of a member, for example after one was stolen
    Revoke(revoke::RevokeArgs),
    /// Remove a member from the federation: move its work, empty it, delete its Cluster
    Unjoin(unjoin::UnjoinArgs),
    /// List objects on members that belong to no binding
    Orphans(orphans::OrphansArgs),
    /// Remove orphans from a member, or release removals that are held there
    Prune(orphans::PruneArgs),
    /// Confirm that silent members are lost when the controller suspects its own network
    ConfirmLost(confirm_lost::ConfirmLostArgs),
    /// Accept the higher leader term that a member's agent reports, after a restore of the hub
    AcceptTerm(accept_term::AcceptTermArgs),
    /// Make the certificates of a bundled hub and apply its objects; a Job runs it
    #[command(hide = true)]
    HubSetup(hub_setup::SetupArgs),
    /// Delete old snapshots of a bundled hub; a CronJob runs it
    #[command(hide = true)]
    HubBackups(hub_setup::BackupsArgs),
    /// Show or replace the certificate authority of the agents
    Ca(ca::CaArgs),
    /// Manage the bootstrap tokens with which members join
    Token(token::TokenArgs),
    /// Stop placing new work on a member
    Cordon(cordon::CordonArgs),
    /// Move all work off a member
    Drain(drain::DrainArgs),
    /// Divide workloads again from zero, after printing what would move
    Rebalance(rebalance::RebalanceArgs),
    /// Show what a change would move before it is made: objects from files, members that fail, other replicas
    Plan(plan::PlanArgs),
    /// List what ChangeGuards hold: plans of changes that would move more than they allow
    Guards(approve::GuardsArgs),
    /// Release a plan that a ChangeGuard holds
    Approve(approve::ApproveArgs),
    /// Place new work on a member again
    Uncordon(cordon::CordonArgs),
    /// List decisions, newest first: of one workload, of a namespace, or all
    History(read::history::HistoryArgs),
    /// Explain for every cluster why a workload got its replicas, and what would change that
    Explain(read::explain::ExplainArgs),
    /// Draw where a workload ran over time: replicas on each member, and the decisions
    Timeline(read::timeline::TimelineArgs),
    /// Make recorded decisions again and show what differs, also with changed policies or plugins
    Replay(replay::ReplayArgs),
    /// Compare two decisions: shares, verdicts, scores, room, policies
    Diff(read::diff::DiffArgs),
    /// Show the decisions that the controller would make for objects from files
    Schedule(schedule::ScheduleArgs),
    /// Print what each member would get of objects from files: replicas and overrides
    Render(render::RenderArgs),
    /// Find policies that contradict themselves, match nothing, or never win over others
    Lint(lint::LintArgs),
    /// Show what Atoll makes of an object: its replicas, health, status, dependencies
    Interpret(interpret::InterpretArgs),
    /// Convert Karmada's objects to Atoll's, with a report on every field
    Convert(convert::ConvertArgs),
    /// Move a running estate from Karmada: its placements stay, and no pod starts again
    Migrate(migrate::MigrateArgs),
    /// Serve the web console on loopback, with the rights of the kubeconfig's user
    Console(console::ConsoleArgs),
    /// Show the federation on one screen: leader, members, and workloads that fail, wait, are held or move
    Status(status::StatusArgs),
    /// List members, or objects on all members
    Get(read::get::GetArgs),
    /// List the work of each member
    Work(read::work::WorkArgs),
    /// Print or write manual pages
    Man(man::ManArgs),
    /// Print the versions of this program, of the controller and of the agents
    Version(version::VersionArgs),
    /// Print a script with which a shell completes verbs, flags, and names of members and workloads
    Completion(completion::CompletionArgs),
}

impl Cli {
    /// Refuses flags that the verb does not use, rather than ignoring them.
    ///
    /// # Errors
    /// Names the flag and the verb.
    pub(crate) fn check(&self) -> Result<(), clap::Error> {
        let (verb, unused) = match &self.command {
            Command::Up(_) => ("up", &["kubeconfig", "context", "namespace"][..]),
            Command::Sim(_) => ("sim", &["kubeconfig", "context", "namespace"][..]),
            // The manifests are for any cluster; their namespace is a choice.
            Command::Install(_) => ("install", &["kubeconfig", "context"][..]),
            Command::HubSetup(_) => ("hub-setup", &["kubeconfig", "context", "namespace"][..]),
            Command::HubBackups(_) => ("hub-backups", &["kubeconfig", "context", "namespace"][..]),
            Command::Schedule(_) => ("schedule", &["kubeconfig", "context", "namespace"][..]),
            Command::Render(_) => ("render", &["kubeconfig", "context", "namespace"][..]),
            Command::Lint(_) => ("lint", &["kubeconfig", "context", "namespace"][..]),
            Command::Interpret(_) => ("interpret", &["kubeconfig", "context", "namespace"][..]),
            // --from names the kubeconfig, so that no one converts the hub by mistake.
            Command::Convert(args) if args.reads_server() => {
                ("convert --from", &["kubeconfig"][..])
            }
            Command::Convert(_) => ("convert", &["kubeconfig", "context", "namespace"][..]),
            Command::Plan(args) if args.is_offline() => {
                ("plan --against", &["kubeconfig", "context", "namespace"][..])
            }
            Command::Man(_) => ("man", &["kubeconfig", "context", "namespace"][..]),
            Command::Completion(_) => ("completion", &["kubeconfig", "context", "namespace"][..]),
            Command::Controller(_) => ("controller", &["namespace"][..]),
            Command::Agent(_) => ("agent", &["namespace"][..]),
            Command::Drain(args) => {
                let wrong = |text| Self::command().error(ErrorKind::ArgumentConflict, text);
                return args.check().map_err(wrong);
            }
            _ => return Ok(()),
        };
        let given = [
            ("kubeconfig", self.hub.kubeconfig.is_some()),
            ("context", self.hub.context.is_some()),
            ("namespace", self.hub.namespace.is_some()),
        ];
        let Some((flag, _)) = given.iter().find(|(flag, given)| *given && unused.contains(flag))
        else {
            return Ok(());
        };
        let text = format!("`atoll {verb}` does not use --{flag}: leave it out");
        Err(Self::command().error(ErrorKind::ArgumentConflict, text))
    }
}

impl Command {
    /// How log lines are written.
    pub(crate) fn log_format(&self) -> LogFormat {
        match self {
            Self::Controller(args) => args.log.log_format,
            Self::Agent(args) => args.log.log_format,
            Self::Up(args) => args.log.log_format,
            _ => LogFormat::Text,
        }
    }

    /// Log filter when RUST_LOG is not set: verbs that print an answer log warnings only, servers log their work.
    pub(crate) fn default_log(&self) -> &'static str {
        match self {
            Self::Controller(_) | Self::Agent(_) => "info",
            // `up` prints its own progress.
            Self::Up(_)
            | Self::Sim(_)
            | Self::Install(_)
            | Self::Check(_)
            | Self::Uninstall(_)
            | Self::Kubeconfig(_)
            | Self::Logs(_)
            | Self::Top(_)
            | Self::Events(_)
            | Self::Exec(_)
            | Self::Attach(_)
            | Self::PortForward(_)
            | Self::Cp(_)
            | Self::Describe(_)
            | Self::Rollout(_)
            | Self::Promote(_)
            | Self::Join(_)
            | Self::Rejoin(_)
            | Self::Ca(_)
            | Self::HubSetup(_)
            | Self::HubBackups(_)
            | Self::Revoke(_)
            | Self::Unjoin(_)
            | Self::Orphans(_)
            | Self::Prune(_)
            | Self::ConfirmLost(_)
            | Self::AcceptTerm(_)
            | Self::Token(_)
            | Self::Cordon(_)
            | Self::Drain(_)
            | Self::Rebalance(_)
            | Self::Plan(_)
            | Self::Guards(_)
            | Self::Approve(_)
            | Self::Uncordon(_)
            | Self::History(_)
            | Self::Explain(_)
            | Self::Timeline(_)
            | Self::Replay(_)
            | Self::Diff(_)
            | Self::Schedule(_)
            | Self::Render(_)
            | Self::Lint(_)
            | Self::Interpret(_)
            | Self::Convert(_)
            | Self::Migrate(_)
            | Self::Get(_)
            | Self::Work(_)
            | Self::Status(_)
            | Self::Console(_)
            | Self::Version(_)
            | Self::Man(_)
            | Self::Completion(_) => "warn",
        }
    }
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people, as wide as the terminal; 100 columns where there is none
    #[default]
    Table,
    /// The objects, as JSON
    Json,
    /// The objects, as YAML
    Yaml,
}

/// How rows are printed, for verbs whose table has more columns than fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WideFormat {
    /// For people: the most important columns
    Table,
    /// The table with all its columns
    Wide,
    /// The objects, as JSON
    Json,
    /// The objects, as YAML
    Yaml,
}

/// How a list of objects is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    /// For people: the most important columns
    Table,
    /// The table with all its columns
    Wide,
    /// Type and name of each object, one a line, as `deployment.apps/web`
    Name,
    /// The objects, as JSON
    Json,
    /// The objects, as YAML
    Yaml,
}

impl ListFormat {
    /// The format of whole objects; `None` for a table, and for names.
    pub(crate) fn objects(self) -> Option<Format> {
        match self {
            Self::Table | Self::Wide | Self::Name => None,
            Self::Json => Some(Format::Json),
            Self::Yaml => Some(Format::Yaml),
        }
    }
}

impl WideFormat {
    /// The format of objects; `None` for a table.
    pub(crate) fn objects(self) -> Option<Format> {
        match self {
            Self::Table | Self::Wide => None,
            Self::Json => Some(Format::Json),
            Self::Yaml => Some(Format::Yaml),
        }
    }
}

/// How fast work leaves members that failed or are drained, when it may come back, and how fast changed overrides roll
/// out.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct PaceFlags {
    /// Limit of workloads per second that leave failed and drained members, in all; 0 = no limit
    #[arg(long, value_name = "PER-SECOND", default_value_t = pace::BINDINGS_PER_SECOND)]
    eviction_rate: u32,
    /// Limit of a surviving member's room that they fill within 10 s, in percent; 0 = no limit
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = pace::ROOM_PERCENT,
        value_parser = clap::value_parser!(u32).range(0..=100)
    )]
    eviction_room_percent: u32,
    /// Limit of workloads per second that are rendered anew because override policies or Clusters changed; 0 = no limit
    #[arg(long, value_name = "PER-SECOND", default_value_t = pace::ROLLOUTS_PER_SECOND)]
    rollout_rate: u32,
    /// Limit of replicas per minute that move in the background because the skew of a hard topologySpreadConstraint is above
    /// maxSkew; 0 = running replicas stay
    #[arg(long, value_name = "REPLICAS-PER-MINUTE", default_value_t = 0)]
    mend_skew_rate: u32,
    /// Seconds that a member must have been Ready without a break before work moves back to it, where a policy allows
    /// `Recovery`; 0 = at once [default: 300, as long as its loss lasts before work moves off it; `atoll up`: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds::<u32>)]
    recover_after: Option<u32>,
}

impl PaceFlags {
    /// The time before work moves back; `default` when the flag is not given.
    pub(crate) fn recover_after(&self, default: RecoverAfter) -> RecoverAfter {
        self.recover_after.map_or(default, RecoverAfter::seconds)
    }
}

impl From<PaceFlags> for PaceLimits {
    fn from(flags: PaceFlags) -> Self {
        Self {
            bindings_per_second: flags.eviction_rate,
            room_percent: flags.eviction_room_percent,
            rollouts_per_second: flags.rollout_rate,
            mended_replicas_per_minute: flags.mend_skew_rate,
        }
    }
}

/// Which clusters namespaces without a ClusterSet may use.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct TenancyFlag {
    /// Namespaces that no ClusterSet selects may use no member; without this flag they may use all. Verbs that show what
    /// the controller would do need it if the controller has it
    #[arg(long)]
    pub(crate) require_cluster_sets: bool,
}

/// The flag `-o`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputFlag {
    /// How to print the answer
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
}

/// How long history is kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct RetentionFlag {
    /// Days for which decisions are kept; the current ones are kept at any age. PostgreSQL drops whole weeks
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    history_retention: u32,
}

impl RetentionFlag {
    pub(crate) fn duration(&self) -> std::time::Duration {
        std::time::Duration::from_secs(u64::from(self.history_retention) * 24 * 60 * 60)
    }
}

/// Parses whole seconds: a number, or a duration as in kubectl (90s, 5m, 1h30m).
///
/// # Errors
/// When it is neither, is negative, has a fraction of a second, or does not fit the type; the text says what is
/// allowed.
pub(crate) fn seconds<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = match text.parse::<u64>() {
        Ok(number) => Some(number),
        Err(_) => text
            .parse::<jiff::SignedDuration>()
            .ok()
            .filter(|duration| duration.subsec_nanos() == 0)
            .and_then(|duration| u64::try_from(duration.as_secs()).ok()),
    };
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| "give whole seconds: 90, or 90s, 5m, 1h30m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_that_a_verb_does_not_use_are_refused() {
        let check = |line: &str| Cli::try_parse_from(line.split(' ')).unwrap().check();
        for line in ["atoll up -n shop", "atoll sim list --context hub", "atoll controller -n shop"]
        {
            let error = check(line).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{line}");
            assert!(error.to_string().contains("does not use --"), "{error}");
        }
        for line in ["atoll up", "atoll history -n shop", "atoll controller --kubeconfig f"] {
            check(line).unwrap();
        }
    }

    #[test]
    fn flags_of_kubectl_drain_without_a_counterpart_say_what_to_do() {
        let check =
            |flag: &str| Cli::try_parse_from(["atoll", "drain", "m1", flag]).unwrap().check();
        for (flag, fix) in [
            ("--force", "change its policy or delete it"),
            ("--delete-emptydir-data", "leave it out"),
            ("--disable-eviction", "leave it out"),
            ("--grace-period=30", "spec.failover.cluster.gracePeriodSeconds"),
        ] {
            let error = check(flag).unwrap_err().to_string();
            assert!(error.contains(fix), "{error}");
        }
        for flag in ["--timeout=0s", "--dry-run", "--dry-run=server", "--ignore-daemonsets"] {
            check(flag).unwrap();
        }
    }

    #[test]
    fn reserved_namespaces_are_patterns_beside_the_built_in_ones() {
        let parse = |line: &str| match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Controller(args) => args.reserved.namespaces(),
            _ => unreachable!(),
        };
        let given = parse("atoll controller --reserved-namespaces infra,*-system").unwrap();
        assert_eq!(given.to_string(), "kube-*, atoll-*, infra, *-system");
        let error = parse("atoll controller --reserved-namespaces infra,*").unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("--reserved-namespaces") && error.contains("every namespace"),
            "{error}"
        );
    }

    #[test]
    fn seconds_are_numbers_or_durations() {
        for (text, found) in [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("0", 0)] {
            assert_eq!(seconds::<u32>(text), Ok(found), "{text}");
        }
        for bad in ["", "soon", "-3s", "1.5", "1500ms", "4294967296", "5d", "99999999999999999999h"]
        {
            assert!(seconds::<u32>(bad).is_err(), "{bad}");
        }
    }
}
