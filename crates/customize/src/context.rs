//! Questions to webhooks and their answers: Karmada's `ResourceInterpreterContext`, as JSON.

use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::RuleError;
use crate::limits;
use crate::request::{Replicas, Request, Response};
use crate::results;

const KIND: &str = "ResourceInterpreterContext";
/// The only type of patches.
const JSON_PATCH: &str = "JSONPatch";

/// What every message of one call has.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Id of the call, which the answer repeats.
    pub uid: &'a str,
    /// `apiVersion` of both messages.
    pub api_version: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    response: Option<Answer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    uid: String,
    successful: bool,
    status: Option<Failure>,
    patch: Option<ByteString>,
    patch_type: Option<String>,
    replicas: Option<Value>,
    replica_requirements: Option<Value>,
    components: Option<Value>,
    dependencies: Option<Value>,
    raw_status: Option<Value>,
    healthy: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Failure {
    message: String,
    code: i64,
}

impl Call<'_> {
    /// The question as a message.
    #[must_use]
    pub fn question(self, request: &Request) -> Value {
        let object = request.object();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = text(&object["apiVersion"]);
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
        let mut question = json!({
            "uid": self.uid,
            "kind": {"group": group, "version": version, "kind": object["kind"]},
            "name": object["metadata"]["name"],
            "operation": request.operation().name(),
            "object": object,
        });
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            question["namespace"] = namespace.into();
        }
        match request {
            Request::Revise { replicas, .. } => question["replicas"] = (*replicas).into(),
            Request::Retain { observed, .. } => question["observedObject"] = (**observed).clone(),
            Request::Aggregate { items, .. } => question["aggregatedStatus"] = (**items).clone(),
            _ => {}
        }
        json!({"apiVersion": self.api_version, "kind": KIND, "request": question})
    }

    /// The answer in a message, checked.
    ///
    /// # Errors
    /// The message is not the answer to this call, the server could not answer, or the answer cannot be used.
    pub fn answer(self, request: &Request, message: &[u8]) -> Result<Response, RuleError> {
        let unusable = RuleError::Result;
        let context: Context = serde_json::from_slice(message)
            .map_err(|error| unusable(format!("a message that is no {KIND}: {error}")))?;
        if context.kind != KIND || context.api_version != self.api_version {
            return Err(unusable(format!(
                "a message of {:?} {:?} instead of {} {KIND}",
                context.api_version, context.kind, self.api_version
            )));
        }
        let Some(answer) = context.response else {
            return Err(unusable("a message without response".to_owned()));
        };
        if answer.uid != self.uid {
            let other = shown(&answer.uid);
            return Err(unusable(format!(
                "response.uid {other:?}, but the uid of the request is {:?}",
                self.uid
            )));
        }
        if !answer.successful {
            let Failure { message, code } = answer.status.unwrap_or_default();
            let code = if code == 0 { String::new() } else { format!(" (code {code})") };
            let why = match shown(&message) {
                none if none.is_empty() => "without a message".to_owned(),
                why => why,
            };
            return Err(RuleError::Failed(format!("the webhook could not answer{code}: {why}")));
        }
        answer.response(request)
    }
}

impl Answer {
    fn response(self, request: &Request) -> Result<Response, RuleError> {
        let missing = |field: &str| RuleError::Result(format!("no response.{field}"));
        match request {
            Request::Replicas(_) => {
                let replicas = self.replicas.as_ref().and_then(Value::as_f64);
                let replicas = results::replicas(replicas.ok_or_else(|| missing("replicas"))?)?;
                let requirements = self.replica_requirements.filter(|value| !value.is_null());
                let requirements = requirements.map(results::requirements).transpose()?;
                Ok(Response::Replicas(Replicas { replicas, requirements }))
            }
            Request::Components(_) => {
                // No list means none, as empty lists are left out in Karmada.
                let none = Value::Array(Vec::new());
                let found = self.components.filter(|value| !value.is_null()).unwrap_or(none);
                Ok(Response::Components(results::components(found)?))
            }
            Request::Dependencies(_) => {
                let none = Value::Array(Vec::new());
                let found = self.dependencies.filter(|value| !value.is_null()).unwrap_or(none);
                let found = results::dependencies(found)?;
                Ok(Response::Dependencies(results::united(found)))
            }
            Request::Revise { object, .. }
            | Request::Retain { desired: object, .. }
            | Request::Aggregate { object, .. } => {
                let patched = self.patched(object)?;
                Ok(Response::Object(results::changed(object, patched)?))
            }
            Request::Reflect(_) => match self.raw_status {
                Some(status @ Value::Object(_)) => Ok(Response::Status(status)),
                Some(Value::Null) | None => Err(missing("rawStatus")),
                Some(_) => Err(RuleError::Result("response.rawStatus is not a map".to_owned())),
            },
            Request::Health(_) => {
                Ok(Response::Healthy(self.healthy.ok_or_else(|| missing("healthy"))?))
            }
        }
    }

    /// The object with the patch.
    fn patched(&self, object: &Value) -> Result<Value, RuleError> {
        let Some(patch) = self.patch.as_ref().filter(|patch| !patch.0.is_empty()) else {
            return Ok(object.clone()); // nothing to change
        };
        let kind = self.patch_type.as_deref().unwrap_or(JSON_PATCH);
        if kind != JSON_PATCH {
            let kind = shown(kind);
            return Err(RuleError::Result(format!(
                "response.patchType {kind:?}, not {JSON_PATCH}"
            )));
        }
        let unusable = |why: String| RuleError::Result(format!("response.patch: {why}"));
        let operations = serde_json::from_slice(&patch.0)
            .map_err(|error| unusable(format!("is no JSON: {error}")))?;
        let patched = atoll_merge::patch::json_patch(object, &operations)
            .map_err(|error| unusable(shown(&error.to_string())))?;
        Ok(patched)
    }
}

/// A text of the server, as far as a message shows it.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(limits::MESSAGE).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const CALL: Call<'static> = Call { uid: "7", api_version: "config.atoll.dev/v1alpha1" };

    fn object() -> Arc<Value> {
        Arc::new(json!({
            "apiVersion": "apps.example.io/v1", "kind": "WebApp",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"size": 3},
        }))
    }

    fn message(response: Value) -> Vec<u8> {
        let mut all = json!({"uid": "7", "successful": true});
        all.as_object_mut().unwrap().extend(response.as_object().unwrap().clone());
        json!({"apiVersion": CALL.api_version, "kind": KIND, "response": all})
            .to_string()
            .into_bytes()
    }

    fn patch(operations: &Value) -> Value {
        let text = ByteString(operations.to_string().into_bytes());
        json!({"patchType": "JSONPatch", "patch": text})
    }

    fn revise() -> Request {
        Request::Revise { object: object(), replicas: 5 }
    }

    #[test]
    fn a_question_has_the_fields_of_its_operation() {
        let question = CALL.question(&revise());
        assert_eq!(question["apiVersion"], CALL.api_version);
        assert_eq!(question["kind"], KIND);
        let expected = json!({
            "uid": "7", "operation": "ReviseReplica", "name": "web", "namespace": "shop", "replicas": 5,
            "kind": {"group": "apps.example.io", "version": "v1", "kind": "WebApp"},
            "object": *object(),
        });
        assert_eq!(question["request"], expected);
        let items = Arc::new(json!([{"clusterName": "m1"}]));
        let aggregate = CALL.question(&Request::Aggregate { object: object(), items });
        assert_eq!(aggregate["request"]["aggregatedStatus"][0]["clusterName"], "m1");
    }

    #[test]
    fn every_operation_has_its_answer() {
        let answer = |request: Request, response: Value| {
            CALL.answer(&request, &message(response)).unwrap().to_json()
        };
        let request = json!({"resourceRequest": {"cpu": "1000m"}});
        let replicas = answer(
            Request::Replicas(object()),
            json!({"replicas": 3, "replicaRequirements": request}),
        );
        assert_eq!(replicas["requirements"]["resourceRequest"]["cpu"], "1");
        assert_eq!(replicas["replicas"], 3);
        let components = json!([{"name": "head", "replicas": 1}]);
        let found = answer(Request::Components(object()), json!({"components": components}));
        assert_eq!(found["components"], components);
        let secret =
            json!([{"apiVersion": "v1", "kind": "Secret", "namespace": "shop", "name": "db"}]);
        let found = answer(Request::Dependencies(object()), json!({"dependencies": secret}));
        assert_eq!(found["dependencies"], secret);
        let size = patch(&json!([{"op": "replace", "path": "/spec/size", "value": 5}]));
        assert_eq!(answer(revise(), size)["object"]["spec"]["size"], 5);
        assert_eq!(answer(revise(), json!({}))["object"], *object());
        let reflected = answer(Request::Reflect(object()), json!({"rawStatus": {"ready": 1}}));
        assert_eq!(reflected["status"], json!({"ready": 1}));
        assert_eq!(answer(Request::Health(object()), json!({"healthy": false}))["healthy"], false);
    }

    #[test]
    fn the_messages_of_the_documentation_are_those_of_a_call() {
        let page = include_str!("../../../docs/interpreters.md");
        let mut messages =
            page.split("```json").skip(1).map(|rest| rest.split("```").next().unwrap());
        let question: Value = serde_json::from_str(messages.next().unwrap()).unwrap();
        let call = Call { uid: "7c1e...", ..CALL };
        let mut asked = call.question(&Request::Replicas(object()));
        asked["request"]["object"] = json!({});
        assert_eq!(question, asked);
        let answer = call.answer(&Request::Replicas(object()), messages.next().unwrap().as_bytes());
        assert_eq!(answer.unwrap().to_json()["requirements"]["resourceRequest"]["cpu"], "100m");
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_field() {
        let rename = patch(&json!([{"op": "replace", "path": "/metadata/name", "value": "b"}]));
        let missing = patch(&json!([{"op": "remove", "path": "/spec/colour"}]));
        let mut merge = patch(&json!([]));
        merge["patchType"] = json!("MergePatch");
        let replicas = || Request::Replicas(object());
        let cases = [
            (replicas(), json!({"replicas": -1}), "number of replicas is -1"),
            (replicas(), json!({"replicas": "3"}), "no response.replicas"),
            (
                replicas(),
                json!({"replicas": 1, "replicaRequirements": {"resourceRequest": {"cpu": "x"}}}),
                "resourceRequest.cpu",
            ),
            (replicas(), json!({"replicas": 1, "uid": "8"}), "response.uid \"8\""),
            (
                replicas(),
                json!({"successful": false, "status": {"message": "no\u{1b}pe", "code": 404}}),
                "(code 404): nope",
            ),
            (revise(), rename, "metadata.name is \"b\""),
            (revise(), missing, "response.patch: remove operation 0 does not apply"),
            (revise(), merge, "response.patchType"),
            (revise(), json!({"patch": "bm8="}), "is no JSON"),
            (Request::Health(object()), json!({}), "no response.healthy"),
            (Request::Reflect(object()), json!({"rawStatus": [1]}), "is not a map"),
            (
                Request::Dependencies(object()),
                json!({"dependencies": [{"kind": "A"}]}),
                "dependency 1",
            ),
            (
                Request::Components(object()),
                json!({"components": [{"replicas": -2}]}),
                "component 1",
            ),
        ];
        for (request, response, part) in cases {
            let error = CALL.answer(&request, &message(response)).unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
        let karmada = Call { api_version: "config.karmada.io/v1alpha1", ..CALL };
        for (call, text, part) in [
            (CALL, b"<html>".to_vec(), "is no ResourceInterpreterContext"),
            (karmada, message(json!({"replicas": 1})), "instead of config.karmada.io/v1alpha1"),
        ] {
            let error = call.answer(&replicas(), &text).unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
