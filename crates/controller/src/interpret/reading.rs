//! What users' rules say about the state of an object on a member, where webhooks read its kind.

use std::sync::Arc;

use atoll_api::binding::{AggregatedStatusItem, ResourceHealth};
use atoll_api::customization::Operation;
use atoll_customize::{Request, Response};
use atoll_protocol::transport::MAX_STATUS;
use serde_json::Value;

use super::{Interpreter, RuleNews};
use crate::index::key::kind_of;
use crate::index::rules::Rules;
use crate::members::{HealthReport, ObjectHealth, Report};

/// Reason of a health that a user's rule gave. Agents have the same.
const HEALTH_RULE: &str = "HealthInterpretation";

/// A report with what users' rules say.
#[derive(Debug)]
pub(crate) struct ReportRead {
    pub(crate) report: Report,
    /// What is to be shown of the rules.
    pub(crate) news: Vec<RuleNews>,
    /// A webhook did not answer.
    pub(crate) unreachable: bool,
    /// Too many rules wait.
    pub(crate) is_busy: bool,
}

impl ReportRead {
    /// A report as the agent sent it.
    pub(crate) fn unread(report: Report) -> Self {
        Self { report, news: Vec::new(), unreachable: false, is_busy: false }
    }
}

impl Interpreter {
    /// Reads health and status of an object: `manifest` as it was sent, with what the member reported. Where a webhook did
    /// not answer, what was known `before` stays; where a rule has no usable answer, the report stays.
    pub(crate) async fn read(
        &self,
        rules: &Rules,
        manifest: Value,
        report: Report,
        before: Option<AggregatedStatusItem>,
    ) -> ReportRead {
        let object = Arc::new(observed(manifest, &report));
        let mut read = ReportRead::unread(report);
        for operation in [Operation::InterpretHealth, Operation::InterpretStatus] {
            if !rules.handles(kind_of(&object), operation) {
                continue;
            }
            let request = match operation {
                Operation::InterpretHealth => Request::Health(object.clone()),
                _ => Request::Reflect(object.clone()),
            };
            let answer = self.ask_often(rules, request).await;
            read.news.extend(answer.news);
            read.unreachable |= answer.unreachable;
            read.is_busy |= answer.is_busy;
            match (answer.response, &before) {
                (Some(Response::Healthy(healthy)), _) => read.report.health = health(healthy),
                (Some(Response::Status(status)), _) => set_status(&mut read.report, status),
                (None, Some(before)) if answer.unreachable => {
                    keep(&mut read.report, operation, before)
                }
                _ => {}
            }
        }
        read
    }
}

/// The object on the member, as far as it is known.
fn observed(mut manifest: Value, report: &Report) -> Value {
    if let Some(fields) = manifest.as_object_mut() {
        match &report.status {
            Some(status) => fields.insert("status".to_owned(), status.clone()),
            None => fields.remove("status"),
        };
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("generation".to_owned(), report.generation.into());
        }
    }
    manifest
}

fn health(healthy: bool) -> HealthReport {
    HealthReport {
        state: if healthy { ObjectHealth::Healthy } else { ObjectHealth::Unhealthy },
        reason: HEALTH_RULE.to_owned(),
        message: String::new(),
        // A rule does not tell a fault from progress.
        failing: false,
    }
}

/// Sets the status; one that is too large is left out, as agents do.
fn set_status(report: &mut Report, status: Value) {
    let bytes = status.to_string().len();
    let fits = bytes <= MAX_STATUS;
    report.status_bytes = if fits { bytes } else { 0 };
    report.status_left_out = if fits { 0 } else { bytes as u64 };
    report.status = fits.then_some(status);
}

/// Keeps what was known of an object.
fn keep(report: &mut Report, operation: Operation, before: &AggregatedStatusItem) {
    if operation == Operation::InterpretStatus {
        if let Some(status) = &before.status {
            set_status(report, status.clone());
        }
        return;
    }
    let state = match before.health {
        ResourceHealth::Healthy => ObjectHealth::Healthy,
        ResourceHealth::Unhealthy => ObjectHealth::Unhealthy,
        ResourceHealth::Unknown => return,
    };
    report.health = HealthReport {
        state,
        reason: before.health_reason.clone().unwrap_or_default(),
        message: before.health_message.clone().unwrap_or_default(),
        failing: before.health_message.is_some(),
    };
}
