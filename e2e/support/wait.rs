//! Waits for states by watching, never by sleeping.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Error, watch_object, watcher};
use serde_json::Value;

/// Longest wait for one state. Generous for slow test machines: normally it takes a few seconds.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Waits for the object to reach a state and returns it as JSON; otherwise panics with its last state.
pub(crate) async fn until(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    condition: impl Fn(&Value) -> bool + Send + Sync,
) -> Value {
    reach(api, name, what, |object| object.filter(|object| condition(object))).await
}

/// Returns once the object is gone.
pub(crate) async fn until_gone(api: &Api<DynamicObject>, name: &str) {
    reach(api, name, "it to be gone", |object| object.is_none().then_some(())).await;
}

/// Waits for a state of an object that `found` takes; otherwise panics with its last state.
async fn reach<T>(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    found: impl Fn(Option<Value>) -> Option<T>,
) -> T {
    let mut states = std::pin::pin!(watch_object(api.clone(), name).default_backoff());
    let reached = async {
        while let Some(state) = states.next().await {
            let object = match state {
                Ok(object) => object.map(|object| serde_json::to_value(object).unwrap()),
                // The kind is not served: a definition is visible a moment before its kind.
                Err(Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404 => {
                    None
                }
                Err(error) => panic!("{name}: watch failed: {error}"),
            };
            if let Some(found) = found(object) {
                return found;
            }
        }
        panic!("{name}: the watch ended")
    };
    match tokio::time::timeout(LIMIT, reached).await {
        Ok(found) => found,
        Err(_) => {
            let last = api.get_opt(name).await;
            let last = last.map(|object| object.map(|o| serde_json::to_string_pretty(&o).unwrap()));
            panic!("{name}: waited {LIMIT:?} for {what}; last state: {}", show(last))
        }
    }
}

/// Passes every future state of the objects of a kind to `each`, in order, while the runtime lives.
pub(crate) fn follow(
    api: Api<DynamicObject>,
    mut each: impl FnMut(DynamicObject) + Send + 'static,
) {
    tokio::spawn(async move {
        // Without backoff it would retry a stopped server in a busy loop, even while the runtime ends.
        let events = watcher(api, Config::default()).default_backoff().applied_objects();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            if let Ok(object) = event {
                each(object);
            }
        }
    });
}

fn show(last: Result<Option<String>, impl Debug>) -> String {
    match last {
        Ok(Some(text)) => text,
        Ok(None) => "absent".into(),
        Err(error) => format!("{error:?}"),
    }
}
