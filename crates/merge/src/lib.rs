//! The content operations of a Kubernetes API server: patches, schemas (prune, default, validate) and server-side
//! apply. Pure functions over [`serde_json::Value`]. The simulator's API server and the agent both use them, so that a
//! rehearsal merges exactly as a member does.
//!
//! Not included: HTTP, storage, admission, evaluation of CEL rules (they are only collected here), and metadata rules
//! that need a clock or an identity (uid, generation, resourceVersion).

pub mod managed;
pub mod patch;
pub mod schema;
pub mod strategic;
mod value;
