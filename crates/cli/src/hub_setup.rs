//! `atoll hub-setup` and `atoll hub-backups`: what the Jobs of `atoll install --hub bundled` run. Not for users.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use atoll_api::hex;
use atoll_apiserver::pki::{self, Authority, Credentials};
use atoll_install::{Address, CONTROLLER_KUBECONFIG, HUB, HUB_PORT, Hub, IMAGE, Options};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::print::{Printer, note};

/// Field manager of both writes.
const MANAGER: &str = "atoll-hub-setup";
/// How long the hub may take to start; its image may have to be pulled first. The Job tries again.
const START: Duration = Duration::from_secs(300);
/// Pause between two attempts to reach it.
const RETRY: Duration = Duration::from_secs(2);
/// Limit of one request.
const CALL: Duration = Duration::from_secs(30);
/// The user of Atoll's controller on the hub, for whom `rbac.yaml` has rights.
const CONTROLLER_USER: &str = "system:serviceaccount:atoll-system:atoll-controller";
/// A key of the Secret for each file of an authority's folder.
const AUTHORITIES: [&str; 3] = ["hub", "etcd", "front-proxy"];
/// Annotation of the Secret and of the Pods that use it: hash of the certificates that they started with.
const IN_USE: &str = "atoll.dev/certificates";
/// The administrator's kubeconfig in the Secret.
const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";

#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    /// Namespace of the hub's Pod, in this cluster
    #[arg(long, value_name = "NAME")]
    pod_namespace: String,
    /// As of `atoll install`
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<Address>,
    /// As of `atoll install`
    #[arg(long)]
    secrets: bool,
    /// As of `atoll install`
    #[arg(long)]
    cluster_kinds: bool,
    /// As of `atoll install`
    #[arg(long)]
    replica_sync: bool,
    /// Write the certificates to this folder instead of a Secret, for this address of the hub, and apply the objects to it
    #[arg(long, hide = true, value_name = "FOLDER", requires = "server")]
    folder: Option<PathBuf>,
    /// The hub's address, with --folder
    #[arg(long, hide = true, value_name = "URL", requires = "folder")]
    server: Option<String>,
    /// With --folder: only write the certificates
    #[arg(long, hide = true, requires = "folder")]
    certificates_only: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupsArgs {
    /// Folder with the snapshots
    #[arg(long, value_name = "FOLDER", required_unless_present = "move_away")]
    folder: Option<PathBuf>,
    /// How many stay; older ones are deleted
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), required_unless_present = "move_away")]
    keep: Option<u32>,
    /// Size of the volume in bytes: there must be room for the next snapshot, which may be twice as large as the newest one
    #[arg(long, value_name = "BYTES", required_unless_present = "move_away")]
    volume: Option<u64>,
    /// Instead: rename this folder of etcd's data, so that a snapshot can be restored in its place
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["folder", "keep", "volume"])]
    move_away: Option<PathBuf>,
}

/// Makes or renews the certificates, waits for the hub, and applies its objects.
pub(crate) async fn run(args: SetupArgs, out: &Printer) -> anyhow::Result<()> {
    let namespace = args.pod_namespace.clone();
    let server = args.server.clone();
    let server = server.unwrap_or_else(|| format!("https://{HUB}.{namespace}.svc:{HUB_PORT}"));
    let files = match &args.folder {
        Some(folder) => {
            let files = certificates(&folder.join("authorities"), &namespace, &server)?;
            for (name, text) in &files {
                let path = folder.join(name);
                std::fs::write(&path, text).with_context(|| path.display().to_string())?;
            }
            files
        }
        None => {
            let config = Config::incluster().context("this verb runs in a Pod")?;
            let host = Client::try_from(config).context("a client for this cluster")?;
            in_secret(&host, &namespace, &server, &std::env::temp_dir().join("atoll-hub")).await?
        }
    };
    if args.certificates_only {
        return Ok(());
    }
    let client = client(&files[ADMIN_KUBECONFIG]).await?;
    wait(&client).await?;
    let options = Options {
        namespace,
        hub: Hub::Bundled { volume: String::new() },
        address: args.address,
        secrets: args.secrets,
        cluster_kinds: args.cluster_kinds,
        replica_sync: args.replica_sync,
        ..Options::new(IMAGE)
    };
    let objects = atoll_install::hub_objects(&options)?;
    for object in &objects {
        apply(&client, object).await?;
    }
    out.line(format!("The hub is ready: {} objects applied.", objects.len()))
}

/// All certificates, keys and kubeconfigs, by the names of their files. What the folder of authorities has already stays, until it
/// is about to expire.
fn certificates(
    folder: &Path,
    namespace: &str,
    server: &str,
) -> anyhow::Result<BTreeMap<String, String>> {
    let open = |name: &str| {
        Authority::open(&folder.join(name)).with_context(|| format!("the authority {name}"))
    };
    let [hub, etcd, front_proxy] = [open("hub")?, open("etcd")?, open("front-proxy")?];
    let mut files = BTreeMap::new();
    for (name, authority) in [("ca", &hub), ("etcd-ca", &etcd), ("front-proxy-ca", &front_proxy)] {
        files.insert(format!("{name}.crt"), authority.certificate().to_owned());
    }
    let names = atoll_install::hub_names(namespace);
    for (name, credentials) in [
        ("server", hub.server(&names)?),
        ("etcd", etcd.server(&names)?),
        ("etcd-client", etcd.client("etcd-client", "etcd-client", &[])?),
        ("front-proxy", front_proxy.client("front-proxy", "front-proxy-client", &[])?),
        // The pair that signs tokens of service accounts.
        ("accounts", hub.client("accounts", "service-accounts", &[])?),
    ] {
        let Credentials { certificate, key } = credentials;
        files.insert(format!("{name}.crt"), certificate);
        files.insert(format!("{name}.key"), key);
    }
    for (file, user, groups) in [
        (ADMIN_KUBECONFIG, "admin", &["system:masters"][..]),
        (CONTROLLER_KUBECONFIG, CONTROLLER_USER, &["system:serviceaccounts"]),
        ("controller-manager.kubeconfig", "system:kube-controller-manager", &[]),
    ] {
        let name = file.trim_end_matches(".kubeconfig");
        let context = pki::Context {
            name: HUB.to_owned(),
            server: server.to_owned(),
            authority: hub.certificate().to_owned(),
            user: hub.client(name, user, groups)?,
            namespace: None,
        };
        files.insert(file.to_owned(), pki::kubeconfig(&[context], HUB));
    }
    Ok(files)
}

/// The same, kept in a Secret together with the keys of the authorities. If they changed, the Pods that use them are
/// restarted: their kubeconfigs are read once.
async fn in_secret(
    host: &Client,
    namespace: &str,
    server: &str,
    folder: &Path,
) -> anyhow::Result<BTreeMap<String, String>> {
    let secrets: Api<Secret> = Api::namespaced(host.clone(), namespace);
    let found = call("read Secret atoll-hub", secrets.get_opt(HUB)).await?;
    let known = found.as_ref().and_then(|secret| secret.data.clone()).unwrap_or_default();
    unpack(folder, &known)?;
    let files = certificates(folder, namespace, server)?;
    let mut data = known.clone();
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    data.extend(files.iter().map(|(name, text)| (name.clone(), bytes(text))));
    data.extend(pack(folder)?);
    let hash = hash(&data);
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let Some(mut secret) = found else {
        // The Pods wait for the Secret, so they start with these.
        let metadata = ObjectMeta {
            name: Some(HUB.to_owned()),
            namespace: Some(namespace.to_owned()),
            annotations: Some(BTreeMap::from([(IN_USE.to_owned(), hash)])),
            ..ObjectMeta::default()
        };
        let secret = Secret { metadata, data: Some(data), ..Secret::default() };
        call("make Secret atoll-hub", secrets.create(&params, &secret)).await?;
        return Ok(files);
    };
    if data != known {
        secret.data = Some(data);
        secret = call("write Secret atoll-hub", secrets.replace(HUB, &params, &secret)).await?;
    }
    let in_use = secret.metadata.annotations.get_or_insert_default();
    if in_use.get(IN_USE) != Some(&hash) {
        restart(host, namespace, &hash).await?;
        // Last: if this Job ends before, the next one restarts them.
        in_use.insert(IN_USE.to_owned(), hash);
        call("write Secret atoll-hub", secrets.replace(HUB, &params, &secret)).await?;
    }
    Ok(files)
}

/// Replaces the Pods of hub and controller, unless they have started with these certificates.
async fn restart(host: &Client, namespace: &str, hash: &str) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({
        "spec": {"template": {"metadata": {"annotations": {IN_USE: hash}}}},
    }));
    let params = PatchParams::default();
    for (kind, name) in [("StatefulSet", HUB), ("Deployment", atoll_install::CONTROLLER)] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", kind));
        let api: Api<DynamicObject> = Api::namespaced_with(host.clone(), namespace, &resource);
        let step = format!("restart {kind} {name} with the new certificates");
        let patched = tokio::time::timeout(CALL, api.patch(name, &params, &patch)).await;
        match patched.with_context(|| format!("{step}: no answer"))? {
            Ok(_) => note(format!("{kind} {name} restarts with the new certificates")),
            // It has not been applied yet, and will start with them.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).context(step),
        }
    }
    Ok(())
}

fn hash(data: &BTreeMap<String, ByteString>) -> String {
    let mut hash = Sha256::new();
    for (name, bytes) in data {
        hash.update(name.as_bytes());
        hash.update((bytes.0.len() as u64).to_le_bytes());
        hash.update(&bytes.0);
    }
    hex::encode(&hash.finalize()[..16])
}

/// Writes the folders of the authorities from keys of the Secret, which are `authority.NAME.FILE`.
fn unpack(folder: &Path, data: &BTreeMap<String, ByteString>) -> anyhow::Result<()> {
    for (key, bytes) in data {
        let Some((name, file)) = key.strip_prefix("authority.").and_then(|key| key.split_once('.'))
        else {
            continue;
        };
        if !AUTHORITIES.contains(&name) || file.contains(['/', '\\']) {
            bail!("Secret {HUB} has the key {key}, which this version does not know");
        }
        let path = folder.join(name);
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        std::fs::write(path.join(file), &bytes.0).with_context(|| format!("write {key}"))?;
    }
    Ok(())
}

fn pack(folder: &Path) -> anyhow::Result<BTreeMap<String, ByteString>> {
    let mut data = BTreeMap::new();
    for name in AUTHORITIES {
        let path = folder.join(name);
        let entries = std::fs::read_dir(&path).with_context(|| path.display().to_string())?;
        for entry in entries {
            let path = entry.context("read the folder of an authority")?.path();
            let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
            let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
            data.insert(format!("authority.{name}.{file}"), ByteString(bytes));
        }
    }
    Ok(data)
}

async fn client(kubeconfig: &str) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).context("the hub's kubeconfig")?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.context("the hub's kubeconfig")?).context("a client for the hub")
}

async fn wait(hub: &Client) -> anyhow::Result<()> {
    let ready = async {
        let mut told = false;
        loop {
            let request = http::Request::get("/readyz").body(Vec::new()).context("ask /readyz")?;
            match call("ask /readyz", hub.request_text(request)).await {
                Ok(_) => return Ok(()),
                Err(error) if !told => {
                    note(format!("waiting for the hub: {error:#}"));
                    told = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(RETRY).await;
        }
    };
    tokio::time::timeout(START, ready)
        .await
        .with_context(|| format!("the hub is not ready after {} s", START.as_secs()))?
}

async fn apply(hub: &Client, object: &Value) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(hub.clone(), namespace, &resource),
        None => Api::all_with(hub.clone(), &resource),
    };
    let name = text(&object["metadata"]["name"]);
    let params = PatchParams::apply(MANAGER).force();
    let step = format!("apply {kind} {name}");
    call(&step, api.patch(&name, &params, &Patch::Apply(object))).await.map(drop)
}

async fn call<T>(
    step: &str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> anyhow::Result<T> {
    let answer = tokio::time::timeout(CALL, request).await;
    answer.with_context(|| format!("{step}: no answer"))?.with_context(|| step.to_owned())
}

/// Makes room for the next snapshot, or for the restore of one.
pub(crate) fn backups(args: &BackupsArgs, out: &Printer) -> anyhow::Result<()> {
    let BackupsArgs { folder, keep, volume, move_away } = args;
    match (move_away, folder, keep, volume) {
        (Some(folder), ..) => {
            self::move_away(folder, &Timestamp::now().as_second().to_string(), out)
        }
        (None, Some(folder), Some(keep), Some(volume)) => prune(folder, *keep, *volume, out),
        _ => bail!("name the snapshots with --folder, --keep and --volume"),
    }
}

/// Renames a folder to one that says when; nothing is deleted.
fn move_away(folder: &Path, when: &str, out: &Printer) -> anyhow::Result<()> {
    let name = folder.file_name().and_then(|name| name.to_str()).context("--move-away FOLDER")?;
    let away = folder.with_file_name(format!("{name}-before-{when}"));
    match std::fs::rename(folder, &away) {
        Ok(()) => out.line(format!("{} is {} now", folder.display(), away.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            out.line(format!("{} does not exist: there is nothing to move", folder.display()))
        }
        Err(error) => Err(error).with_context(|| format!("move {} away", folder.display())),
    }
}

/// Deletes the oldest snapshots, so that there is room for the next one. The newest one always stays.
fn prune(folder: &Path, keep: u32, volume: u64, out: &Printer) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let remove =
        |path: &Path| std::fs::remove_file(path).with_context(|| path.display().to_string());
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.context("read the folder")?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending {
            Some("db") => {
                let metadata = path.metadata().with_context(|| path.display().to_string())?;
                let made = metadata.modified().with_context(|| path.display().to_string())?;
                found.push((made, path, metadata.len()));
            }
            // Of a snapshot that was interrupted: no other one runs now.
            Some("part") => remove(&path)?,
            _ => {}
        }
    }
    found.sort();
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    let next = found.last().map_or(0, |(_, _, size)| size.saturating_mul(2));
    let mut total: u64 = found.iter().map(|(_, _, size)| size).sum();
    let mut deleted = 0;
    for (_, path, size) in &found[..found.len().saturating_sub(1)] {
        // One more follows.
        let few = found.len() - deleted < keep;
        if few && total.saturating_add(next) <= volume {
            break;
        }
        remove(path)?;
        total -= size;
        deleted += 1;
    }
    out.line(format!("{} snapshots, {deleted} deleted", found.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_survive_the_secret_and_are_made_once() {
        let folders = tempfile::tempdir().unwrap();
        let (first, second) = (folders.path().join("1"), folders.path().join("2"));
        let made = certificates(&first, "hub", "https://hub").unwrap();
        let stored = pack(&first).unwrap();
        unpack(&second, &stored).unwrap();
        assert_eq!(certificates(&second, "hub", "https://hub").unwrap(), made);
        assert_eq!(pack(&second).unwrap(), stored);
        // etcd accepts no client of the API server.
        assert_ne!(made["ca.crt"], made["etcd-ca.crt"]);
        let foreign = BTreeMap::from([("authority.x/../y.key".to_owned(), ByteString(Vec::new()))]);
        assert!(unpack(&second, &foreign).is_err());
    }

    #[tokio::test]
    async fn pods_restart_when_their_certificates_change_also_after_an_interrupted_job() {
        let server = atoll_apiserver::Server::open(atoll_apiserver::Options::memory()).unwrap();
        let host = server.client();
        let folders = tempfile::tempdir().unwrap();
        let secrets: Api<Secret> = Api::namespaced(host.clone(), "hub");
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
        let deployments: Api<DynamicObject> = Api::namespaced_with(host.clone(), "hub", &resource);
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hub"}});
        apply(&host, &namespace).await.unwrap();
        let controller = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": atoll_install::CONTROLLER, "namespace": "hub"},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        });
        apply(&host, &controller).await.unwrap();
        let run = async |number: &str| {
            let folder = folders.path().join(number);
            in_secret(&host, "hub", "https://hub", &folder).await.unwrap();
            let found = deployments.get(atoll_install::CONTROLLER).await.unwrap();
            found.data["spec"]["template"]["metadata"]["annotations"][IN_USE].clone()
        };
        assert_eq!(run("1").await, Value::Null, "the first ones: nothing has started before");
        assert_eq!(run("2").await, Value::Null, "nothing changed");
        // As a renewal whose Job ended after it had written the Secret.
        let mut secret = secrets.get(HUB).await.unwrap();
        secret.data.as_mut().unwrap().remove("server.crt");
        let other = "f".repeat(32);
        secret.metadata.annotations.as_mut().unwrap().insert(IN_USE.to_owned(), other.clone());
        secrets.replace(HUB, &PostParams::default(), &secret).await.unwrap();
        let restarted = run("3").await;
        assert!(restarted.is_string() && restarted != other.as_str(), "{restarted}");
        let secret = secrets.get(HUB).await.unwrap();
        assert_eq!(secret.metadata.annotations.unwrap()[IN_USE], restarted.as_str().unwrap());
        assert_eq!(run("4").await, restarted, "once");
    }

    #[test]
    fn the_data_before_a_restore_stay_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let (data, out) = (folder.path().join("data"), Printer::stdout());
        move_away(&data, "1", &out).unwrap();
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("member"), "kept").unwrap();
        move_away(&data, "2", &out).unwrap();
        let kept = std::fs::read_to_string(folder.path().join("data-before-2/member")).unwrap();
        assert_eq!((kept.as_str(), data.exists()), ("kept", false));
    }

    #[test]
    fn the_newest_snapshots_stay() {
        let folder = tempfile::tempdir().unwrap();
        let now = std::time::SystemTime::now();
        for age in 0..5 {
            let file = std::fs::File::create(folder.path().join(format!("{age}.db"))).unwrap();
            file.set_modified(now - Duration::from_secs(3_600 * age)).unwrap();
        }
        std::fs::write(folder.path().join("notes.txt"), "").unwrap();
        std::fs::write(folder.path().join("5.db.part"), "").unwrap();
        let prune = |keep: u32, volume: u64| {
            prune(folder.path(), keep, volume, &Printer::stdout()).unwrap();
            let entries = std::fs::read_dir(folder.path()).unwrap();
            let mut left: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            left.sort();
            left
        };
        // With the next one, there are four.
        assert_eq!(prune(4, 1_000), ["0.db", "1.db", "2.db", "notes.txt"]);
        for name in ["0.db", "1.db", "2.db"] {
            let file = std::fs::File::options().write(true).open(folder.path().join(name)).unwrap();
            file.set_len(100).unwrap();
            let age = u64::from(name.as_bytes()[0] - b'0');
            file.set_modified(now - Duration::from_secs(3_600 * age)).unwrap();
        }
        // The next one may be twice as large as the newest one.
        assert_eq!(prune(4, 400), ["0.db", "1.db", "notes.txt"]);
        assert_eq!(prune(4, 10), ["0.db", "notes.txt"], "the newest one stays in any case");
    }
}
