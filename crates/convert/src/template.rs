//! Users' objects: their fields stay; marks of another federation are converted.

use serde_json::Value;

use crate::Converter;
use crate::draft::Draft;
use crate::keys;
use crate::path::Path;
use crate::report::Class;

/// Namespaces that Karmada keeps its own objects in. `karmada-es-*` hold its Works.
const KARMADA_NAMESPACES: [&str; 2] = ["karmada-system", "karmada-cluster"];
const EXECUTION_PREFIX: &str = "karmada-es-";
/// Kosmos' scheduler, which places pods on the hub.
const KOSMOS_SCHEDULER: &str = "kosmos-scheduler";
/// Paths of pod specs in the kinds that create pods.
const POD_SPECS: [&str; 3] = ["spec.template.spec", "spec", "spec.jobTemplate.spec.template.spec"];

pub(crate) fn convert(converter: &Converter, draft: &mut Draft) -> bool {
    let source = draft.source();
    let is_namespace = source.kind == "Namespace" && source.group().is_empty();
    let namespace =
        if is_namespace { Some(source.name.as_str()) } else { source.namespace.as_deref() };
    if converter.is_for_hub() && namespace.is_some_and(is_karmadas) {
        let note = "an object of Karmada itself: Atoll does not need it";
        draft.line(&Path::default(), Class::Changed, note);
        return false;
    }
    draft.line(&Path::default(), Class::TakenOver, "");
    keys::strip(converter, draft, false);
    keys::convert(draft, false);
    if converter.is_for_hub() {
        addresses(draft);
    }
    for pod in POD_SPECS {
        scheduler(draft, &Path::of(pod));
    }
    true
}

fn is_karmadas(namespace: &str) -> bool {
    KARMADA_NAMESPACES.contains(&namespace) || namespace.starts_with(EXECUTION_PREFIX)
}

/// An address that another API server allocated may be taken or out of range on the hub.
fn addresses(draft: &mut Draft) {
    let source = draft.source();
    let is_service = source.kind == "Service" && source.api_version == "v1";
    if !is_service || draft.text("spec.clusterIP").is_none_or(|address| address == "None") {
        return;
    }
    for name in ["spec.clusterIP", "spec.clusterIPs"] {
        draft.take(
            &Path::of(name),
            Class::Changed,
            "left out: the hub and every member allocate their own",
        );
    }
}

/// Members have no scheduler of that name, so the pods would stay pending there.
fn scheduler(draft: &mut Draft, pod: &Path) {
    let name = pod.field("schedulerName");
    if draft.get(&name).and_then(Value::as_str) == Some(KOSMOS_SCHEDULER) {
        let note = "left out: members have no such scheduler; the WorkloadPolicy's label places the workload";
        draft.take(&name, Class::Changed, note);
    }
}
