//! What a Kubernetes API server does with the *content* of objects: patches, schemas (prune, default,
//! validate) and server-side apply. Pure functions over [`serde_json::Value`]; the simulator's API
//! server and the agent both use them, so that a rehearsal merges exactly as a member does.
//!
//! Left to others: HTTP, storage, admission, evaluation of CEL rules (only their collection is here),
//! and every rule about metadata that needs a clock or an identity (uid, generation, resourceVersion).

pub mod managed;
pub mod patch;
pub mod schema;
pub mod strategic;
mod value;
