//! The scheduling framework: extension points, status codes, profiles, registry.

pub mod config;
pub mod plugin;
pub mod profile;
pub mod registry;
pub mod scores;
pub mod status;
pub mod verdicts;
