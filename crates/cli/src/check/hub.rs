//! Facts about the hub's API server: version, clock, kinds, whether it runs workloads.

use std::collections::BTreeMap;

use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, ResourceExt};
use serde_json::Value;

use super::{Fact, State};
use crate::hub::Hub;

/// The first minor version with everything that the manifests need (ValidatingAdmissionPolicy v1).
const OLDEST_MINOR: u32 = 30;
/// Certificates are valid 5 minutes before they are made; Leases last 15 s.
const MOST_SKEW: SignedDuration = SignedDuration::from_secs(5);

/// Version and clock of the API server.
///
/// # Errors
/// When it does not answer.
pub(super) async fn server(hub: &Hub) -> anyhow::Result<Vec<Fact>> {
    let ask = async {
        let request = http::Request::get("/version").body(Body::empty());
        let request = request.map_err(kube::Error::HttpError)?;
        let sent = Timestamp::now();
        let answer = hub.client.send(request).await?;
        let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
        let date = date.map(str::to_owned);
        let received = Timestamp::now();
        let body = answer.into_body().collect().await?.to_bytes();
        let version: Value = serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?;
        Ok((version, date, (sent, received)))
    };
    let (answer, date, times) = hub.call("ask for the version", ask).await?;
    let found = answer["gitVersion"].as_str().unwrap_or_default();
    Ok(vec![version(found), clock(date.as_deref(), times)])
}

fn version(found: &str) -> Fact {
    let mut numbers = found.trim_start_matches('v').split('.').map(|part| part.parse::<u32>().ok());
    let text = format!("Kubernetes {found}");
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(1), Some(minor)) if minor < OLDEST_MINOR => {
            let fix = format!("upgrade the hub to 1.{OLDEST_MINOR} or later");
            Fact::new("API server", State::Failed, text, fix)
        }
        (Some(_), Some(_)) => Fact::ok("API server", text),
        _ => Fact::new("API server", State::Unknown, text, "is it a Kubernetes API server?"),
    }
}

/// Compares the server's clock, in whole seconds, with the time of the request.
fn clock(date: Option<&str>, (sent, received): (Timestamp, Timestamp)) -> Fact {
    let there = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    let Some(there) = there.map(|there| there.timestamp()) else {
        let text = "the API server does not name its time";
        return Fact::new("clock", State::Unknown, text, "compare its clock with this machine's");
    };
    let second = SignedDuration::from_secs(1);
    let ahead = there.duration_since(received);
    let behind = sent.duration_since(there) - second;
    let skew = ahead.max(behind).max(SignedDuration::ZERO);
    let text = format!("{} s between this machine and the hub", skew.as_secs());
    match skew <= MOST_SKEW {
        true => Fact::ok("clock", text),
        false => {
            let fix = "synchronise both clocks (NTP): Leases and certificates depend on them";
            Fact::new("clock", State::Warning, text, fix)
        }
    }
}

/// Whether the hub runs workloads itself.
pub(super) async fn nodes(hub: &Hub) -> Fact {
    let nodes: Api<Node> = Api::all(hub.client.clone());
    match hub.call("list nodes", nodes.list_metadata(&ListParams::default().limit(1))).await {
        Err(error) => Fact::unknown("workloads", &error),
        Ok(page) if page.items.is_empty() => {
            Fact::ok("workloads", "the hub has no nodes, so no other controller runs its workloads")
        }
        Ok(_) => Fact::new(
            "workloads",
            State::Warning,
            "the hub has nodes: Atoll does not claim kinds that create Pods there",
            "use an API server without nodes and workload controllers as the hub",
        ),
    }
}

/// Whether Atoll's kinds are those of this binary. `before` = before the installation.
pub(super) async fn kinds(hub: &Hub, before: bool) -> Fact {
    let crds: Api<CustomResourceDefinition> = Api::all(hub.client.clone());
    let all = ListParams::default();
    let listed = hub.call("list CustomResourceDefinitions", crds.list(&all)).await;
    let present: BTreeMap<String, CustomResourceDefinition> = match listed {
        Err(error) => return Fact::unknown("kinds", &error),
        Ok(list) => list.items.into_iter().map(|crd| (crd.name_any(), crd)).collect(),
    };
    compare(&present, &atoll_api::crds::all(), before)
}

fn compare(
    present: &BTreeMap<String, CustomResourceDefinition>,
    own: &[CustomResourceDefinition],
    before: bool,
) -> Fact {
    let fix = "apply the kinds of this version: `atoll install | kubectl apply --server-side -f -`";
    let (mut missing, mut other) = (Vec::new(), Vec::new());
    for crd in own {
        let name = crd.name_any();
        match present.get(&name) {
            None => missing.push(name),
            Some(found) if schemas(found) != schemas(crd) => other.push(name),
            Some(_) => {}
        }
    }
    let count = own.len();
    match (missing.is_empty(), other.is_empty()) {
        (true, true) => Fact::ok("kinds", format!("{count} kinds, as this version has them")),
        _ if before && missing.len() == count => {
            Fact::ok("kinds", "none of Atoll's kinds exist yet")
        }
        (true, false) if before => Fact::new(
            "kinds",
            State::Warning,
            format!("another version is installed: {}", other.join(", ")),
            "an installation replaces its kinds",
        ),
        (true, false) => {
            let text = format!("kinds of another version: {}", other.join(", "));
            Fact::new("kinds", State::Warning, text, fix)
        }
        (false, _) => {
            Fact::new("kinds", State::Failed, format!("missing: {}", missing.join(", ")), fix)
        }
    }
}

/// Schema of each version, in a form that servers do not change.
fn schemas(crd: &CustomResourceDefinition) -> BTreeMap<String, Value> {
    let schema = |version: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion| {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        plain(&serde_json::to_value(schema).unwrap_or_default())
    };
    crd.spec.versions.iter().map(|version| (version.name.clone(), schema(version))).collect()
}

/// Numbers without the difference of 1 and 1.0, and no fields that say nothing.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or(Value::Null, |n| n.to_string().into()),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(fields) => {
            let says = |value: &Value| !value.is_null() && *value != Value::Bool(false);
            let kept = fields.iter().filter(|(_, value)| says(value));
            kept.map(|(key, value)| (key.clone(), plain(value))).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_or_has_another_time_is_found() {
        assert_eq!(version("v1.29.3").state, State::Failed);
        assert_eq!(version("v1.33.0+k3s1").state, State::Ok);
        assert_eq!(version("nginx").state, State::Unknown);
        let now: Timestamp = "2030-01-01T00:00:10.5Z".parse().unwrap();
        let at = |text: Option<&str>| clock(text, (now, now)).state;
        assert_eq!(at(Some("Tue, 01 Jan 2030 00:00:10 GMT")), State::Ok);
        assert_eq!(at(Some("Tue, 01 Jan 2030 00:00:30 GMT")), State::Warning);
        assert_eq!(at(Some("Mon, 31 Dec 2029 23:59:00 GMT")), State::Warning);
        assert_eq!(at(None), State::Unknown);
    }

    #[test]
    fn kinds_that_are_missing_or_of_another_version_are_named() {
        let own = atoll_api::crds::all();
        let mut present: BTreeMap<_, _> =
            own.iter().map(|crd| (crd.name_any(), crd.clone())).collect();
        assert_eq!(compare(&present, &own, false).state, State::Ok);
        let name = "clusters.cluster.atoll.dev";
        let schema = present.get_mut(name).unwrap().spec.versions[0].schema.as_mut().unwrap();
        schema.open_api_v3_schema.as_mut().unwrap().title = Some("Other".to_owned());
        let other = compare(&present, &own, false);
        assert!(other.state == State::Warning && other.text.contains(name), "{other:?}");
        present.remove(name);
        let missing = compare(&present, &own, false);
        assert!(missing.state == State::Failed && missing.text.contains(name), "{missing:?}");
        assert_eq!(compare(&BTreeMap::new(), &own, true).state, State::Ok);
    }
}
