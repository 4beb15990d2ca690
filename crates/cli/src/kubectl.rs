//! `atoll exec`, `attach`, `port-forward`, `cp`, `describe`: find the member and run kubectl there, through the hub.

use std::io::{ErrorKind, Write};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, bail};
use clap::Args;
use tempfile::NamedTempFile;
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::HubFlags;
use crate::hub::{self, Hub};
use crate::kubeconfig;
use crate::print::note;
use crate::reach;
use crate::read::workload;

/// Exit code where kubectl was ended by a signal.
const ENDED: u8 = 1;

/// kubectl failed; it has printed why.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KubectlFailed(pub(crate) u8);

impl std::fmt::Display for KubectlFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "kubectl failed with exit code {}", self.0)
    }
}

impl std::error::Error for KubectlFailed {}

/// Which member.
#[derive(Debug, Args)]
struct Place {
    /// The member, if several have a pod or object of this name
    #[arg(long = "cluster", value_name = "MEMBER")]
    member: Option<String>,
}

/// Which container, and what it is connected to.
#[derive(Debug, Args)]
struct Session {
    /// The container [default: the pod's default container, else its first]
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Pass standard input on
    #[arg(short = 'i', long)]
    stdin: bool,
    /// The input is a terminal
    #[arg(short = 't', long)]
    tty: bool,
}

impl Session {
    fn add(&self, words: &mut Vec<String>) {
        if let Some(container) = &self.container {
            words.push(format!("--container={container}"));
        }
        words.extend(self.stdin.then(|| "--stdin".to_owned()));
        words.extend(self.tty.then(|| "--tty".to_owned()));
    }
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// The pod, or TYPE/NAME of a workload
    #[arg(value_name = "POD")]
    pod: String,
    #[command(flatten)]
    session: Session,
    #[command(flatten)]
    place: Place,
    /// The command, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// The pod, or TYPE/NAME of a workload
    #[arg(value_name = "POD")]
    pod: String,
    #[command(flatten)]
    session: Session,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct PortForwardArgs {
    /// The pod, or TYPE/NAME of a workload or a service
    #[arg(value_name = "POD")]
    pod: String,
    /// Ports: 8080, or LOCAL:REMOTE
    #[arg(required = true, value_name = "PORT")]
    ports: Vec<String>,
    /// Addresses to listen on, comma separated [default: localhost]
    #[arg(long, value_name = "ADDRESSES")]
    address: Option<String>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    /// A local file or folder, or POD:PATH
    #[arg(value_name = "FROM")]
    from: String,
    /// A local file or folder, or POD:PATH
    #[arg(value_name = "TO")]
    to: String,
    /// The container [default: the pod's default container, else its first]
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    /// A pod, TYPE/NAME, or TYPE NAME
    #[arg(num_args = 1..=2, required = true, value_name = "POD")]
    object: Vec<String>,
    #[command(flatten)]
    place: Place,
}

pub(crate) async fn exec(flags: &HubFlags, args: ExecArgs) -> anyhow::Result<()> {
    let mut words = vec!["exec".to_owned(), args.pod.clone()];
    args.session.add(&mut words);
    words.push("--".to_owned());
    words.extend(args.command);
    on_member(flags, &[args.pod], &args.place, words).await
}

pub(crate) async fn attach(flags: &HubFlags, args: AttachArgs) -> anyhow::Result<()> {
    let mut words = vec!["attach".to_owned(), args.pod.clone()];
    args.session.add(&mut words);
    on_member(flags, &[args.pod], &args.place, words).await
}

pub(crate) async fn port_forward(flags: &HubFlags, args: PortForwardArgs) -> anyhow::Result<()> {
    let mut words = vec!["port-forward".to_owned(), args.pod.clone()];
    words.extend(args.address.map(|address| format!("--address={address}")));
    words.extend(args.ports);
    on_member(flags, &[args.pod], &args.place, words).await
}

pub(crate) async fn copy(flags: &HubFlags, args: CpArgs) -> anyhow::Result<()> {
    let (pod, namespace) = match (remote(&args.from), remote(&args.to)) {
        (Some(place), None) | (None, Some(place)) => place,
        (None, None) => bail!("neither {} nor {} is POD:PATH", args.from, args.to),
        (Some(_), Some(_)) => bail!("files are copied from or to this machine: name one POD:PATH"),
    };
    let mut words = vec!["cp".to_owned(), args.from.clone(), args.to.clone()];
    words.extend(args.container.map(|container| format!("--container={container}")));
    let flags = HubFlags { namespace: namespace.or(flags.namespace.clone()), ..flags.clone() };
    on_member(&flags, &[pod], &args.place, words).await
}

pub(crate) async fn describe(flags: &HubFlags, args: DescribeArgs) -> anyhow::Result<()> {
    let mut words = vec!["describe".to_owned()];
    match args.object.as_slice() {
        [pod] if !pod.contains('/') => words.extend(["pod".to_owned(), pod.clone()]),
        object => words.extend(object.iter().cloned()),
    }
    on_member(flags, &args.object, &args.place, words).await
}

/// Pod and namespace of `[NAMESPACE/]POD:PATH`; `None` for a local path.
fn remote(text: &str) -> Option<(String, Option<String>)> {
    let (place, path) = text.split_once(':')?;
    // `./a:b` is a file.
    if path.is_empty() || place.is_empty() || place.starts_with(['.', '/']) {
        return None;
    }
    Some(match place.split_once('/') {
        Some((namespace, pod)) => (pod.to_owned(), Some(namespace.to_owned())),
        None => (place.to_owned(), None),
    })
}

/// Runs kubectl on the member that has the object.
async fn on_member(
    flags: &HubFlags,
    object: &[String],
    place: &Place,
    words: Vec<String>,
) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let member = find(&hub, object, place).await?;
    let (config, context) = hub::context(flags)?;
    let config = serde_json::to_value(&config).context("read the hub's kubeconfig")?;
    let made = kubeconfig::contexts(&config, &context, &[member], "")?;
    let text = serde_saphyr::to_string(&made).context("write the kubeconfig as YAML")?;
    // Before the file: a signal must not end this process while the file is there.
    let signals = Signals::listen()?;
    // Only the user can read it, and it is removed with this value.
    let mut file = NamedTempFile::with_prefix("atoll-kubeconfig-").context("make a kubeconfig")?;
    file.write_all(text.as_bytes()).context("write a kubeconfig")?;
    let status = kubectl(file.path(), &hub.namespace, &words, signals).await?;
    file.close().context("remove the kubeconfig")?;
    if status.success() {
        return Ok(());
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(ENDED);
    Err(KubectlFailed(code).into())
}

/// The member that has the object.
async fn find(hub: &Hub, object: &[String], place: &Place) -> anyhow::Result<String> {
    let wanted: Vec<String> = place.member.iter().cloned().collect();
    let members = reach::members(hub, &wanted).await?;
    // kubectl finds out there which types there are.
    if let Some(member) = &place.member {
        return Ok(member.clone());
    }
    let (path, described) = match object {
        [pod] if !pod.contains('/') => {
            let namespace = &hub.namespace;
            let path = format!("/api/v1/namespaces/{namespace}/pods/{}", reach::encode(pod));
            (path, format!("pod {namespace}/{pod}"))
        }
        words => {
            let object = workload::resolve(hub, words).await?;
            (object.path(), object.to_string())
        }
    };
    let answers = reach::each(&members, |member| member.get(&path, None)).await;
    let (mut found, mut silent) = (Vec::new(), Vec::new());
    for (member, answer) in answers {
        match answer {
            Ok(_) => found.push(member.name.clone()),
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => {
                note(format!("{}: {failure}", member.name));
                silent.push(member.name.clone());
            }
        }
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] if silent.is_empty() => bail!("no member has {described}"),
        [] => bail!("no member that answered has {described}; not read: {}", silent.join(", ")),
        several => bail!(
            "several members have {described}: choose one with --cluster: {}",
            several.join(", ")
        ),
    }
}

/// Signals that end a process. This one waits for the end of kubectl, to remove the kubeconfig.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("listen for Ctrl-C")?,
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
            hangup: signal(SignalKind::hangup()).context("listen for SIGHUP")?,
        })
    }
}

/// Runs kubectl with the terminal of this process.
async fn kubectl(
    kubeconfig: &std::path::Path,
    namespace: &str,
    words: &[String],
    mut signals: Signals,
) -> anyhow::Result<ExitStatus> {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(kubeconfig).arg(format!("--namespace={namespace}"));
    command.args(words).stdin(Stdio::inherit()).kill_on_drop(true);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "kubectl is not in $PATH: install it (https://kubernetes.io/docs/tasks/tools), this verb runs it"
        ),
        Err(error) => return Err(error).context("start kubectl"),
    };
    loop {
        tokio::select! {
            ended = child.wait() => return ended.context("wait for kubectl"),
            // Ctrl-C goes to kubectl too.
            _ = signals.interrupt.recv() => {}
            _ = signals.terminate.recv() => child.start_kill().context("stop kubectl")?,
            _ = signals.hangup.recv() => child.start_kill().context("stop kubectl")?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_pods_are_told_from_local_files() {
        let place =
            |text| remote(text).map(|(pod, ns)| format!("{}/{pod}", ns.unwrap_or_default()));
        assert_eq!(place("web-0:/etc/hosts").as_deref(), Some("/web-0"));
        assert_eq!(place("shop/web-0:x").as_deref(), Some("shop/web-0"));
        for local in ["file", "./a:b", "/a:b", ":x", "web-0:"] {
            assert_eq!(place(local), None, "{local}");
        }
    }
}
