//! The parts of objects that have several pod templates.

use atoll_api::{
    binding::ReplicaRequirements,
    quantity::{Quantity, ResourceList},
};
use serde_json::Value;

use super::{path, rules, table};
use crate::{read::text, requirements::of_template};

/// One part of an object: pods of one template.
#[derive(Debug, Clone, PartialEq)]
pub struct Component {
    /// Its name, unique within the object.
    pub name: String,
    /// Its pods.
    pub replicas: i64,
    /// What one of its pods requires.
    pub requirements: Option<ReplicaRequirements>,
}

impl From<Component> for atoll_api::binding::Component {
    fn from(component: Component) -> Self {
        let Component { name, replicas, requirements } = component;
        Self { name, replicas, replica_requirements: requirements }
    }
}

/// The parts of an object, which are placed together; `None` for a kind that has none.
#[must_use]
pub fn components(obj: &Value) -> Option<Vec<Component>> {
    match &rules(obj)?.components {
        table::Components::None => None,
        table::Components::List { items, name, template } => {
            Some(listed(obj, items, *name, template))
        }
        table::Components::Map(roles) => Some(by_role(obj, roles)),
        table::Components::Flink => Some(flink(obj)),
        table::Components::Ray(at) => Some(ray(obj, at)),
        table::Components::Spark => Some(spark(obj)),
    }
}

fn of_pods(obj: &Value, name: String, replicas: i64, template: Option<&Value>) -> Component {
    let requirements = template.and_then(|template| of_template(obj, template));
    Component { name, replicas: replicas.max(0), requirements }
}

fn listed(obj: &Value, items: &str, name: (&str, &str), template: &str) -> Vec<Component> {
    let (field, prefix) = name;
    let parts = path::values(obj, items).into_iter().enumerate();
    let part = |(at, item): (usize, &Value)| {
        let name = match text(item, &[field]) {
            "" => format!("{prefix}{at}"),
            name => name.to_owned(),
        };
        let replicas = path::int(item, "replicas").unwrap_or(1);
        of_pods(obj, name, replicas, path::value(item, template))
    };
    parts.map(part).collect()
}

fn by_role(obj: &Value, roles: &str) -> Vec<Component> {
    let roles = path::value(obj, roles).and_then(Value::as_object);
    let part = |(role, spec): (&String, &Value)| {
        let replicas = path::int(spec, "replicas").unwrap_or(1);
        of_pods(obj, role.to_lowercase(), replicas, spec.get("template"))
    };
    roles.into_iter().flatten().map(part).collect()
}

fn ray(obj: &Value, at: &str) -> Vec<Component> {
    let Some(cluster) = path::value(obj, at) else { return Vec::new() };
    let head = path::value(cluster, "headGroupSpec.template");
    let mut parts = vec![of_pods(obj, "ray-head".to_owned(), 1, head)];
    for (at, group) in path::values(cluster, "workerGroupSpecs[]").into_iter().enumerate() {
        let name = match text(group, &["groupName"]) {
            "" => format!("worker-{at}"),
            name => name.to_owned(),
        };
        // One replica of a group is a set of hosts, each with a pod.
        let hosts = path::int(group, "numOfHosts").unwrap_or(1).max(1);
        let minimum = path::int(group, "minReplicas").unwrap_or(0);
        let replicas = path::int(group, "replicas").unwrap_or(minimum).saturating_mul(hosts);
        parts.push(of_pods(obj, name, replicas, group.get("template")));
    }
    parts
}

/// Configuration of the slots of one task manager.
const SLOTS: &str = "taskmanager.numberOfTaskSlots";

fn flink(obj: &Value) -> Vec<Component> {
    let part = |name: &str, field: &str, replicas: i64| {
        let template = path::value(obj, &format!("spec.{field}.podTemplate"))
            .or_else(|| path::value(obj, "spec.podTemplate"));
        let mut component = of_pods(obj, name.to_owned(), replicas, template);
        let memory = path::text(obj, &format!("spec.{field}.resource.memory"));
        let cpu = path::value(obj, &format!("spec.{field}.resource.cpu"));
        require(&mut component, cpu.map(written), megabytes(memory));
        component
    };
    let job_managers = path::int(obj, "spec.jobManager.replicas").unwrap_or(1);
    let slots = obj["spec"]["flinkConfiguration"].get(SLOTS);
    let slots = slots.and_then(|slots| slots.as_i64().or_else(|| slots.as_str()?.parse().ok()));
    let slots: i64 = slots.unwrap_or(1).max(1);
    let parallelism = path::int(obj, "spec.job.parallelism").unwrap_or(1).max(0);
    let needed = parallelism.saturating_add(slots - 1) / slots;
    let task_managers = path::int(obj, "spec.taskManager.replicas").unwrap_or(needed);
    vec![
        part("jobmanager", "jobManager", job_managers),
        part("taskmanager", "taskManager", task_managers),
    ]
}

/// Memory that Spark adds to that of a process, at least.
const SPARK_OVERHEAD: i128 = 384 << 20;
/// Share of the memory that Spark adds, in percent, for a JVM application.
const SPARK_OVERHEAD_PERCENT: i128 = 10;

fn spark(obj: &Value) -> Vec<Component> {
    let part = |role: &str, replicas: i64| {
        let of = |field: &str| path::value(obj, &format!("spec.{role}.{field}"));
        let mut component = of_pods(obj, role.to_owned(), replicas, of("template"));
        let memory = of("memory").and_then(Value::as_str).and_then(megabytes);
        let overhead = of("memoryOverhead").and_then(Value::as_str).and_then(megabytes);
        let whole = memory.map(|memory| {
            let least = (memory * SPARK_OVERHEAD_PERCENT / 100).max(SPARK_OVERHEAD);
            memory + overhead.unwrap_or(least)
        });
        let cpu = of("coreRequest").or_else(|| of("cores")).map(written);
        require(&mut component, cpu, whole);
        component
    };
    let executors = path::int(obj, "spec.executor.instances").unwrap_or(1);
    vec![part("driver", 1), part("executor", executors)]
}

fn written(amount: &Value) -> String {
    amount.as_str().map_or_else(|| amount.to_string(), str::to_owned)
}

/// Sets the resources that a part declares outside of its pod template.
fn require(component: &mut Component, cpu: Option<String>, memory: Option<i128>) {
    let mut given = ResourceList::new();
    if let Some(cpu) = cpu {
        given.insert("cpu".to_owned(), Quantity::new(cpu));
    }
    if let Some(memory) = memory {
        given.insert("memory".to_owned(), Quantity::from_bytes(memory));
    }
    if given.is_empty() {
        return;
    }
    let requirements = component.requirements.get_or_insert_with(|| ReplicaRequirements {
        resource_request: ResourceList::from([("pods".to_owned(), Quantity::from_units(1))]),
        ..ReplicaRequirements::default()
    });
    requirements.resource_request.extend(given);
}

/// Bytes of a memory size as Flink and Spark write it: `2048m` are mebibytes, also `2048mb` and `2g`.
fn megabytes(text: &str) -> Option<i128> {
    let text = text.trim().to_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "b" => 0,
        "k" | "kb" | "ki" | "kib" => 10,
        "m" | "mb" | "mi" | "mib" => 20,
        "g" | "gb" | "gi" | "gib" => 30,
        "t" | "tb" | "ti" | "tib" => 40,
        _ => return None,
    };
    // A fraction of the unit, in thousandths.
    let thousandths = Quantity::new(number).milli().ok()?;
    Some(thousandths.checked_mul(1 << shift)? / 1000)
}
