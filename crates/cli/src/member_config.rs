//! Kubeconfigs of Hosted members. They are stored in Secrets of the hub and used inside the controller's process, so
//! they must be self-contained: a path or a command would be read or run there.

use std::path::Path;

use anyhow::{Context, bail};
use k8s_openapi::ByteString;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

/// Key in the Secret.
pub(crate) const KEY: &str = "kubeconfig";
/// Fields that hold a path, the field that holds the content instead, and whether that is base64.
const FILES: [(&str, &str, bool); 4] = [
    ("certificate-authority", "certificate-authority-data", true),
    ("client-certificate", "client-certificate-data", true),
    ("client-key", "client-key-data", true),
    ("tokenFile", "token", false),
];
/// Fields that run a command.
const COMMANDS: [&str; 2] = ["exec", "auth-provider"];

/// One context of a kubeconfig file, with the content of every file that it references.
///
/// # Errors
/// When the file cannot be read, does not have the context, or gets its credentials from a command.
pub(crate) fn pack(file: &Path, context: Option<&str>) -> anyhow::Result<String> {
    let flag = || format!("read --member-kubeconfig {}", file.display());
    let text = std::fs::read_to_string(file).with_context(flag)?;
    let all: Value = serde_saphyr::from_str(&text).with_context(flag)?;
    let Some(chosen) = context.or_else(|| all["current-context"].as_str()) else {
        bail!("{} has no current context: give one with --member-context", file.display());
    };
    let entry = |list: &str, name: &str, part: &str| {
        let entries = all[list].as_array().into_iter().flatten();
        let found = entries.rev().find(|entry| entry["name"] == name);
        let found = found.map(|entry| entry[part].clone());
        found.with_context(|| format!("{} has no {part} {name:?}", file.display()))
    };
    let context = entry("contexts", chosen, "context")?;
    let named = |part: &str| context[part].as_str().unwrap_or_default();
    let folder = file.parent().unwrap_or(Path::new("."));
    let cluster = inline(entry("clusters", named("cluster"), "cluster")?, folder)?;
    let user = inline(entry("users", named("user"), "user")?, folder)?;
    let packed = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "member",
        "contexts": [{"name": "member", "context": {"cluster": "member", "user": "member"}}],
        "clusters": [{"name": "member", "cluster": cluster}],
        "users": [{"name": "member", "user": user}],
    });
    write(&packed).with_context(flag)
}

/// The text of a kubeconfig.
///
/// # Errors
/// When it is not self-contained.
pub(crate) fn write(kubeconfig: &Value) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(kubeconfig).context("write the kubeconfig")?;
    check(&text)?;
    Ok(text)
}

fn inline(mut part: Value, folder: &Path) -> anyhow::Result<Value> {
    let Some(fields) = part.as_object_mut() else { return Ok(part) };
    for (path, content, encoded) in FILES {
        let Some(Value::String(file)) = fields.remove(path) else { continue };
        let file = folder.join(file);
        let bytes =
            std::fs::read(&file).with_context(|| format!("read {path} {}", file.display()))?;
        let value = if encoded {
            json!(ByteString(bytes))
        } else {
            json!(String::from_utf8(bytes).with_context(|| format!("read {path}"))?.trim())
        };
        fields.insert(content.to_owned(), value);
    }
    Ok(part)
}

/// Whether a kubeconfig is self-contained.
fn check(text: &str) -> anyhow::Result<()> {
    let all: Value = serde_saphyr::from_str(text).context("it is no YAML")?;
    for (list, part) in [("clusters", "cluster"), ("users", "user")] {
        for entry in all[list].as_array().into_iter().flatten() {
            let has = |field: &str| !entry[part][field].is_null();
            if let Some(field) = COMMANDS.into_iter().find(|field| has(field)) {
                bail!(
                    "{list}[].{part}.{field} runs a command: use a ServiceAccount's token or a client certificate"
                );
            }
            if let Some((field, content, _)) = FILES.into_iter().find(|(field, ..)| has(field)) {
                bail!("{list}[].{part}.{field} is a path: put what is there into {content}");
            }
        }
    }
    Ok(())
}

/// The client configuration of a kubeconfig from a Secret.
///
/// # Errors
/// When it is not self-contained, or cannot be used.
pub(crate) async fn unpack(text: &str) -> anyhow::Result<Config> {
    check(text)?;
    let kubeconfig = Kubeconfig::from_yaml(text).context("it is no kubeconfig")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.context("it cannot be used")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_packed_kubeconfig_needs_no_file_and_runs_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "secret\n").unwrap();
        let file = folder.path().join("config");
        let write = |user: &str| {
            let text = format!(
                "{{current-context: a, contexts: [{{name: a, context: {{cluster: c, user: u}}}}, {{name: b, context: {{cluster: d, user: u}}}}],
                  clusters: [{{name: c, cluster: {{server: 'https://c:1', insecure-skip-tls-verify: true}}}}, {{name: d, cluster: {{server: 'https://d:1'}}}}],
                  users: [{{name: u, user: {user}}}]}}"
            );
            std::fs::write(&file, text).unwrap();
        };
        write("{tokenFile: token}");
        let packed = pack(&file, None).unwrap();
        assert!(packed.contains("secret") && !packed.contains("tokenFile"), "{packed}");
        assert_eq!(unpack(&packed).await.unwrap().cluster_url.host(), Some("c"));
        let other = pack(&file, Some("b")).unwrap();
        assert_eq!(unpack(&other).await.unwrap().cluster_url.host(), Some("d"));
        assert!(!other.contains("https://c"), "only what is needed");
        for (user, context, part) in [
            ("{exec: {command: aws}}", None, "exec"),
            ("{client-key: absent}", None, "client-key"),
            ("{token: t}", Some("moon"), "\"moon\""),
        ] {
            write(user);
            let error = format!("{:#}", pack(&file, context).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
        // Write access to the Secret must not give read access to the controller's files.
        let text = std::fs::read_to_string(&file)
            .unwrap()
            .replace("{token: t}", "{tokenFile: /etc/passwd}");
        assert!(format!("{:#}", unpack(&text).await.unwrap_err()).contains("tokenFile"));
    }

    /// A kubeconfig from a Secret is used in the controller's process: no file is read, no command is run, and a YAML
    /// bomb is refused quickly.
    #[tokio::test]
    async fn hostile_kubeconfigs_are_refused_in_time() {
        let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (name, before) in
            [("b", "a"), ("c", "b"), ("d", "c"), ("e", "d"), ("f", "e"), ("g", "f")]
        {
            let items = vec![format!("*{before}"); 10].join(", ");
            laughs.push_str(&format!("{name}: &{name} [{items}]\n"));
        }
        let user = |user: &str| {
            format!("apiVersion: v1\nkind: Config\nusers:\n- name: u\n  user: {user}\n")
        };
        let nested = "[".repeat(100_000);
        for text in [
            laughs,
            nested,
            "{a: ".repeat(50_000),
            "\0".to_owned(),
            String::new(),
            user("{exec: {command: /bin/sh}}"),
            user("{<<: {exec: {command: /bin/sh}}}"),
            user("{tokenFile: /etc/shadow}"),
            user("{\"client-key\": /etc/shadow}"),
            user("{auth-provider: {name: gcp, config: {cmd-path: /bin/sh}}}"),
        ] {
            let began = std::time::Instant::now();
            let refused = unpack(&text).await;
            let start: String = text.chars().take(80).collect();
            assert!(refused.is_err(), "{start}");
            assert!(began.elapsed() < std::time::Duration::from_secs(5), "{start}");
        }
    }
}
