//! `atoll up`: a whole federation in this process, on loopback, with its state in one folder.
//!
//! It wires existing parts: embedded API servers, the controller, simulated members with their agents, and history.
//! Only
//! the data folder, the consecutive ports and the control socket for `atoll sim` are specific to `up`.

pub(crate) mod control;
pub(crate) mod folder;
mod hub;
mod member;
mod network;
mod ports;
mod runtime;
mod server;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use atoll_api::ReservedNamespaces;
use atoll_apiserver::pki;
use atoll_console::Serving;
use atoll_scheduler::RecoverAfter;
use atoll_traces::Tracer;
use clap::Args;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::control::{Request, Response};
use self::folder::Folder;
use self::hub::{Hub, Listeners};
use self::member::SimulatedMember;
use self::ports::Ports;
use crate::args::{
    LogFlag, PaceFlags, ReservedFlag, RetentionFlag, TenancyFlag, TraceFlags, tracer,
};
use crate::console::{self, RuleFlags};
use crate::print::{Printer, causes, counted, note};
use crate::serve::database::{Database, database};
use crate::serve::listen;

/// Maximum number of simulated members. Each has an API server, three nodes and an agent; more overload one process.
const MAX_MEMBERS: u16 = 64;
/// Members of a new folder.
const MEMBERS: u16 = 3;
/// How long a request to add a member waits until it is Ready: less than `atoll sim` waits for the answer.
const ADDED: Duration = Duration::from_secs(20);
/// Timeout for all parts together to stop. The promise is 5 s.
const STOP: Duration = Duration::from_millis(4500);

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// How many simulated members to run [default: as many as at the last time, at first 3]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_MEMBERS)))]
    members: Option<u16>,
    /// Folder for objects, certificates, history and kubeconfig
    #[arg(long, value_name = "FOLDER", default_value = folder::DEFAULT)]
    data_dir: PathBuf,
    /// First port on 127.0.0.1: the hub's API server. The next is for agents, then one for each member
    #[arg(long, value_name = "PORT", default_value_t = ports::DEFAULT)]
    port: u16,
    /// Address for /healthz, /readyz and /metrics of the controller over plain HTTP, for example 127.0.0.1:8080. Not served
    /// without it
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// Where decisions are recorded: a SQLite file, or a PostgreSQL database to try it out [default: a file in the data
    /// folder]
    #[arg(long, value_name = "FILE|postgres://USER:PASSWORD@HOST/DATABASE", value_parser = database)]
    history: Option<Database>,
    /// Port of the web console on 127.0.0.1; 0 = any free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    console_port: u16,
    #[command(flatten)]
    retention: RetentionFlag,
    #[command(flatten)]
    reserved: ReservedFlag,
    #[command(flatten)]
    tenancy: TenancyFlag,
    #[command(flatten)]
    pace: PaceFlags,
    #[command(flatten)]
    traces: TraceFlags,
    #[command(flatten)]
    pub(crate) log: LogFlag,
}

/// Settings of the controller and the agents of `up` from flags.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// The history database, if it is not in the data folder.
    pub(crate) history: Option<Database>,
    /// How long history is kept.
    pub(crate) retention: Duration,
    /// Pace at which work leaves members.
    pub(crate) pace: PaceFlags,
    /// Namespaces that are not propagated.
    pub(crate) reserved: ReservedNamespaces,
    /// Which members namespaces without a ClusterSet may use.
    pub(crate) tenancy: TenancyFlag,
    /// Records traces of decisions, if that is on.
    pub(crate) tracer: Tracer,
}

pub(crate) async fn run(args: UpArgs, out: &Printer) -> anyhow::Result<()> {
    let reserved = args.reserved.namespaces()?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let token = CancellationToken::new();
    let tasks = TaskTracker::new();
    let exporter = args.traces.start()?;
    let folder = Folder::take(&args.data_dir)?;
    let before = folder.members()?.min(MAX_MEMBERS);
    let count = args.members.unwrap_or(if before == 0 { MEMBERS } else { before });
    let ports = Ports::bind(args.port, count).await?;
    let http = match args.http {
        Some(address) => Some(listen("--http", address).await?),
        None => None,
    };
    let console = console::bind((Ipv4Addr::LOCALHOST, args.console_port).into());
    let console = console.await.context("--console-port")?;
    let folder = Arc::new(folder);
    let started = {
        let limits = Limits {
            history: args.history.clone(),
            retention: args.retention.duration(),
            pace: args.pace,
            reserved: reserved.clone(),
            tenancy: args.tenancy,
            tracer: tracer(exporter.as_ref(), "atoll-controller", "atoll-up"),
        };
        let start = Federation::start(&folder, (args.port, ports, http), limits, &tasks, &token);
        tokio::select! {
            biased;
            _ = interrupt.recv() => None,
            _ = terminate.recv() => None,
            started = start => Some(started),
        }
    };
    let result = match started {
        None => Ok(()),
        Some(Err(error)) => Err(error),
        Some(Ok(federation)) => {
            let rules = RuleFlags { tenancy: args.tenancy, reserved: args.reserved.clone() };
            let serving = federation.console(rules, console, token.child_token()).await?;
            tasks.spawn(serving.task);
            federation.banner(&args, &serving.url, out).await?;
            tokio::select! {
                biased;
                _ = interrupt.recv() => Ok(()),
                _ = terminate.recv() => Ok(()),
                () = token.cancelled() => Err(anyhow!("the controller ended: see the log above")),
            }
        }
    };
    token.cancel();
    tasks.close();
    let (stopped, again) = tokio::join!(tokio::time::timeout(STOP, tasks.wait()), async {
        // A second Ctrl-C skips the orderly stop; acknowledged writes are not lost.
        tokio::select! {
            () = tasks.wait() => false,
            _ = interrupt.recv() => true,
            () = tokio::time::sleep(STOP) => false,
        }
    });
    if stopped.is_err() && !again {
        tracing::warn!("some parts did not stop within {STOP:?}");
    }
    if let Some(exporter) = exporter {
        exporter.end().await;
    }
    result
}

/// Everything that runs.
struct Federation {
    hub: Hub,
    folder: Arc<Folder>,
    /// The first port of all.
    port: u16,
    /// Locked while a member is added, so that its number is the next one.
    members: Mutex<Vec<Arc<SimulatedMember>>>,
}

impl Federation {
    async fn start(
        folder: &Arc<Folder>,
        (port, ports, http): (u16, Ports, Option<TcpListener>),
        limits: Limits,
        tasks: &TaskTracker,
        token: &CancellationToken,
    ) -> anyhow::Result<Arc<Self>> {
        let began = std::time::Instant::now();
        note("starting the hub and its controller ...");
        let listeners = Listeners { hub: ports.hub, agents: ports.agents, http };
        let hub = Hub::start(folder, listeners, limits, tasks, token).await?;
        let mut starting = Vec::with_capacity(ports.members.len());
        let members = counted(ports.members.len(), "member", "members");
        note(format!("starting {members} with an agent each ..."));
        for (number, listener) in (1..).zip(ports.members) {
            starting.push(hub.member(folder, number, listener));
        }
        let members: Vec<_> =
            futures::future::try_join_all(starting).await?.into_iter().map(Arc::new).collect();
        write_kubeconfig(folder, &hub, &members)?;
        let listener = listen_for_control(folder)?;
        let federation = Arc::new(Self {
            hub,
            folder: folder.clone(),
            port,
            members: Mutex::new(members.clone()),
        });
        let (serving, ends) = (federation.clone(), token.clone());
        tasks.spawn(control::serve(
            listener,
            move |request| {
                let federation = serving.clone();
                async move { federation.answer(request).await }
            },
            ends,
        ));
        let (stopping, ends) = (federation.clone(), token.clone());
        tasks.spawn(async move {
            ends.cancelled().await;
            let members = stopping.members.lock().await;
            futures::future::join_all(members.iter().map(|member| member.power_off())).await;
        });
        federation.hub.all_ready(&members, hub::READY).await?;
        // Only now: a start that failed says nothing about the next one.
        folder.set_members(federation.members.lock().await.len())?;
        note(format!("ready after {:.1} s", began.elapsed().as_secs_f64()));
        Ok(federation)
    }

    /// Carries out a request of `atoll sim`.
    async fn answer(&self, request: Request) -> Response {
        let done = async {
            let named = |name: String| async move { find(&self.members.lock().await, &name) };
            match request {
                Request::List => {}
                Request::Add => self.add().await?,
                Request::Stop(name) => named(name).await?.power_off().await,
                Request::Start(name) => named(name).await?.power_on().await?,
                Request::Cut(name) => named(name).await?.cut().await?,
            }
            anyhow::Ok(())
        };
        match done.await {
            Ok(()) => {
                let members = self.members.lock().await.clone();
                let states = members.iter().map(|member| member.state());
                Response::Members(futures::future::join_all(states).await)
            }
            Err(error) => Response::Refused(causes(&error)),
        }
    }

    /// Adds a member, and waits until it is Ready.
    async fn add(&self) -> anyhow::Result<()> {
        let mut members = self.members.lock().await;
        let count = u16::try_from(members.len()).unwrap_or(MAX_MEMBERS);
        if count >= MAX_MEMBERS {
            bail!("there are {count} members, which is the most that one process can run");
        }
        let listener = Ports::next(self.port, count).await?;
        let number = u64::from(count) + 1;
        let member = Arc::new(self.hub.member(&self.folder, number, listener).await?);
        members.push(member.clone());
        self.folder.set_members(members.len())?;
        write_kubeconfig(&self.folder, &self.hub, &members)?;
        drop(members);
        let name = member.name().to_owned();
        let ready = self.hub.all_ready(&[member], ADDED).await;
        ready.with_context(|| {
            format!("{name} was added and runs; `kubectl get cluster {name}` shows its state")
        })
    }

    /// The web console, which reads over HTTPS like any other client.
    async fn console(
        &self,
        rules: RuleFlags,
        listener: TcpListener,
        token: CancellationToken,
    ) -> anyhow::Result<Serving> {
        let found = format!("context \"hub\" of {}", self.folder.kubeconfig().display());
        let client = atoll_program::hub::client(server::config(self.hub.context()).await?, &found)?;
        let hub = crate::hub::Hub { client, namespace: "default".to_owned(), found };
        console::serve(hub, None, false, rules, listener, token)
    }

    async fn banner(&self, args: &UpArgs, console: &str, out: &Printer) -> anyhow::Result<()> {
        let path = self.folder.kubeconfig();
        let kubeconfig = path.display();
        let members = self.members.lock().await.clone();
        let names: Vec<_> = members.iter().map(|member| member.name()).collect();
        let shown = match names.as_slice() {
            [] | [_] | [_, _] | [_, _, _] => names.join(", "),
            [first, .., last] => format!("{first} ... {last}"),
        };
        let times = self.hub.health();
        out.line(format!(
            "\nkubeconfig  {kubeconfig}  (contexts: hub, {shown})\n\
             console     {console}\n\
             a silent member is lost after {} s and its work moves after {} s more; where a policy allows Recovery\n\
             it comes back when the member has been well for {} s\n\n\
             Try, in another terminal:\n\
             \x20 export KUBECONFIG={kubeconfig}\n\
             \x20 kubectl get clusters\n\
             \x20 kubectl apply -f examples/01-nginx.yaml && kubectl get deploy,rb -w\n\n\
             `atoll sim stop member1{}` takes a member down. Ctrl-C stops everything; \
             the next start goes on from here.",
            times.silent_after.as_secs(),
            times.failover_after.as_secs(),
            args.pace.recover_after(RecoverAfter::seconds(hub::RECOVER_AFTER)).0.as_secs(),
            if args.data_dir == std::path::Path::new(folder::DEFAULT) {
                String::new()
            } else {
                format!(" --data-dir {}", args.data_dir.display())
            },
        ))
    }
}

/// Writes the kubeconfig atomically: a reader sees the old one or the new one.
fn write_kubeconfig(
    folder: &Folder,
    hub: &Hub,
    members: &[Arc<SimulatedMember>],
) -> anyhow::Result<()> {
    let mut contexts = vec![hub.context().clone()];
    contexts.extend(members.iter().map(|member| member.context().clone()));
    let path = folder.kubeconfig();
    let partial = path.with_extension("partial");
    let write = || -> std::io::Result<()> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::File::options();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(pki::kubeconfig(&contexts, "hub").as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&partial, &path)
    };
    write().with_context(|| format!("write the kubeconfig {}", path.display()))
}

fn listen_for_control(folder: &Folder) -> anyhow::Result<UnixListener> {
    let path = folder.control_socket();
    // We hold the folder's lock, so an existing socket was left by a dead process.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error)
                .with_context(|| format!("remove the old control socket {}", path.display()));
        }
        _ => {}
    }
    UnixListener::bind(&path).with_context(|| format!("listen on {}", path.display()))
}

fn find(members: &[Arc<SimulatedMember>], name: &str) -> anyhow::Result<Arc<SimulatedMember>> {
    match members.iter().find(|member| member.name() == name) {
        Some(member) => Ok(member.clone()),
        None => {
            let known: Vec<_> = members.iter().map(|member| member.name()).collect();
            bail!("there is no member {name:?}: choose one of {}", known.join(", "))
        }
    }
}
