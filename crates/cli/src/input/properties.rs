//! Manifests with arbitrary content: read, or refused with the place of the mistake, and never a panic.

use atoll_scheduler::offline::{InputError, Settings, World};
use atoll_scheduler::{Profiles, Scheduler, lint_policy};
use jiff::Timestamp;
use proptest::prelude::*;

use super::{Reader, Validation};

/// A sound manifest.
const SOUND: &str = concat!(
    include_str!("../../tests/offline/workload-spread.yaml"),
    r"
---
apiVersion: cluster.atoll.dev/v1alpha1
kind: Cluster
metadata: {name: m1, labels: {workload-test: member}}
spec:
  region: north
  taints: [{key: a, effect: NoSchedule}]
---
kind: List
apiVersion: v1
items:
- apiVersion: policy.atoll.dev/v1alpha1
  kind: PropagationPolicy
  metadata: {name: p, namespace: deploy}
  spec:
    resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
    placement:
      clusterAffinity: {labelSelector: {matchLabels: {workload-test: member}}}
      clusterTolerations: [{key: a, operator: Exists}]
      replicaScheduling: {replicaSchedulingType: Divided}
"
);

/// The errors of a text. The objects that were read are linted and decided too.
fn errors(text: &str, validation: Validation) -> Vec<InputError> {
    let (mut world, mut reader) = (World::default(), Reader::load(validation).unwrap());
    reader.add(&mut |document| world.add(document), "app.yaml", text);
    let _ = lint_policy::world(&world);
    let settings = Settings { profile: None, now: Timestamp::UNIX_EPOCH };
    let _ = world.decide(&mut Scheduler::new(Profiles::default()), &settings);
    reader.errors
}

/// `app.yaml:12:5: ...`, `app.yaml#2: ...`, or `app.yaml: not YAML: ... line 3 ...`.
fn names_the_place(error: &InputError) -> bool {
    let place = error.origin.strip_prefix("app.yaml").unwrap_or("?");
    let numbered = place.starts_with([':', '#']) && place.contains(|c: char| c.is_ascii_digit());
    numbered || (place.is_empty() && error.problem.contains("line"))
}

/// One change of a text: where, as a part of its length, and what is put there in place of so many bytes.
fn change() -> impl Strategy<Value = (f64, usize, String)> {
    let text = prop_oneof![
        2 => "\\PC{0,8}",
        2 => "[-\\[\\]{}:,&*!|>'\"#% \\n\\t]{0,6}",
        1 => proptest::sample::select(&["null", "[]", "{}", "-1", "1e999", "\n---\n", "kind: List", "&a [*a]"][..])
            .prop_map(str::to_owned),
    ];
    (0.0..1.0, 0..12_usize, text)
}

fn changed(text: &str, (at, skip, with): &(f64, usize, String)) -> String {
    let boundary = |at: usize| (at..=text.len()).find(|at| text.is_char_boundary(*at));
    let start = boundary((at * text.len() as f64) as usize).unwrap_or(text.len());
    let end = boundary((start + skip).min(text.len())).unwrap_or(text.len());
    format!("{}{with}{}", &text[..start], &text[end..])
}

#[test]
fn the_manifest_that_is_mutated_is_sound() {
    assert_eq!(errors(SOUND, Validation::Strict), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_is_read_or_refused_with_its_place(
        text in prop_oneof!["\\PC{0,80}", "[-\\[\\]{}:,&*!|>'\" a-c\\n]{0,60}"],
    ) {
        for error in errors(&text, Validation::Strict) {
            prop_assert!(names_the_place(&error), "{error}");
        }
    }

    #[test]
    fn a_mutated_manifest_is_read_or_refused_with_its_place(
        changes in proptest::collection::vec(change(), 1..4),
        validation in proptest::sample::select(&[Validation::Strict, Validation::Ignore][..]),
    ) {
        let text = changes.iter().fold(SOUND.to_owned(), |text, change| changed(&text, change));
        for error in errors(&text, validation) {
            prop_assert!(names_the_place(&error), "{error}");
        }
    }
}
