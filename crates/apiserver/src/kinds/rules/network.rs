//! Ingresses and network policies (`pkg/apis/networking/validation`).

use std::net::IpAddr;

use atoll_apimachinery::FieldError;
use serde_json::{Value, json};

use super::Check;

/// `ValidateIngressSpec`, in part: an Ingress must have a backend.
pub(crate) fn check_ingress(check: &mut Check<'_>) {
    let default = check.at("spec.defaultBackend").filter(|backend| !backend.is_null());
    let rules: Vec<(String, &Value)> = check.items("spec.rules").collect();
    if rules.is_empty() && default.is_none() {
        let why = "either `defaultBackend` or `rules` must be specified";
        check.add(FieldError::invalid("spec", &json!([]), why));
    }
    if let Some(backend) = default {
        check_backend(check, "spec.defaultBackend", backend);
    }
    for (at, rule) in rules {
        let Some(http) = rule.get("http").filter(|http| !http.is_null()) else { continue };
        let paths = http.get("paths").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if paths.is_empty() {
            check.add(FieldError::required(format!("{at}.http.paths"), ""));
        }
        for (n, path) in paths.iter().enumerate() {
            check_path(check, &format!("{at}.http.paths[{n}]"), path);
        }
    }
}

fn check_path(check: &mut Check<'_>, at: &str, path: &Value) {
    const TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
    let wanted = path.get("path").and_then(Value::as_str).unwrap_or("");
    let kind = path.get("pathType").filter(|kind| !kind.is_null());
    match kind {
        None => {
            check.add(FieldError::required(format!("{at}.pathType"), "pathType must be specified"))
        }
        Some(kind) if kind.as_str().is_none_or(|kind| !TYPES.contains(&kind)) => {
            check.add(FieldError::unsupported(format!("{at}.pathType"), kind, &TYPES));
        }
        // Only type ImplementationSpecific may be empty or relative.
        Some(kind) if kind != "ImplementationSpecific" && !wanted.starts_with('/') => {
            let why = "must be an absolute path";
            check.add(FieldError::invalid(format!("{at}.path"), &wanted.into(), why));
        }
        Some(_) => {}
    }
    check_backend(check, &format!("{at}.backend"), path.get("backend").unwrap_or(&Value::Null));
}

/// `validateIngressBackend`.
fn check_backend(check: &mut Check<'_>, at: &str, backend: &Value) {
    let part = |name: &str| backend.get(name).filter(|part| !part.is_null());
    let service = match (part("resource"), part("service")) {
        (Some(_), Some(_)) => {
            let why = "cannot set both resource and service backends";
            return check.add(FieldError::invalid(at, &json!(""), why));
        }
        (Some(_), None) => return,
        (None, Some(service)) => service,
        (None, None) => {
            let why = "resource or service backend is required";
            return check.add(FieldError::invalid(at, &json!(""), why));
        }
    };
    if service.get("name").and_then(Value::as_str).unwrap_or("").is_empty() {
        check.add(FieldError::required(format!("{at}.service.name"), ""));
    }
    let name = service.pointer("/port/name").and_then(Value::as_str).unwrap_or("");
    let number = service.pointer("/port/number").and_then(Value::as_i64).unwrap_or(0);
    let path = format!("{at}.service.port");
    match (name.is_empty(), number) {
        (false, 0) => {}
        (false, _) => {
            check.add(FieldError::invalid(
                path,
                &json!(""),
                "cannot set both port name & port number",
            ));
        }
        (true, 0) => check.add(FieldError::required(path, "port name or number is required")),
        (true, 1..=65_535) => {}
        (true, other) => check.add(FieldError::invalid(
            format!("{path}.number"),
            &other.into(),
            "must be between 1 and 65535, inclusive",
        )),
    }
}

/// `ValidateNetworkPolicySpec`, in part: the peers of rules.
pub(crate) fn check_network_policy(check: &mut Check<'_>) {
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for (at, rule) in check.items(&format!("spec.{rules}")) {
            let peers_of = rule.get(peers).and_then(Value::as_array).into_iter().flatten();
            for (n, peer) in peers_of.enumerate() {
                check_peer(check, &format!("{at}.{peers}[{n}]"), peer);
            }
        }
    }
    for (at, kind) in check.items("spec.policyTypes") {
        if !matches!(kind.as_str(), Some("Ingress" | "Egress")) {
            check.add(FieldError::unsupported(at, kind, &["Egress", "Ingress"]));
        }
    }
}

/// `ValidateNetworkPolicyPeer`.
fn check_peer(check: &mut Check<'_>, at: &str, peer: &Value) {
    let has = |name: &str| peer.get(name).is_some_and(|part| !part.is_null());
    let selects = has("podSelector") || has("namespaceSelector");
    match (has("ipBlock"), selects) {
        (false, false) => check.add(FieldError::required(at, "must specify a peer")),
        (true, true) => {
            check.add(FieldError::forbidden(at, "may not specify both ipBlock and another peer"));
        }
        (true, false) => check_ip_block(check, &format!("{at}.ipBlock"), &peer["ipBlock"]),
        (false, true) => {}
    }
}

/// `ValidateIPBlock`.
fn check_ip_block(check: &mut Check<'_>, at: &str, block: &Value) {
    const WHY: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    let text = block.get("cidr").and_then(Value::as_str).unwrap_or("");
    if text.is_empty() {
        return check.add(FieldError::required(format!("{at}.cidr"), ""));
    }
    let whole = Cidr::read(text);
    if whole.is_none() {
        check.add(FieldError::invalid(format!("{at}.cidr"), &text.into(), WHY));
    }
    let except = block.get("except").and_then(Value::as_array).into_iter().flatten();
    for (n, value) in except.enumerate() {
        let path = format!("{at}.except[{n}]");
        match (value.as_str().and_then(Cidr::read), whole) {
            (None, _) => check.add(FieldError::invalid(path, value, WHY)),
            (Some(part), Some(whole)) if !whole.strictly_contains(part) => {
                let why = "must be a strict subset of `cidr`";
                check.add(FieldError::invalid(path, value, why));
            }
            (Some(_), _) => {}
        }
    }
}

/// A range of addresses.
#[derive(Clone, Copy)]
struct Cidr {
    /// The address' bits, at the top.
    bits: u128,
    v4: bool,
    prefix: u32,
}

impl Cidr {
    /// Bits below the prefix may be set, as Go's parser lets them.
    fn read(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let prefix: u32 = prefix.parse().ok()?;
        let (bits, v4, longest) = match address.parse::<IpAddr>().ok()? {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, true, 32),
            IpAddr::V6(address) => (address.to_bits(), false, 128),
        };
        (prefix <= longest).then_some(Self { bits, v4, prefix })
    }

    fn strictly_contains(self, other: Self) -> bool {
        let differing = (self.bits ^ other.bits).leading_zeros();
        self.v4 == other.v4 && other.prefix > self.prefix && differing >= self.prefix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_compared_as_go_does() {
        for good in ["10.0.0.0/8", "10.1.2.3/8", "0.0.0.0/0", "::/0", "2001:db8::/64"] {
            assert!(Cidr::read(good).is_some(), "{good}");
        }
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0/8", "a/8", "10.0.0.0/-1", "::/129"] {
            assert!(Cidr::read(bad).is_none(), "{bad}");
        }
        let contains = |whole: &str, part: &str| {
            Cidr::read(whole).unwrap().strictly_contains(Cidr::read(part).unwrap())
        };
        assert!(contains("10.0.0.0/8", "10.1.0.0/16") && contains("::/0", "2001:db8::/64"));
        assert!(!contains("10.0.0.0/8", "11.0.0.0/16") && !contains("10.0.0.0/8", "10.0.0.0/8"));
        assert!(!contains("0.0.0.0/0", "::/1"));
    }
}
