//! What every Kubernetes API server has in common, whatever its objects are and wherever they are stored: errors,
//! requests, selectors, discovery and OpenAPI, tables and watch frames, read-only kinds. The embedded API server and the
//! aggregated Decision API are built from it.
//!
//! ```text
//! serve (HTTPS, identity) ──▶ request ──▶ the server's own verbs, or read_only ──▶ view ──▶ response
//!                                └──────▶ discovery (of a set of kinds)
//! ```

pub mod discovery;
mod error;
pub mod gate;
pub mod identity;
pub mod kind;
pub mod meta;
pub mod raw;
pub mod read_only;
pub mod request;
pub mod response;
pub mod selector;
pub mod serve;
pub mod view;

pub use crate::error::{ApiError, FieldError, FieldReason, qualified};
