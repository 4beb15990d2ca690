//! Container statuses. All main containers of a Pod are simulated in the same way.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::annotations::{Fault, Script};
use super::images::{self, ImageFault};
use super::{backoff, main_containers};
use crate::clock;
use crate::index::fields::{count, int, list, stamp, text, time};
use crate::index::object::Object;
use crate::workloads::names::fingerprint;
use crate::writes::Plan;

/// State of the main containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Never started.
    Waiting,
    Running {
        since: Timestamp,
    },
    /// Between a crash and the next start.
    BackingOff {
        until: Timestamp,
    },
}

/// The container statuses of a Pod, main and init.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Containers {
    pub(super) main: Vec<Value>,
    pub(super) init: Vec<Value>,
}

impl Containers {
    /// Copies the existing statuses and adds waiting ones for containers without a status.
    pub(super) fn of(pod: &Object) -> Self {
        let init = list(&pod.data, "/spec/initContainers");
        let reason = if init.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        let read = |specs: &[Value], statuses: &[Value]| {
            specs.iter().map(|container| taken_over(container, statuses, reason)).collect()
        };
        Self {
            main: read(main_containers(pod), list(&pod.data, "/status/containerStatuses")),
            init: read(init, list(&pod.data, "/status/initContainerStatuses")),
        }
    }

    fn restarts(&self) -> i64 {
        self.main.iter().map(|status| count(status, "/restartCount")).max().unwrap_or(0)
    }

    pub(super) fn have_run(&self) -> bool {
        self.state() != State::Waiting
    }

    pub(super) fn state(&self) -> State {
        let Some(first) = self.main.first() else { return State::Waiting };
        if let Some(since) = time(first, "/state/running/startedAt") {
            return State::Running { since };
        }
        match time(first, "/lastState/terminated/finishedAt") {
            Some(finished) => State::BackingOff { until: finished + backoff(self.restarts()) },
            None => State::Waiting,
        }
    }

    fn each_main(mut self, change: impl Fn(&mut Value)) -> Self {
        self.main.iter_mut().for_each(change);
        self
    }

    /// All running: init containers have finished, or keep running beside the main ones if they are restartable.
    pub(super) fn all_running(mut self, pod: &Object, now: Timestamp) -> Self {
        for (status, container) in self.init.iter_mut().zip(list(&pod.data, "/spec/initContainers"))
        {
            if status.pointer("/state/waiting").is_none() {
                continue;
            }
            start(status, now);
            if text(container, "/restartPolicy") != Some("Always") {
                end(status, now, 0);
            }
            status["ready"] = json!(true);
        }
        self.each_main(|status| start(status, now))
    }

    /// All terminated, without a restart.
    pub(super) fn all_terminated(mut self, now: Timestamp, code: u8) -> Self {
        for status in self.init.iter_mut().filter(|s| s.pointer("/state/running").is_some()) {
            end(status, now, 0);
        }
        self.each_main(|status| end(status, now, code))
    }

    /// All crashed and waiting for their next start.
    pub(super) fn all_crashed(self, now: Timestamp, code: u8) -> Self {
        self.each_main(|status| {
            end(status, now, code);
            let last = status["state"].take();
            status["lastState"] = last;
            status["restartCount"] = json!(count(status, "/restartCount") + 1);
            let message = "back-off restarting failed container";
            status["state"] =
                json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
        })
    }

    /// No image can be pulled, as the Pod's annotation requests.
    pub(super) fn cannot_pull(self) -> Self {
        self.each_main(|status| wait_for_image(status, ImageFault::Missing))
    }

    /// Whether a main container's image cannot be pulled.
    pub(super) fn lack_image(&self) -> bool {
        self.main.iter().any(|status| image_fault(status).is_some())
    }

    /// Containers whose image cannot be pulled wait; the others start.
    pub(super) fn wait_for_images(self) -> Self {
        self.each_main(|status| {
            if let Some(fault) = image_fault(status) {
                wait_for_image(status, fault);
            }
        })
    }

    /// Sets `ready` of running containers by their probes, and schedules another look when the next one becomes ready.
    pub(super) fn with_readiness(
        mut self,
        now: Timestamp,
        pod: &Object,
        script: &Script,
        plan: &mut Plan,
    ) -> Self {
        for (status, container) in self.main.iter_mut().zip(main_containers(pod)) {
            let Some(since) = time(status, "/state/running/startedAt") else { continue };
            let due = clock::after(since, probe_delay(container));
            if due > now {
                plan.again_at(due);
            }
            status["ready"] = json!(due <= now && script.fault != Some(Fault::Unready));
        }
        self
    }

    /// Names of main containers that are not ready.
    pub(super) fn unready(&self) -> Vec<&str> {
        self.main
            .iter()
            .filter(|status| status["ready"] != json!(true))
            .filter_map(|status| text(status, "/name"))
            .collect()
    }
}

fn image_fault(status: &Value) -> Option<ImageFault> {
    images::fault(text(status, "/image").unwrap_or_default())
}

fn wait_for_image(status: &mut Value, fault: ImageFault) {
    let (reason, message) = fault.waiting(text(status, "/image").unwrap_or_default());
    status["state"] = json!({"waiting": {"reason": reason, "message": message}});
}

fn taken_over(container: &Value, statuses: &[Value], reason: &str) -> Value {
    let name = text(container, "/name").unwrap_or_default();
    let found = statuses.iter().find(|status| text(status, "/name") == Some(name));
    let mut status = found.cloned().unwrap_or_else(|| {
        json!({
            "name": name, "imageID": "", "ready": false, "started": false, "restartCount": 0,
            "lastState": {}, "state": {"waiting": {"reason": reason}},
        })
    });
    status["image"] = container.get("image").cloned().unwrap_or_else(|| json!(""));
    status
}

/// How long a container's probes keep it unready after its start.
fn probe_delay(container: &Value) -> Duration {
    let seconds = ["startupProbe", "readinessProbe"]
        .iter()
        .filter_map(|probe| int(container, &format!("/{probe}/initialDelaySeconds")))
        .fold(0, i64::saturating_add);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn start(status: &mut Value, now: Timestamp) {
    let name = text(status, "/name").unwrap_or_default();
    let image = text(status, "/image").unwrap_or_default();
    let (container, image) = (fingerprint(&format!("{name}{now}")), format!("simulator://{image}"));
    status["containerID"] = json!(format!("simulator://{container}"));
    status["imageID"] = json!(image);
    status["started"] = json!(true);
    status["state"] = json!({"running": {"startedAt": stamp(now)}});
}

fn end(status: &mut Value, now: Timestamp, code: u8) {
    let since = time(status, "/state/running/startedAt").unwrap_or(now);
    let reason = if code == 0 { "Completed" } else { "Error" };
    status["state"] = json!({"terminated": {
        "exitCode": code, "reason": reason, "startedAt": stamp(since), "finishedAt": stamp(now),
    }});
    status["ready"] = json!(false);
    status["started"] = json!(false);
}
