//! `atoll migrate karmada`: moves a running estate to Atoll, step by step. What to do is decided in `atoll-migrate`; this
//! module reads and writes. Each step can be run again: it goes on where the marks on both sides say that it is.

mod back;
mod finish;
mod members;
mod needs;
mod rules;
mod source;
mod target;
#[cfg(test)]
mod tests;
mod verify;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure};
use atoll_convert::{Converter, Options, Purpose};
use atoll_migrate::check::{self, Finding, Severity};
use atoll_migrate::estate::Estate;
use atoll_migrate::hub::Prepared;
use atoll_migrate::karmada::{self, Part};
use atoll_migrate::{hub as plan, members as compared};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::rules::Rules;
use self::source::Karmada;
use self::target::Target;
use crate::args::{Format, HubFlags};
use crate::hub::Hub;
use crate::print::{Printer, Text, counted, note};

/// Pause between two looks at objects that controllers change.
const LOOK: Duration = Duration::from_secs(1);
/// Time after which a command says what it waits for; controllers normally need less.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause until it says so again.
const REMINDER: Duration = Duration::from_secs(15);

/// The other federation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum System {
    /// Karmada
    Karmada,
}

/// A step of the migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Report what stands in the way, and what changes; writes nothing
    Check,
    /// Create namespaces, policies and what they need on Atoll's hub; writes nothing to Karmada and moves nothing
    Prepare,
    /// Suspend Karmada, and hand the objects to Atoll where they are
    Switch,
    /// Compare placements, manifests and members; exit code 1 if anything differs
    Verify,
    /// Give the objects back to Karmada, where they are now; possible until finish
    Rollback,
    /// Remove Karmada's labels and annotations; there is no way back
    Finish,
    /// Show how far each namespace is
    Status,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The order is check, prepare, switch, verify, finish; until finish, rollback leads back. Each step can be run again after an interruption. \
                  docs/from-karmada.md describes the steps and what they write."
)]
pub(crate) struct MigrateArgs {
    /// The federation to come from
    #[arg(value_name = "SYSTEM")]
    system: System,
    /// The step
    #[arg(value_name = "STEP")]
    step: Step,
    /// Kubeconfig of the Karmada control plane. --kubeconfig and --context name Atoll's hub; --namespace, one namespace to move
    /// [default: all, and the cluster-scoped objects]
    #[arg(long, value_name = "KUBECONFIG")]
    from: PathBuf,
    /// Print what prepare or switch would write, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// With switch: go on although a ClusterPropagationPolicy claims objects of other namespaces, too. Karmada sends no changes
    /// of those to members until they are moved
    #[arg(long)]
    pause_others: bool,
    /// With prepare: join members by the credentials with which Karmada reaches them. Their agents run beside Atoll's controller.
    /// Not for members in pull mode, and those behind a proxy
    #[arg(long)]
    take_credentials: bool,
    /// With prepare, switch, verify and rollback: how long to wait for members, and Karmada's and Atoll's controllers, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    /// How to print the answer
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

/// Both sides.
struct Migration {
    karmada: Karmada,
    target: Target,
    converter: Arc<Converter>,
    namespace: Option<String>,
    pause_others: bool,
    take_credentials: bool,
    wait: Duration,
}

pub(crate) async fn run(flags: &HubFlags, args: MigrateArgs, out: &Printer) -> anyhow::Result<()> {
    let System::Karmada = args.system;
    ensure!(
        !args.dry_run || matches!(args.step, Step::Prepare | Step::Switch),
        "--dry-run is for prepare and switch: the other steps write nothing"
    );
    ensure!(
        !args.pause_others || args.step == Step::Switch,
        "--pause-others is for switch: the other steps suspend nothing"
    );
    ensure!(
        !args.take_credentials || args.step == Step::Prepare,
        "--take-credentials is for prepare: members have joined before the other steps"
    );
    let migration = Migration {
        karmada: Karmada::open(&args.from).await?,
        target: Target { hub: Hub::find(flags).await? },
        converter: converter()?,
        namespace: flags.namespace.clone(),
        pause_others: args.pause_others,
        take_credentials: args.take_credentials,
        wait: Duration::from_secs(args.timeout),
    };
    match args.step {
        Step::Check => migration.check(args.output, out).await,
        Step::Prepare => migration.prepare(args.dry_run, args.output, out).await,
        Step::Switch => migration.switch(args.dry_run, args.output, out).await,
        Step::Verify => verify::run(&migration, args.output, out).await,
        Step::Rollback => back::run(&migration, args.output, out).await,
        Step::Finish => finish::run(&migration, args.output, out).await,
        Step::Status => migration.status(args.output, out).await,
    }
}

fn converter() -> anyhow::Result<Arc<Converter>> {
    Ok(Arc::new(Converter::new(Options::new(Purpose::Hub))?))
}

impl Migration {
    async fn estate(&self) -> anyhow::Result<Estate> {
        let estate = self.karmada.estate(self.namespace.as_deref()).await?;
        ensure!(
            estate.moving().next().is_some(),
            "Karmada has placed nothing in {}",
            self.namespace
                .as_deref()
                .map_or("any namespace".to_owned(), |name| format!("namespace {name}"))
        );
        Ok(estate)
    }

    /// Everything to know before a step.
    async fn findings(
        &self,
        estate: &Estate,
        prepared: &Prepared,
        step: Step,
    ) -> anyhow::Result<Vec<Finding>> {
        let rules = Rules::of(&prepared.objects);
        let mut found = check::findings(&self.converter, estate, &rules);
        found.extend(rules.problems);
        found.extend(compared::findings(&self.converter, estate, &self.target.clusters().await?));
        found.extend(self.target.findings(estate, &prepared.objects).await?);
        found.extend(needs::of_controller(&self.target.hub, estate).await?);
        // `prepare` moves nothing that would have to be verified.
        if step != Step::Prepare {
            found.extend(needs::way_to_members(self, estate).await?);
        }
        found.sort_by(|one, other| {
            (one.severity, &one.object).cmp(&(other.severity, &other.object))
        });
        Ok(found)
    }

    /// Prints the findings, and fails if one of them blocks.
    fn clear(&self, found: &[Finding], is_step: bool) -> anyhow::Result<()> {
        let accepted =
            |one: &Finding| check::is_about_sharing(one) && (self.pause_others || !is_step);
        let blocking: Vec<&Finding> =
            found.iter().filter(|one| one.severity == Severity::Blocks && !accepted(one)).collect();
        for one in &blocking {
            note(format!("blocks: {}: {}", one.object, one.problem));
        }
        ensure!(
            blocking.is_empty(),
            "{} the migration: nothing was changed by this step",
            counted(blocking.len(), "finding blocks", "findings block")
        );
        Ok(())
    }

    async fn check(&self, format: Format, out: &Printer) -> anyhow::Result<()> {
        let estate = self.estate().await?;
        let prepared = plan::prepared(&self.converter, &estate);
        let found = self.findings(&estate, &prepared, Step::Check).await?;
        let moving = estate.moving().count();
        if format == Format::Table {
            let rows = found.iter().map(|one| {
                let severity = format!("{:?}", one.severity);
                vec![severity.into(), (&*one.object).into(), Text::from(&*one.problem)]
            });
            if !found.is_empty() {
                out.table_keeping(1, &["EFFECT", "OBJECT", "FINDING"], rows.collect())?;
            }
            let objects = counted(moving, "object", "objects");
            out.line(format!("{objects} in {} would move.", list(&estate.namespaces())))?;
        } else {
            let namespaces = estate.namespaces();
            out.object(
                format,
                &json!({"findings": found, "objects": moving, "namespaces": namespaces}),
            )?;
        }
        let blocking = found.iter().filter(|one| one.severity == Severity::Blocks).count();
        ensure!(
            blocking == 0,
            "{} the migration",
            counted(blocking, "finding blocks", "findings block")
        );
        Ok(())
    }

    async fn prepare(&self, dry_run: bool, format: Format, out: &Printer) -> anyhow::Result<()> {
        let estate = self.estate().await?;
        let prepared = plan::prepared(&self.converter, &estate);
        let members = match self.take_credentials {
            true => members::find(self, &estate).await?,
            false => Vec::new(),
        };
        let mut found = self.findings(&estate, &prepared, Step::Prepare).await?;
        found.retain(|one| !members.iter().any(|member| member.is(&one.object)));
        self.clear(&found, false)?;
        if dry_run {
            let clusters = members.iter().map(|member| json!(member.cluster));
            let all: Vec<Value> = clusters.chain(prepared.objects).collect();
            return objects(format, &all, out);
        }
        if !members.is_empty() {
            members::register(self, &members).await?;
            self.clear(&self.findings(&estate, &prepared, Step::Prepare).await?, false)?;
        }
        let made = self.target.prepare(&estate, &prepared.objects).await?;
        for one in &made {
            note(format!("created {one}"));
        }
        let (new, all) = (made.len(), prepared.objects.len());
        let joined: Vec<&str> = members.iter().map(|member| &*member.name).collect();
        answer(
            format,
            out,
            &json!({"created": made, "members": joined}),
            &format!(
                "Atoll's hub has {} that {} needs; {new} created now, with namespaces. Nothing moves before `switch`.",
                counted(all, "object", "objects"),
                list(&estate.namespaces())
            ),
        )
    }

    async fn switch(&self, dry_run: bool, format: Format, out: &Printer) -> anyhow::Result<()> {
        let estate = self.estate().await?;
        let prepared = plan::prepared(&self.converter, &estate);
        self.clear(&self.findings(&estate, &prepared, Step::Switch).await?, true)?;
        if dry_run {
            let templates: Vec<Value> =
                self.templates(&estate)?.into_iter().map(|(_, object)| object).collect();
            return objects(format, &templates, out);
        }
        let deadline = Instant::now() + self.wait;
        // Before anything is suspended: templates must not come before the policies and overrides that concern them.
        self.until(deadline, || self.target.not_in_force(&prepared.objects)).await?;
        self.karmada.suspend_all(&estate).await?;
        self.until(deadline, || self.moves_still()).await?;
        // What Karmada decided until it stood still is what counts.
        let estate = self.estate().await?;
        let prepared = plan::prepared(&self.converter, &estate);
        self.clear(&self.findings(&estate, &prepared, Step::Switch).await?, true)?;
        self.until(deadline, || self.target.not_in_force(&prepared.objects)).await?;
        let templates = self.templates(&estate)?;
        let mut new = 0;
        for (at, object) in &templates {
            let Some(binding) = estate.moving().nth(*at) else { continue };
            new += usize::from(self.target.start(binding, object).await?);
        }
        answer(
            format,
            out,
            &json!({"objects": templates.len(), "created": new}),
            &format!(
                "{} in {} moved; {new} now. `atoll migrate karmada verify` compares both sides.",
                counted(templates.len(), "object", "objects"),
                list(&estate.namespaces())
            ),
        )
    }

    /// The objects for Atoll's hub, with the place of their binding among those that move.
    fn templates(&self, estate: &Estate) -> anyhow::Result<Vec<(usize, Value)>> {
        let mut all = Vec::new();
        for (at, binding) in estate.moving().enumerate() {
            let Some(template) = estate.templates.get(&binding.of) else {
                bail!("{}: Karmada does not have it any more", binding.of);
            };
            if let (Some(object), _) = plan::template(&self.converter, binding, template) {
                all.push((at, object));
            }
        }
        Ok(all)
    }

    /// What still moves in Karmada. Its controllers may undo a part of the suspension when they read an old policy; it is
    /// set again then.
    async fn moves_still(&self) -> anyhow::Result<Vec<String>> {
        let estate = self.estate().await?;
        self.karmada.suspend_all(&estate).await?;
        let mut waits = Vec::new();
        for binding in estate.moving() {
            if !karmada::is_suspended(&binding.object, Part::Binding) {
                waits.push(format!("the binding of {} is not suspended", binding.of));
            }
            for work in estate.works_of(&binding.of).filter(|work| !work.is_still()) {
                waits.push(format!(
                    "the Work of {} on {} is not suspended",
                    binding.of, work.cluster
                ));
            }
        }
        let works = estate.namespace_works().filter(|work| !work.is_still());
        waits.extend(
            works.map(|work| {
                format!("the Work of {} on {} is not suspended", work.of, work.cluster)
            }),
        );
        Ok(waits)
    }

    /// Looks until nothing is waited for, and says what it is when that takes long.
    async fn until<F>(&self, deadline: Instant, look: impl Fn() -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<Vec<String>>>,
    {
        let mut patience = Patience::new();
        loop {
            let waits = look().await?;
            let Some(first) = waits.first() else { return Ok(()) };
            patience.say(first, waits.len());
            if Instant::now() >= deadline {
                bail!(
                    "{first}; {} in all after {} s: are the controllers running? Run the step again; it goes on where it is",
                    waits.len(),
                    self.wait.as_secs()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn status(&self, format: Format, out: &Printer) -> anyhow::Result<()> {
        let estate = self.estate().await?;
        let mut rows = Vec::new();
        let mut places: Vec<Option<String>> =
            estate.moving().map(|b| b.of.namespace.clone()).collect();
        places.sort_unstable();
        places.dedup();
        for place in places {
            let bindings: Vec<_> = estate.moving().filter(|b| b.of.namespace == place).collect();
            let suspended =
                bindings.iter().filter(|b| karmada::is_suspended(&b.object, Part::Binding)).count();
            let mut moved = 0;
            for binding in &bindings {
                moved += usize::from(self.target.template(binding).await?.is_some());
            }
            let all = bindings.len();
            let finished = bindings.iter().filter(|b| karmada::is_finished(&b.object)).count();
            let phase = match (suspended, moved) {
                _ if finished == all && moved == 0 => "Finished",
                _ if finished > 0 => "Finishing",
                (0, 0) => "NotSwitched",
                (suspended, moved) if suspended == all && moved == all => "Switched",
                _ => "Switching",
            };
            rows.push(json!({"namespace": place, "objects": all, "suspended": suspended, "moved": moved, "phase": phase}));
        }
        if format != Format::Table {
            return out.object(format, &json!({"namespaces": rows}));
        }
        let text = |value: &Value| {
            Text::from(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        };
        let cells = rows.iter().map(|row| {
            let place = row["namespace"].as_str().unwrap_or("(cluster-scoped)");
            vec![
                place.into(),
                text(&row["objects"]),
                text(&row["suspended"]),
                text(&row["moved"]),
                text(&row["phase"]),
            ]
        });
        out.table(&["NAMESPACE", "OBJECTS", "SUSPENDED", "MOVED", "PHASE"], cells.collect())
    }
}

/// Says what a command waits for, once it takes long, and then now and again.
struct Patience {
    ends: Instant,
}

impl Patience {
    fn new() -> Self {
        Self { ends: Instant::now() + PATIENCE }
    }

    fn say(&mut self, first: &str, all: usize) {
        if Instant::now() < self.ends {
            return;
        }
        let more = match all.saturating_sub(1) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        note(format!("waits: {first}{more}"));
        self.ends = Instant::now() + REMINDER;
    }
}

fn list(namespaces: &[String]) -> String {
    match namespaces {
        [] => "no namespace".to_owned(),
        [one] => format!("namespace {one}"),
        many => format!("{} namespaces", many.len()),
    }
}

/// Objects that would be written.
fn objects(format: Format, objects: &[Value], out: &Printer) -> anyhow::Result<()> {
    if format == Format::Json {
        return out.object(format, &json!({"apiVersion": "v1", "kind": "List", "items": objects}));
    }
    for object in objects {
        out.line("---")?;
        out.object(Format::Yaml, object)?;
    }
    Ok(())
}

fn answer(format: Format, out: &Printer, object: &Value, text: &str) -> anyhow::Result<()> {
    match format {
        Format::Table => out.line(text),
        _ => out.object(format, object),
    }
}
