//! A binding to be decided on.

use std::sync::Arc;

use crate::detect::Claim;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::index::template::Template;

/// A binding to be decided on. The commit must be guarded by the version of these rows.
pub(crate) struct Subject {
    pub(crate) key: BindingKey,
    pub(crate) claim: Claim,
    pub(crate) template: Arc<Template>,
    /// `None` if it does not exist yet.
    pub(crate) binding: Option<Arc<Binding>>,
}
