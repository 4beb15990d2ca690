//! `deploy/kustomize`: what does not depend on the history's place, one base for each place, and components; and the base of a
//! bundled hub, which shares nothing with them.

use std::fmt::Write as _;

use super::{Files, HEADER, generated, part, postgres, standard};

const FOLDER: &str = "deploy/kustomize";
/// Beside the manifest that it names.
const BUNDLED: &str = "deploy/bundled";
/// Parts that `atoll install` prints only when asked for, as components of kustomize.
const COMPONENTS: [&str; 5] = ["kinds", "monitoring", "observe", "replica-sync", "secrets"];

pub(super) fn files(files: &mut Files) -> anyhow::Result<()> {
    let mut common = Vec::new();
    for part in atoll_install::parts(&standard())? {
        if part.name == "controller" {
            continue;
        }
        let name = format!("{}.yaml", part.name);
        files.insert(format!("{FOLDER}/common/{name}"), generated(part)?);
        common.push(name);
    }
    kustomization(files, &format!("{FOLDER}/common"), "Kustomization", &common);
    kustomization(files, BUNDLED, "Kustomization", &["bundled.yaml".to_owned()]);
    for (folder, options, base) in
        [("", standard(), "common"), ("/postgres", postgres(), "../common")]
    {
        let name = "controller.yaml".to_owned();
        files.insert(format!("{FOLDER}{folder}/{name}"), generated(part(&options, "controller")?)?);
        let folder = format!("{FOLDER}{folder}");
        kustomization(files, &folder, "Kustomization", &[base.to_owned(), name]);
    }
    for name in COMPONENTS {
        let file = format!("{name}.yaml");
        files.insert(format!("{FOLDER}/{name}/{file}"), generated(part(&postgres(), name)?)?);
        kustomization(files, &format!("{FOLDER}/{name}"), "Component", &[file]);
    }
    Ok(())
}

fn kustomization(files: &mut Files, folder: &str, kind: &str, resources: &[String]) {
    let version = if kind == "Component" { "v1alpha1" } else { "v1beta1" };
    let mut text = format!(
        "{HEADER}apiVersion: kustomize.config.k8s.io/{version}\nkind: {kind}\nresources:\n"
    );
    for resource in resources {
        let _ = writeln!(text, "- {resource}");
    }
    files.insert(format!("{folder}/kustomization.yaml"), text);
}
