//! Registers nodes, as kubelets do when they start.

use serde_json::json;

use super::{NodeOptions, StartError};
use crate::engine::Engine;
use crate::index::kind::Kind;
use crate::index::object::Key;
use crate::writes::{Write, Writer};

/// Creates missing nodes, and updates the labels of existing ones.
pub(super) async fn register(engine: &mut Engine, nodes: &[NodeOptions]) -> Result<(), StartError> {
    for node in nodes {
        let key = Key::cluster(&node.name);
        let write = match engine.brain.index.get(Kind::Node, &key) {
            Some(existing) => Write::fields(existing, json!({"metadata": {"labels": node.labels}})),
            None => {
                let metadata = json!({"labels": node.labels});
                let spec = json!({"spec": {"taints": node.taints}});
                Some(Write::create(Kind::Node, key, metadata, spec))
            }
        };
        if let Some(write) = write {
            engine.write(&write, Writer::Kubelet).await.map_err(|source| StartError::Register {
                node: node.name.clone(),
                source: source.into(),
            })?;
        }
    }
    Ok(())
}
