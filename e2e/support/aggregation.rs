//! The controller's aggregated APIs on a real hub, whose API server reaches the controller on this machine.

use super::cli::root;

/// The manifest of the APIServices, with a Service that names this machine.
pub(crate) fn manifest() -> String {
    let text = std::fs::read_to_string(root().join("deploy/controller/api.yaml")).unwrap();
    let inside = "  selector: {app.kubernetes.io/name: atoll-controller}\n";
    assert!(text.contains(inside), "{text}");
    text.replace(inside, "  type: ExternalName\n  externalName: localhost\n")
}

/// The same, with the controller's port.
pub(crate) fn manifest_to(port: u16) -> String {
    let text = manifest();
    let standard = "name: atoll-api, port: 443}";
    assert!(text.contains(standard), "{text}");
    text.replace(standard, &format!("name: atoll-api, port: {port}}}"))
}
