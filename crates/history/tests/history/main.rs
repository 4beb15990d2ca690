//! Tests of history on all its stores.

#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod api;
mod contract;
mod database;
mod faulty;
mod federation;
mod inputs;
mod limits;
mod migrations;
mod outages;
mod postgres;
mod queries;
mod recorder;
mod retention;
mod safety;
mod server;
mod steps;
mod support;
