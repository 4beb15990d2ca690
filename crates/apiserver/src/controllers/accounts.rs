//! Gives every namespace its `default` ServiceAccount (kubernetes `pkg/controller/serviceaccount`).

use std::sync::Arc;

use atoll_apimachinery::meta;
use serde_json::json;

use super::call::{RETRY, call};
use crate::{
    core::Core,
    store::{ObjectKey, TableId},
    verbs::write,
};

const NAME: &str = "service-account-controller";

pub(super) async fn run(core: &Arc<Core>) {
    let (namespaces, accounts) = (Core::namespaces(), TableId::new("", "serviceaccounts"));
    let mut namespace_signal = core.store.subscribe(&namespaces);
    let mut account_signal = core.store.subscribe(&accounts);
    loop {
        namespace_signal.mark_unchanged();
        account_signal.mark_unchanged();
        let kinds = core.kinds().tables();
        let Some(kind) = kinds.get(&accounts) else { return };
        let mut failed = false;
        for namespace in core.store.list(&namespaces, None).1 {
            let key = ObjectKey::new(meta::name(&namespace.value()), "default");
            if meta::is_deleting(&namespace.value()) || core.store.get(&accounts, &key).is_some() {
                continue;
            }
            let object = json!({
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": key.name, "namespace": key.namespace},
            });
            let request = call(core, kind, &key, NAME);
            match write::create(&request, write::draft(object)).await {
                // The namespace is gone or terminating, or another writer created the account.
                Err(error) if !matches!(error.code, 403 | 404 | 409) => {
                    tracing::warn!(namespace = key.namespace, %error, "no default service account");
                    failed = true;
                }
                _ => {}
            }
        }
        if failed {
            tokio::time::sleep(RETRY).await;
            continue;
        }
        let changed = tokio::select! {
            biased;
            changed = namespace_signal.changed() => changed,
            changed = account_signal.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}
