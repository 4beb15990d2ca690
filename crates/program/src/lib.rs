//! What the programs `atoll` and `atoll-agent` share: flags, the API server they name, logging, probes and signals.

pub mod agent;
pub mod flags;
pub mod health;
pub mod hub;
pub mod logging;
pub mod process;
pub mod text;
