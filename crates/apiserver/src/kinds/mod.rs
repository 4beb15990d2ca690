//! The definition of each kind: names, scope, subresources, schema, rules.

pub(crate) mod builtin;
pub(crate) mod catalog;
mod custom;
pub(crate) mod event;
pub(crate) mod kind;
mod merge_keys;
pub(crate) mod rules;
pub(crate) mod served;

pub(crate) use self::{
    catalog::Catalog,
    custom::served as custom_kinds,
    kind::{Kind, Origin, Scale},
};
