//! The printers of built-in kinds.

use atoll_apimachinery::meta;
use jiff::Timestamp;
use serde_json::Value;

use super::{Printer, age, core, workloads};

fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![meta::name(object).into(), age::of(object, now)]
}

fn created_at(object: &Value, _: Timestamp) -> Vec<Value> {
    let created = meta::get(object, "creationTimestamp").cloned().unwrap_or_default();
    vec![meta::name(object).into(), created]
}

const NAME: (&str, &str, i64) = ("Name", "string", 0);
const AGE: (&str, &str, i64) = ("Age", "string", 0);

const fn text(heading: &'static str) -> (&'static str, &'static str, i64) {
    (heading, "string", 0)
}

const fn number(heading: &'static str) -> (&'static str, &'static str, i64) {
    (heading, "integer", 0)
}

const fn wide(heading: &'static str) -> (&'static str, &'static str, i64) {
    (heading, "string", 1)
}

pub(crate) static NAME_AND_AGE: Printer = Printer { columns: &[NAME, AGE], cells: name_and_age };
pub(crate) static CREATED_AT: Printer =
    Printer { columns: &[NAME, ("Created At", "date", 0)], cells: created_at };

pub(crate) static NAMESPACE: Printer =
    Printer { columns: &[NAME, text("Status"), AGE], cells: core::namespace };
pub(crate) static POD: Printer = Printer {
    columns: &[
        NAME,
        text("Ready"),
        text("Status"),
        text("Restarts"),
        AGE,
        wide("IP"),
        wide("Node"),
        wide("Nominated Node"),
        wide("Readiness Gates"),
    ],
    cells: workloads::pod,
};
pub(crate) static SERVICE: Printer = Printer {
    columns: &[
        NAME,
        text("Type"),
        text("Cluster-IP"),
        text("External-IP"),
        text("Port(s)"),
        AGE,
        wide("Selector"),
    ],
    cells: core::service,
};
pub(crate) static CONFIG_MAP: Printer =
    Printer { columns: &[NAME, number("Data"), AGE], cells: core::config_map };
pub(crate) static SECRET: Printer =
    Printer { columns: &[NAME, text("Type"), number("Data"), AGE], cells: core::secret };
pub(crate) static EVENT: Printer = Printer {
    columns: &[
        text("Last Seen"),
        text("Type"),
        text("Reason"),
        text("Object"),
        wide("Subobject"),
        wide("Source"),
        text("Message"),
        wide("First Seen"),
        ("Count", "integer", 1),
        ("Name", "string", 1),
    ],
    cells: core::event,
};
pub(crate) static NODE: Printer = Printer {
    columns: &[
        NAME,
        text("Status"),
        text("Roles"),
        AGE,
        text("Version"),
        wide("Internal-IP"),
        wide("External-IP"),
        wide("OS-Image"),
        wide("Kernel-Version"),
        wide("Container-Runtime"),
    ],
    cells: core::node,
};
pub(crate) static SERVICE_ACCOUNT: Printer =
    Printer { columns: &[NAME, AGE], cells: core::service_account };
pub(crate) static PERSISTENT_VOLUME_CLAIM: Printer = Printer {
    columns: &[
        NAME,
        text("Status"),
        text("Volume"),
        text("Capacity"),
        text("Access Modes"),
        text("StorageClass"),
        text("VolumeAttributesClass"),
        AGE,
        wide("VolumeMode"),
    ],
    cells: core::persistent_volume_claim,
};
pub(crate) static PERSISTENT_VOLUME: Printer = Printer {
    columns: &[
        NAME,
        text("Capacity"),
        text("Access Modes"),
        text("Reclaim Policy"),
        text("Status"),
        text("Claim"),
        text("StorageClass"),
        text("VolumeAttributesClass"),
        text("Reason"),
        AGE,
        wide("VolumeMode"),
    ],
    cells: core::persistent_volume,
};
pub(crate) static ENDPOINTS: Printer =
    Printer { columns: &[NAME, text("Endpoints"), AGE], cells: core::endpoints };
pub(crate) static ENDPOINT_SLICE: Printer = Printer {
    columns: &[NAME, text("AddressType"), text("Ports"), text("Endpoints"), AGE],
    cells: core::endpoint_slice,
};
pub(crate) static REPLICA_SET: Printer = Printer {
    columns: &[
        NAME,
        number("Desired"),
        number("Current"),
        number("Ready"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: workloads::replica_set,
};
pub(crate) static DEPLOYMENT: Printer = Printer {
    columns: &[
        NAME,
        text("Ready"),
        number("Up-to-date"),
        number("Available"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: workloads::deployment,
};
pub(crate) static STATEFUL_SET: Printer = Printer {
    columns: &[NAME, text("Ready"), AGE, wide("Containers"), wide("Images")],
    cells: workloads::stateful_set,
};
pub(crate) static DAEMON_SET: Printer = Printer {
    columns: &[
        NAME,
        number("Desired"),
        number("Current"),
        number("Ready"),
        number("Up-to-date"),
        number("Available"),
        text("Node Selector"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: workloads::daemon_set,
};
pub(crate) static CONTROLLER_REVISION: Printer = Printer {
    columns: &[NAME, text("Controller"), number("Revision"), AGE],
    cells: workloads::controller_revision,
};
pub(crate) static JOB: Printer = Printer {
    columns: &[
        NAME,
        text("Status"),
        text("Completions"),
        text("Duration"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: workloads::job,
};
pub(crate) static CRON_JOB: Printer = Printer {
    columns: &[
        NAME,
        text("Schedule"),
        text("Timezone"),
        text("Suspend"),
        number("Active"),
        text("Last Schedule"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    cells: workloads::cron_job,
};
pub(crate) static HORIZONTAL_POD_AUTOSCALER: Printer = Printer {
    columns: &[
        NAME,
        text("Reference"),
        text("Targets"),
        text("MinPods"),
        number("MaxPods"),
        number("Replicas"),
        AGE,
    ],
    cells: workloads::horizontal_pod_autoscaler,
};
pub(crate) static POD_DISRUPTION_BUDGET: Printer = Printer {
    columns: &[
        NAME,
        text("Min Available"),
        text("Max Unavailable"),
        number("Allowed Disruptions"),
        AGE,
    ],
    cells: workloads::pod_disruption_budget,
};
pub(crate) static INGRESS: Printer = Printer {
    columns: &[NAME, text("Class"), text("Hosts"), text("Address"), text("Ports"), AGE],
    cells: core::ingress,
};
pub(crate) static INGRESS_CLASS: Printer = Printer {
    columns: &[NAME, text("Controller"), text("Parameters"), AGE],
    cells: core::ingress_class,
};
pub(crate) static NETWORK_POLICY: Printer =
    Printer { columns: &[NAME, text("Pod-Selector"), AGE], cells: core::network_policy };
pub(crate) static ROLE_BINDING: Printer = Printer {
    columns: &[NAME, text("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")],
    cells: core::role_binding,
};
pub(crate) static LEASE: Printer =
    Printer { columns: &[NAME, text("Holder"), AGE], cells: core::lease };
pub(crate) static STORAGE_CLASS: Printer = Printer {
    columns: &[
        NAME,
        text("Provisioner"),
        text("ReclaimPolicy"),
        text("VolumeBindingMode"),
        text("AllowVolumeExpansion"),
        AGE,
    ],
    cells: core::storage_class,
};
pub(crate) static PRIORITY_CLASS: Printer = Printer {
    columns: &[
        NAME,
        number("Value"),
        ("Global-Default", "boolean", 0),
        AGE,
        text("PreemptionPolicy"),
    ],
    cells: core::priority_class,
};
