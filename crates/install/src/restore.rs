//! The Job that restores a snapshot of a bundled hub's etcd.

use serde_json::{Value, json};

use crate::bundled::{self, BACKUPS, DATA, ETCD_IMAGE, HUB};
use crate::{Error, Hub, Options, Part};

const COMMENT: &str = "\
# Restores a snapshot of the hub's etcd. The data before it stay on the volume, in a folder next to the restored one.
#
#   kubectl -n NAMESPACE scale deployment/atoll-controller statefulset/atoll-hub --replicas=0
#   kubectl -n NAMESPACE wait --for=delete pod/atoll-hub-0 --timeout=2m
#   kubectl create -f THIS-FILE
#   kubectl -n NAMESPACE wait --for=condition=complete job/atoll-hub-restore --timeout=10m
#   kubectl -n NAMESPACE delete job/atoll-hub-restore
#   kubectl -n NAMESPACE scale statefulset/atoll-hub --replicas=1
#   kubectl -n NAMESPACE scale deployment/atoll-controller --replicas=REPLICAS
";

/// The Job, for a file on the volume of the backups.
///
/// # Errors
/// When the options are invalid, the hub is not bundled, or the name is not that of a snapshot.
pub fn restore(options: &Options, snapshot: &str) -> Result<Part, Error> {
    options.check()?;
    if !matches!(options.hub, Hub::Bundled { .. }) {
        return Err(Error::RestoreNeedsBundled);
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if !snapshot.ends_with(".db") || snapshot.starts_with('.') || !snapshot.chars().all(fits) {
        return Err(Error::Snapshot(snapshot.to_owned()));
    }
    let volume = |name: &str, claim: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": format!("{HUB}-{claim}")}});
    let data = json!({"name": "data", "mountPath": DATA});
    let backups = json!({"name": "backups", "mountPath": BACKUPS, "readOnly": true});
    let container = |name: &str, image: &str, mounts: Value| {
        json!({
            "name": name, "image": image, "volumeMounts": mounts,
            "securityContext": bundled::container_security(),
        })
    };
    // etcd restores only into a folder that does not exist.
    let mut away = container("move-away", &options.image, json!([data]));
    away["args"] = json!(["hub-backups", format!("--move-away={DATA}/data")]);
    let mut restore = container("restore", ETCD_IMAGE, json!([data, backups]));
    restore["command"] = json!(["etcdctl"]);
    restore["args"] = json!([
        "snapshot",
        "restore",
        format!("{BACKUPS}/{snapshot}"),
        format!("--data-dir={DATA}/data")
    ]);
    let namespace = &options.namespace;
    let name = format!("{HUB}-restore");
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            // A second attempt would move away what the first one restored.
            "backoffLimit": 0,
            "template": {"metadata": {"labels": {"app.kubernetes.io/name": name}}, "spec": {
                "automountServiceAccountToken": false,
                "securityContext": bundled::pod_security(),
                "restartPolicy": "Never",
                "initContainers": [away],
                "containers": [restore],
                "volumes": [volume("data", "data"), volume("backups", "backups")],
            }},
        },
    });
    let comment = COMMENT.replace("NAMESPACE", namespace);
    let comment = comment.replace("=REPLICAS", &format!("={}", options.replicas()));
    Ok(Part { name: "restore", comment, objects: vec![job] })
}
