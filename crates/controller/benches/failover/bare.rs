//! The reference: the same patches, sent by a loop that does nothing else.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use atoll_api::ResourceBinding;
use futures::{StreamExt, stream};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Request};
use kube::{Api, Client, Resource as _};
use serde_json::{Value, json};

use crate::server::ApiServer;

/// Concurrent requests of the loop. The best one counts.
const AT_ONCE: [usize; 3] = [8, 24, 64];
/// Concurrent requests while copies are made.
const COPIES_AT_ONCE: usize = 16;

/// Some bindings of the benchmark as they are now.
pub(crate) async fn sample(client: &Client, most: u32) -> Vec<ResourceBinding> {
    let api: Api<ResourceBinding> = Api::namespaced(client.clone(), "bench");
    api.list(&ListParams::default().limit(most)).await.unwrap().items
}

/// Copies the bindings into a namespace of their own, patches them with the patches of the controller, and returns the
/// best rate in patches per second. Every rate is that of all bindings: with kube-apiserver's garbage collection, some series
/// of 400 patches cost twice as much CPU as others, so a short loop would be fast by chance.
pub(crate) async fn measure(
    server: &ApiServer,
    before: Vec<ResourceBinding>,
    patches: &BTreeMap<String, Value>,
) -> f64 {
    let mut best: f64 = 0.0;
    let before: Vec<_> = before
        .into_iter()
        .filter(|binding| patches.contains_key(binding.metadata.name.as_deref().unwrap()))
        .collect();
    for at_once in AT_ONCE {
        let copies = copy(&server.client, &before).await;
        let (took, cpu, server_cpu) = repeat(server, copies, patches, at_once).await;
        remove_copies(&server.client).await;
        let rate = before.len() as f64 / took.as_secs_f64();
        println!(
            "  a bare loop of the same patches, {at_once} at once: {} in {took:.2?}, {rate:.0}/s; CPU of the loop {:.2} ms each, of the server's processes {:.2} ms",
            before.len(),
            crate::each(cpu, before.len()),
            crate::each(server_cpu, before.len()),
        );
        best = best.max(rate);
    }
    best
}

/// Creates copies with their status, as the controller left them; their names and versions.
async fn copy(client: &Client, bindings: &[ResourceBinding]) -> Vec<(String, String)> {
    let api: &Api<ResourceBinding> = &Api::namespaced(client.clone(), "bare");
    stream::iter(bindings)
        .map(async |binding| {
            let mut copy = ResourceBinding::new("", binding.spec.clone());
            copy.metadata.name.clone_from(&binding.metadata.name);
            copy.metadata.labels.clone_from(&binding.metadata.labels);
            copy.metadata.annotations.clone_from(&binding.metadata.annotations);
            let name = copy.metadata.name.clone().unwrap();
            api.create(&PostParams::default(), &copy).await.unwrap();
            let status = json!({"status": binding.status});
            let params = PatchParams::default();
            let written = api.patch_status(&name, &params, &Patch::Merge(status)).await.unwrap();
            (name, written.metadata.resource_version.unwrap())
        })
        .buffer_unordered(COPIES_AT_ONCE)
        .collect()
        .await
}

/// Makes room for the copies of the next loop.
async fn remove_copies(client: &Client) {
    let api: Api<ResourceBinding> = Api::namespaced(client.clone(), "bare");
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
}

/// Sends the patches; returns how long it took, and the CPU time. Each patch is a task of its own, as in the controller:
/// the embedded API server works in the task of its caller, so a loop in one task would use one core. Answers are read,
/// but not parsed: the API server is what is measured.
async fn repeat(
    server: &ApiServer,
    copies: Vec<(String, String)>,
    patches: &BTreeMap<String, Value>,
    at_once: usize,
) -> (Duration, Duration, Duration) {
    let requests: Vec<(String, Value)> = copies
        .into_iter()
        .map(|(name, version)| {
            let mut patch = patches[&name].clone();
            patch["metadata"]["resourceVersion"] = json!(version);
            (name, patch)
        })
        .collect();
    let bindings = Request::new(ResourceBinding::url_path(&(), Some("bare")));
    let (start, cpu, server_cpu) = (Instant::now(), crate::cpu(), server.cpu());
    stream::iter(requests)
        .map(|(name, patch)| {
            let request =
                bindings.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).unwrap();
            let client = server.client.clone();
            tokio::spawn(async move {
                client.request_text(request).await.unwrap();
            })
        })
        .buffer_unordered(at_once)
        .for_each(async |done| done.unwrap())
        .await;
    (start.elapsed(), crate::cpu() - cpu, server.cpu() - server_cpu)
}
