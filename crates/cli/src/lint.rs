//! `atoll lint`: finds errors in policies before they are applied.

mod overrides;

use std::path::PathBuf;

use anyhow::{bail, ensure};
use atoll_scheduler::lint_policy::{self, Finding, Severity};
use atoll_scheduler::offline::World;
use clap::Args;
use serde_json::json;

use crate::args::{Format, OutputFlag, ReservedFlag};
use crate::input::{self, FilesFlag, ValidateFlag};
use crate::print::{self, Printer, Text, Tone};
use crate::schedule;

#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Exit code 1 when an object could not be read or cannot do what it says; warnings are parts without \
                  effect. Give Clusters and workloads too, and selectors are checked against them."
)]
pub(crate) struct LintArgs {
    #[command(flatten)]
    files: FilesFlag,
    /// SchedulerConfiguration with further profiles that policies may name [default: the built-in profiles]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    validate: ValidateFlag,
    #[command(flatten)]
    reserved: ReservedFlag,
    #[command(flatten)]
    output: OutputFlag,
}

pub(crate) fn run(args: LintArgs, out: &Printer) -> anyhow::Result<()> {
    ensure!(!args.files.files.is_empty(), "give the objects with -f FILE, -f DIR or -f -");
    let profiles = schedule::profiles(args.config.as_deref())?;
    let (world, errors) = input::read(&args.files.files, args.validate.validate, &args.reserved)?;
    let findings = self::world(&world, &profiles);
    match args.output.output {
        Format::Table if findings.is_empty() && errors.is_empty() => {
            out.line("No problems found.")?;
        }
        Format::Table if findings.is_empty() => {}
        Format::Table => out.table(
            &["SEVERITY", "OBJECT", "FIELD", "PROBLEM AND FIX"],
            findings
                .iter()
                .map(|finding| {
                    let severity = match finding.severity {
                        Severity::Error => Text::toned("Error", Tone::Bad),
                        Severity::Warning => Text::toned("Warning", Tone::Warn),
                    };
                    let text = format!("{}; {}", finding.problem, finding.fix);
                    vec![severity, (&finding.object).into(), (&finding.field).into(), text.into()]
                })
                .collect(),
        )?,
        format => {
            let errors: Vec<_> = errors
                .iter()
                .map(|error| json!({"origin": error.origin, "problem": error.problem}))
                .collect();
            out.object(format, &json!({"findings": findings, "errors": errors}))?;
        }
    }
    for error in &errors {
        print::note(format!("error: {error}"));
    }
    let wrong = findings.iter().filter(|f| f.severity == Severity::Error).count();
    if wrong + errors.len() > 0 {
        bail!(
            "{} could not be read, {}",
            print::counted(errors.len(), "object", "objects"),
            print::counted(wrong, "finding is an error", "findings are errors")
        );
    }
    Ok(())
}

/// What is wrong with these objects.
pub(crate) fn world(world: &World, profiles: &atoll_scheduler::Profiles) -> Vec<Finding> {
    let mut findings = lint_policy::world(world);
    findings.extend(lint_policy::scheduler_names(world, profiles));
    findings.extend(patches(world));
    findings.extend(overrides::check(world));
    findings.extend(guards(world));
    findings
}

/// ChangeGuards that hold nothing because of a mistake.
fn guards(world: &World) -> Vec<Finding> {
    let wrong = world.guards.iter().filter_map(|(name, guard)| {
        let mistake = atoll_controller::guard_mistake(&guard.spec)?;
        let (field, problem) = mistake.split_once(": ").unwrap_or(("spec", &mistake));
        Some(Finding {
            severity: Severity::Error,
            object: format!("ChangeGuard {name}"),
            field: field.to_owned(),
            problem: problem.to_owned(),
            fix: "correct the field: until then the guard holds nothing".to_owned(),
        })
    });
    wrong.collect()
}

/// Invalid patches of WorkloadSpreads, which the renderer of members' manifests would refuse.
fn patches(world: &World) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ((namespace, name), spread) in &world.workload_spreads {
        for (at, subset) in spread.spec.subsets.iter().enumerate() {
            let Some(patch) = &subset.patch else { continue };
            if let Err(problem) = atoll_render::check_patch(patch) {
                findings.push(Finding {
                    severity: Severity::Error,
                    object: format!("WorkloadSpread {namespace}/{name}"),
                    field: format!("spec.subsets[{at}].patch"),
                    problem,
                    fix: "patch only labels, annotations and spec of the pod template".to_owned(),
                });
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use atoll_scheduler::Profiles;

    use super::*;

    #[test]
    fn a_scheduler_profile_that_does_not_exist_is_an_error_that_names_those_that_do() {
        let found = |name: &str, profiles: &Profiles| {
            let text = format!(
                "apiVersion: policy.atoll.dev/v1alpha1\nkind: PropagationPolicy\n\
                 metadata: {{name: p, namespace: shop}}\nspec: {{schedulerName: {name}, \
                 resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment}}], placement: {{}}}}\n"
            );
            let mut world = World::default();
            for document in atoll_scheduler::offline::documents::read("test", &text).0 {
                world.add(document).unwrap();
            }
            lint_policy::scheduler_names(&world, profiles)
        };
        let built_in = Profiles::default();
        assert_eq!(found("karmada", &built_in), []);
        let findings = found("defualt", &built_in);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Error);
        assert_eq!(findings[0].field, "spec.schedulerName");
        let problem = &findings[0].problem;
        assert!(
            problem.contains("\"defualt\"") && problem.contains("default, karmada"),
            "{problem}"
        );
    }

    #[test]
    fn a_patch_that_touches_identity_or_marks_is_an_error() {
        let found = |patch: &str| {
            let text = format!(
                "apiVersion: policy.atoll.dev/v1alpha1\nkind: WorkloadSpread\nmetadata: {{name: s, namespace: shop}}\n\
                 spec: {{targetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}, \
                 subsets: [{{name: a, patch: {patch}}}]}}\n"
            );
            let mut world = World::default();
            for document in atoll_scheduler::offline::documents::read("test", &text).0 {
                world.add(document).unwrap();
            }
            patches(&world)
        };
        assert_eq!(found("{metadata: {labels: {zone: ack}}, spec: {nodeName: x}}"), []);
        for patch in [
            "{kind: Pod}",
            "{apiVersion: v1}",
            "{metadata: {name: other}}",
            "{metadata: {namespace: kube-system}}",
            "{metadata: {labels: {atoll.dev/managed: 'false'}}}",
        ] {
            let findings = found(patch);
            assert_eq!(findings.len(), 1, "{patch}");
            assert_eq!(findings[0].object, "WorkloadSpread shop/s");
            assert_eq!(findings[0].field, "spec.subsets[0].patch");
            assert_eq!(findings[0].severity, Severity::Error);
        }
    }
}
