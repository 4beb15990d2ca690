//! Tests through the public interface: kube clients in process, sockets for TLS and kubectl. Tests are named after the
//! upstream behaviour that they mirror.

// Helpers outside of test functions may unwrap and print too: a panic there is the report.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod apply;
mod common;
mod controllers;
mod crd;
mod documents;
mod durable;
mod hostile;
mod kubectl;
mod kubectl_list;
mod open_parts;
mod rbac;
mod read;
mod refusals;
mod tables;
mod tls;
mod virtual_kinds;
mod watch;
mod write;
