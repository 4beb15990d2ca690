//! Moves a running estate from Karmada to Atoll: what is there ([`estate`], [`extras`]), what stands in the way ([`check`]), what is
//! written to either side ([`karmada`], [`hub`]), and how far it is. Pure: the command line reads and writes.
//!
//! There is no journal: how far a namespace is follows from the marks on the objects of both sides, and each write sets
//! its mark together with the change that it stands for. So a command that was interrupted is run again.

pub mod check;
pub mod compare;
pub mod estate;
pub mod extras;
pub mod hub;
pub mod karmada;
pub mod meaning;
pub mod members;

/// Annotation on Karmada's objects that the migration suspends: the fields as they were before, as JSON.
pub const BEFORE: &str = "migrate.atoll.dev/before";
/// Annotation on Karmada's bindings whose object is Atoll's for good, with value `"true"`.
pub const FINISHED: &str = "migrate.atoll.dev/finished";
/// Annotation on objects of Atoll's hub that the migration made.
pub const FROM: &str = "migrate.atoll.dev/from";
/// Value of [`FROM`].
pub const FROM_KARMADA: &str = "karmada";

/// Whether the key of a label or annotation is Karmada's.
#[must_use]
pub fn is_karmadas(key: &str) -> bool {
    key.split_once('/')
        .is_some_and(|(domain, _)| domain == "karmada.io" || domain.ends_with(".karmada.io"))
}
