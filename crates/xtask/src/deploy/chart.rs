//! `deploy/chart`: the same objects as a Helm chart. The templates are rendered with placeholders, which become the chart's
//! values, so that the chart has no source of its own.

use anyhow::{Context, bail};
use atoll_install::{Address, History, Hub, Options, Part, ServiceType};
use serde_json::Value;

use super::{Files, HEADER};

const FOLDER: &str = "deploy/chart";

/// What Helm writes as `{{`.
const OPEN: &str = r#"{{ "\x7b\x7b" }}"#;
/// Start of every placeholder text.
const MARK: &str = "value-of-";
const NAMESPACE: &str = "value-of-namespace";
const HOST: &str = "value-of-host";
/// Placeholders of numbers, which occur nowhere else.
const PORT: u16 = 64_999;
const REPLICAS: u32 = 1_999_999_999;

const VALUES: &str = include_str!("values.yaml");
const SCHEMA: &str = include_str!("values.schema.json");
const NOTES: &str = include_str!("NOTES.txt");

/// The port of the address for agents.
const HELPERS: &str = r#"{{- define "atoll.port" -}}
{{- if .Values.address -}}{{- splitList ":" .Values.address | last -}}{{- else -}}7443{{- end -}}
{{- end -}}
"#;

pub(super) fn files(files: &mut Files) -> anyhow::Result<()> {
    let mut add = |path: &str, text: String| files.insert(format!("{FOLDER}/{path}"), text);
    let parts = atoll_install::all_parts(&placeholders(secret()))?;
    let with_volume = atoll_install::all_parts(&placeholders(volume()))?;
    for part in &parts {
        let text = match part.name {
            "crds" => {
                add("crds/crds.yaml", format!("{HEADER}{}", part.text()?));
                continue;
            }
            "controller" => {
                let other = with_volume.iter().find(|other| other.name == part.name);
                let other = other.context("the controller with a volume")?;
                either(&template(part)?, &template(other)?)
            }
            "secrets" => only_if("secrets", &template(part)?),
            "kinds" => only_if("clusterKinds", &template(part)?),
            "replica-sync" => only_if("replicaSync", &template(part)?),
            "observe" => only_if("observe", &template(part)?),
            "monitoring" => only_if("serviceMonitor", &template(part)?),
            _ => template(part)?,
        };
        add(&format!("templates/{}.yaml", part.name), format!("{HEADER}{text}"));
    }
    add("templates/_helpers.tpl", HELPERS.to_owned());
    add("templates/NOTES.txt", NOTES.to_owned());
    add("values.yaml", format!("{HEADER}{}", VALUES.replace("IMAGE", atoll_install::IMAGE)));
    add("values.schema.json", SCHEMA.to_owned());
    add("Chart.yaml", format!("{HEADER}{}", chart()));
    Ok(())
}

fn chart() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "apiVersion: v2\nname: atoll\ndescription: Atoll's controller on the hub of a federation\ntype: application\n\
         version: {version}\nappVersion: {version}\n"
    )
}

fn secret() -> History {
    History::Secret("value-of-history-secret".to_owned())
}

fn volume() -> History {
    History::Volume("value-of-history-volume".to_owned())
}

/// Every value of the chart as a placeholder.
fn placeholders(history: History) -> Options {
    let replicas = matches!(history, History::Secret(_)).then_some(REPLICAS);
    Options {
        hub: Hub::Existing,
        image: "value-of-image".to_owned(),
        replicas,
        namespace: NAMESPACE.to_owned(),
        history,
        address: Some(Address { host: HOST.to_owned(), port: PORT }),
        service_type: ServiceType::LoadBalancer,
        secrets: true,
        cluster_kinds: true,
        replica_sync: true,
        observe: true,
        service_monitor: true,
        metrics_namespace: "value-of-metrics-namespace".to_owned(),
        priority_class: Some("value-of-priority-class".to_owned()),
        controller_args: vec!["value-of-controller-args".to_owned()],
    }
}

fn only_if(value: &str, text: &str) -> String {
    format!("{{{{- if .Values.{value} }}}}\n{text}{{{{- end }}}}\n")
}

/// One leader and standbys with a database, one Pod with a volume.
fn either(secret: &str, volume: &str) -> String {
    let alone = "{{- if gt (int (.Values.replicas | default 1)) 1 }}\n\
                 {{- fail \"replicas needs history.secret: the history on a volume is a SQLite file, which one Pod can use\" }}\n\
                 {{- end }}\n";
    // As `atoll install` does.
    let shared = "{{- if or (eq .Release.Namespace \"default\") (hasPrefix \"kube-\" .Release.Namespace) }}\n\
                  {{- fail \"give Atoll a namespace of its own (-n atoll-system): who may create Pods or read Secrets in it controls every member\" }}\n\
                  {{- end }}\n";
    format!(
        "{shared}{{{{- if .Values.history.secret }}}}\n{secret}{{{{- else }}}}\n{alone}{volume}{{{{- end }}}}\n"
    )
}

/// Annotation of what `helm uninstall` leaves.
const KEEP: &str = "helm.sh/resource-policy";

/// Whether the object stays, as with `atoll uninstall`: the certificate authority and the history of a next installation.
fn keeps(object: &Value) -> bool {
    object["kind"] == "Namespace" || object["kind"] == "PersistentVolumeClaim"
}

/// The part as a template of Helm.
fn template(part: &Part) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in &part.objects {
        // Helm makes the release's namespace.
        if object["kind"] == "Namespace" && object["metadata"]["name"] == NAMESPACE {
            continue;
        }
        let mut object = object.clone();
        if keeps(&object) {
            object["metadata"]["annotations"][KEEP] = "keep".into();
        }
        let document = document(part.name, &object)?;
        text.push_str(&if object["kind"] == "Namespace" {
            format!(
                "{{{{- if ne .Release.Namespace \"atoll-system\" }}}}\n{document}{{{{- end }}}}\n"
            )
        } else {
            document
        });
    }
    Ok(format!("{}{text}", part.comment))
}

fn document(part: &str, object: &Value) -> anyhow::Result<String> {
    let yaml = serde_saphyr::to_string(object).with_context(|| format!("write {part} as YAML"))?;
    // Alerts and dashboards have {{ for their own templates, which Helm must leave alone.
    let yaml = yaml.replace("{{", OPEN);
    let mut text = "---\n".to_owned();
    for line in yaml.trim_end().lines() {
        text.push_str(&value(line));
        text.push('\n');
    }
    let left = [MARK.to_owned(), PORT.to_string(), REPLICAS.to_string()];
    if let Some(left) = left.iter().find(|left| text.contains(*left)) {
        bail!("part {part}: placeholder {left} is not replaced:\n{text}");
    }
    Ok(text)
}

/// A line with the chart's values in place of placeholders.
fn value(line: &str) -> String {
    let content = line.trim_start();
    let indent = &line[..line.len() - content.len()];
    let optional = |value: &str, key: &str| {
        format!("{{{{- with .Values.{value} }}}}\n{indent}{key}{{{{ . | quote }}}}\n{{{{- end }}}}")
    };
    if content.starts_with("priorityClassName: ") {
        return optional("priorityClass", "priorityClassName: ");
    }
    if content.starts_with("address: ") {
        return optional("address", "address: ");
    }
    if content == "- value-of-controller-args" {
        return optional("controllerArgs", "- ").replace("{{- with", "{{- range");
    }
    line.replace("value-of-image", "{{ .Values.image | quote }}")
        .replace("value-of-history-secret", "{{ .Values.history.secret | quote }}")
        .replace("value-of-history-volume", "{{ .Values.history.volume | quote }}")
        .replace("value-of-metrics-namespace", "{{ .Values.metricsNamespace | quote }}")
        .replace(NAMESPACE, "{{ .Release.Namespace }}")
        .replace(&format!("replicas: {REPLICAS}"), "replicas: {{ .Values.replicas | default 3 }}")
        .replace(&format!("port: {PORT}"), "port: {{ include \"atoll.port\" . }}")
        .replace("type: LoadBalancer", "type: {{ .Values.serviceType }}")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::process::Command;

    use super::super::tests::keyed;
    use super::*;
    use crate::run::say;

    fn templates() -> Files {
        let mut all = Files::new();
        files(&mut all).unwrap();
        all.retain(|path, _| path.contains("/templates/"));
        all
    }

    /// Texts between `{{` and `}}`.
    fn actions(text: &str) -> Vec<String> {
        let parts = text.split("{{").skip(1);
        parts
            .map(|part| part.split_once("}}").unwrap().0.trim_matches(['-', ' ']).to_owned())
            .collect()
    }

    #[test]
    fn blocks_end_and_every_value_exists_and_has_an_effect() {
        let mut used = BTreeSet::new();
        for (path, text) in templates() {
            let mut open = 0_i32;
            for action in actions(&text) {
                match action.split(' ').next().unwrap() {
                    "if" | "with" | "range" | "define" => open += 1,
                    "end" => open -= 1,
                    _ => {}
                }
                assert!(open >= 0, "{path}");
                for value in action.split(".Values.").skip(1) {
                    let name = value.split(|c: char| !c.is_alphanumeric() && c != '.').next();
                    used.insert(name.unwrap().to_owned());
                }
            }
            assert_eq!(open, 0, "{path}");
        }
        let values: Value = serde_saphyr::from_str(VALUES).unwrap();
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let mut known = BTreeSet::new();
        for (name, value) in values.as_object().unwrap() {
            assert!(schema["properties"][name].is_object(), "{name} is not in the schema");
            match value.as_object() {
                Some(inner) => known.extend(inner.keys().map(|inner| format!("{name}.{inner}"))),
                None => {
                    known.insert(name.clone());
                }
            }
        }
        assert_eq!(used, known);
    }

    /// The standard output of helm on the chart, or its error; `None` where it is not installed.
    fn helm(args: &[&str]) -> Option<Result<String, String>> {
        let chart = crate::root().unwrap().join(FOLDER);
        let Ok(ran) = Command::new("helm").args(args).arg(&chart).output() else {
            say("helm is not installed: deploy/chart is not rendered");
            return None;
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(match ran.status.success() {
            true => Ok(text(&ran.stdout)),
            false => Err(text(&ran.stdout) + &text(&ran.stderr)),
        })
    }

    #[test]
    fn helm_keeps_the_certificate_authority_and_the_history() {
        let all = templates().into_values().collect::<String>();
        let kept = all.split("---\n").filter(|text| text.contains(KEEP)).collect::<Vec<_>>();
        assert_eq!(kept.len(), 2, "{kept:?}");
        assert!(kept.iter().any(|text| text.contains("kind: Namespace")));
        assert!(kept.iter().any(|text| text.contains("kind: PersistentVolumeClaim")));
    }

    #[test]
    fn helm_makes_what_atoll_install_prints() {
        let Some(linted) = helm(&["lint"]) else { return };
        linted.unwrap();
        let standard = Options { namespace: "federation".to_owned(), ..super::super::standard() };
        let everything = Options {
            image: "registry.example.com/atoll:1".to_owned(),
            replicas: Some(5),
            history: History::Secret("db".to_owned()),
            address: Some("hub.example.com:443".parse().unwrap()),
            service_type: ServiceType::NodePort,
            secrets: true,
            cluster_kinds: true,
            replica_sync: true,
            observe: true,
            service_monitor: true,
            metrics_namespace: "metrics".to_owned(),
            priority_class: Some("high".to_owned()),
            controller_args: vec![
                "--require-cluster-sets".to_owned(),
                "--rollout-rate=7".to_owned(),
            ],
            ..standard.clone()
        };
        let values = "image=registry.example.com/atoll:1,replicas=5,history.secret=db,address=hub.example.com:443,\
                      serviceType=NodePort,secrets=true,clusterKinds=true,replicaSync=true,observe=true,serviceMonitor=true,metricsNamespace=metrics,\
                      priorityClass=high,controllerArgs={--require-cluster-sets,--rollout-rate=7}";
        for (options, set) in [(standard, ""), (everything, values)] {
            let args = ["template", "--include-crds", "--namespace", "federation", "--set", set];
            let made = helm(&args).unwrap().unwrap();
            let made: Vec<Value> = serde_saphyr::from_multiple(&made).unwrap();
            let mut printed = keyed(
                atoll_install::parts(&options).unwrap().into_iter().flat_map(|part| part.objects),
            );
            // Helm makes the release's namespace.
            printed.retain(|key, _| key != "\"Namespace\" null/\"federation\"");
            let made = keyed(made);
            let names =
                |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&made), names(&printed));
            for (key, mut object) in printed {
                if keeps(&object) {
                    object["metadata"]["annotations"][KEEP] = "keep".into();
                }
                assert!(made[&key] == object, "{key}: {:#}\n{object:#}", made[&key]);
            }
        }
        for namespace in ["default", "kube-system"] {
            let refused = helm(&["template", "--namespace", namespace]).unwrap().unwrap_err();
            assert!(refused.contains("a namespace of its own"), "{refused}");
        }
        let refused = helm(&["template", "--namespace", "federation", "--set", "replicas=3"]);
        let refused = refused.unwrap().unwrap_err();
        assert!(refused.contains("history.secret"), "{refused}");
        let refused = helm(&["template", "--namespace", "federation", "--set", "replicas=0"])
            .unwrap()
            .unwrap_err();
        assert!(refused.contains("replicas"), "{refused}");
    }
}
