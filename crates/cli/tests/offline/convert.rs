//! `atoll convert`, and `schedule` and `lint` on objects of other federations.

use std::path::Path;

use serde_json::Value;

use super::atoll;

const KARMADA: &str = "crates/cli/tests/offline/karmada";

fn file(name: &str) -> String {
    format!("{KARMADA}/{name}")
}

#[test]
fn karmadas_objects_and_the_report_as_people_see_them() {
    for (name, files, code) in [
        ("convert-policies", &["policies.yaml", "objects.yaml"][..], 3),
        ("convert-clusters", &["clusters.yaml"], 0),
        ("convert-kosmos-and-kruise", &["others.yaml"], 0),
    ] {
        let files: Vec<_> = files.iter().map(|name| file(name)).collect();
        let ran = atoll(&["convert", "-f", &files.join(",")], "");
        assert_eq!(ran.code, Some(code), "{name}: {}", ran.stderr);
        assert!(ran.stderr.lines().all(|line| line.chars().count() <= 100), "{}", ran.stderr);
        insta::assert_snapshot!(name, format!("{}\n==== report\n{}", ran.stdout, ran.stderr));
    }
}

#[test]
fn the_json_report_has_every_field_and_the_objects_are_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let args = [
        "convert",
        "-f",
        &file("policies.yaml"),
        "-o",
        "json",
        "--report",
        "json",
        "--report-file",
    ];
    let ran = atoll(&[&args[..], &[report.to_str().unwrap()]].concat(), "");
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "only the error: {}", ran.stderr);
    let list = ran.json();
    assert_eq!(list["kind"], "List");
    let policy = &list["items"][0];
    assert_eq!(policy["apiVersion"], "policy.atoll.dev/v1alpha1");
    assert_eq!(policy["spec"]["schedulerName"], "karmada");
    assert_eq!(
        policy["spec"]["placement"]["clusterTolerations"][0]["key"],
        "cluster.atoll.dev/not-ready"
    );
    let report: Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    let class = |field: &str| {
        let lines = report["lines"].as_array().unwrap();
        let line = lines.iter().find(|line| line["field"] == field);
        line.unwrap_or_else(|| panic!("no line for {field}"))["class"].as_str().unwrap().to_owned()
    };
    assert_eq!(class("spec.placement.clusterAffinity.clusterNames"), "TakenOver");
    assert_eq!(class("spec.schedulerName"), "Changed");
    let counted = |class: &str| {
        report["lines"].as_array().unwrap().iter().filter(|line| line["class"] == class).count()
    };
    assert_eq!(report["summary"]["noEquivalent"], counted("NoEquivalent"));
    assert_eq!(report["summary"]["takenOver"], counted("TakenOver"));
}

#[test]
fn a_kustomization_of_plain_files_needs_no_other_program() {
    let by_folder = super::atoll_with(&["convert", "-k", KARMADA], "", &[("PATH", "/nonexistent")]);
    let by_files =
        atoll(&["convert", "-f", &file("policies.yaml"), "-f", &file("objects.yaml")], "");
    assert_eq!(by_folder.code, Some(3), "{}", by_folder.stderr);
    assert_eq!(by_folder.stdout, by_files.stdout);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let write =
        |text: &str| std::fs::write(folder.path().join("kustomization.yaml"), text).unwrap();
    write("namePrefix: a-\nresources: []\n");
    let ran = super::atoll_with(&["convert", "-k", path], "", &[("PATH", "/nonexistent")]);
    assert_eq!(ran.code, Some(1));
    for part in ["`namePrefix`", "kubectl is not installed", "kustomize build"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    write("resources: [absent.yaml]\n");
    let ran = atoll(&["convert", "-k", path], "");
    assert!(ran.stderr.contains("absent.yaml does not exist"), "{}", ran.stderr);
    write("resources: [.]\n");
    let ran = atoll(&["convert", "-k", path], "");
    assert!(ran.stderr.contains("nested more than"), "{}", ran.stderr);
}

#[test]
fn schedule_decides_on_karmadas_objects_as_on_converted_ones() {
    let files = ["policies.yaml", "objects.yaml", "clusters.yaml"].map(file).join(",");
    let direct = atoll(&["schedule", "-f", &files, "-o", "json"], "");
    assert_eq!(direct.code, Some(0), "{}", direct.stderr);
    let shares = |answer: &Value| answer["items"][0]["clusters"].clone();
    let answer = direct.json();
    // member1 is cordoned, so member2 gets all.
    assert_eq!(shares(&answer)[0]["name"], "member2", "{answer}");
    assert_eq!(answer["items"][0]["decision"]["profile"], "karmada");
    for part in [
        "warning: PropagationPolicy shop/web, ClusterPropagationPolicy config: spec.schedulerName",
        "FederatedHPA shop/web: Atoll has no such kind",
    ] {
        assert!(direct.stderr.contains(part), "{part}: {}", direct.stderr);
    }

    let converted =
        atoll(&["convert", "-f", &[file("policies.yaml"), file("objects.yaml")].join(",")], "");
    let ran = atoll(
        &["schedule", "-f", "-", "-f", &file("clusters.yaml"), "-o", "json"],
        &converted.stdout,
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(shares(&ran.json()), shares(&answer));
}

#[test]
fn render_and_plan_read_karmadas_objects_as_schedule_does() {
    let files = ["policies.yaml", "objects.yaml", "clusters.yaml"].map(file).join(",");
    let rendered = atoll(&["render", "-f", &files, "-o", "json"], "");
    let rendered = rendered.json();
    let items = rendered["items"].as_array().unwrap().iter();
    let web: Vec<&Value> = items.filter(|item| item["manifest"]["kind"] == "Deployment").collect();
    assert_eq!(web.len(), 1, "{rendered}");
    assert_eq!(web[0]["cluster"], "member2");
    let marks = web[0]["manifest"]["metadata"].to_string();
    assert!(!marks.contains("karmada.io"), "{marks}");

    let planned = atoll(&["plan", "--against", &files, "--scale", "shop/web=9", "-o", "json"], "");
    let plan = planned.json();
    let workload = plan.to_string();
    assert!(workload.contains("member2") && workload.contains("web"), "{plan}");
    assert!(planned.stderr.contains("spec.schedulerName"), "{}", planned.stderr);
}

#[test]
fn a_misspelt_field_of_karmadas_is_an_error_with_its_place() {
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/offline/karmada/policies.yaml"),
    );
    let text = text
        .unwrap()
        .replace("clusterAffinity:\n      clusterNames: [member1, member2]", "clusterAfinity: {}");
    let line = 1 + text.lines().position(|line| line.contains("clusterAfinity")).unwrap();
    for verb in ["lint", "schedule"] {
        let ran = atoll(&[verb, "-f", "-"], &text);
        assert_eq!(ran.code, Some(1), "{verb}");
        let place = format!(
            "stdin:{line}:5: PropagationPolicy shop/web: spec.placement.clusterAfinity: unknown field"
        );
        assert!(ran.stderr.contains(&place), "{verb}: {}", ran.stderr);
    }
}

#[test]
fn mistakes_in_the_arguments_name_the_flag() {
    for (args, part) in [
        (&["convert"][..], "--filename"),
        (&["convert", "-f", "x.yaml", "-k", "."], "cannot be used with"),
        (&["convert", "-f", "x.yaml", "-n", "shop"], "does not use --namespace"),
        (&["convert", "--from", "x", "--kubeconfig", "y"], "does not use --kubeconfig"),
    ] {
        let ran = atoll(args, "");
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{args:?}: {}", ran.stderr);
    }
    let ran = atoll(&["convert", "-f", "-"], "kind: A\n");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("stdin#1: apiVersion: missing"), "{}", ran.stderr);
}
