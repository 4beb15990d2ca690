//! The scheduler: its profiles and the cache between decisions.

use std::cell::RefCell;

use crate::cycle::{self, report};
use crate::framework::profile::Profiles;
use crate::request::Request;
use crate::state::cache::Cache;
use crate::state::snapshot::Snapshot;
use atoll_decision::Decision;

/// Makes one decision at a time. Equal snapshots and requests give equal decisions, regardless of earlier decisions.
#[derive(Debug, Default)]
pub struct Scheduler {
    profiles: Profiles,
    cache: RefCell<Cache>,
}

impl Scheduler {
    /// A scheduler with these profiles.
    #[must_use]
    pub fn new(profiles: Profiles) -> Self {
        Self { profiles, cache: RefCell::default() }
    }

    /// Its profiles.
    #[must_use]
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// Makes a decision.
    pub fn decide(&mut self, snapshot: &Snapshot, request: &Request) -> Decision {
        match self.profiles.get(&request.scheduler_name) {
            Some(profile) => cycle::decide(snapshot, request, profile, &self.cache),
            None => {
                let known: Vec<&str> = self.profiles.names().collect();
                let mistake = format!(
                    "schedulerName: {:?} is no profile; there are {}",
                    request.scheduler_name,
                    known.join(", ")
                );
                report::invalid(snapshot, request, &request.scheduler_name, &mistake)
            }
        }
    }
}
