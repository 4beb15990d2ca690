//! The schema of the objects, for `kubectl explain`.

use serde_json::{Value, json};

/// OpenAPI v3 of an object.
#[must_use]
pub fn schema() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let number = |description: &str| json!({"type": "integer", "format": "int64", "description": description});
    let shares = |description: &str| {
        json!({
            "type": "array",
            "description": description,
            "items": {"type": "object", "properties": {
                "name": text("Name of the Cluster."),
                "replicas": number("Replicas. 0 for kinds without replicas."),
            }},
        })
    };
    let names = |description: &str| json!({"type": "array", "description": description, "items": {"type": "string"}});
    let reference = |description: &str| {
        json!({
            "type": "object",
            "description": description,
            "properties": {
                "apiVersion": text("API version, of the workload."),
                "kind": text("Kind."),
                "namespace": text("Namespace. Absent for cluster-scoped objects."),
                "name": text("Name."),
                "uid": text("uid: an object that was made again is another one."),
            },
        })
    };
    json!({
        "type": "object",
        "description": "A scheduling decision, as it was recorded. Read only.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "description": "The decision.",
                "properties": {
                    "at": json!({"type": "string", "format": "date-time", "description": "When it was made."}),
                    "trigger": text("Why it was made."),
                    "mode": text("What could move: Steady, Replan or Fresh."),
                    "outcome": text("How it ended."),
                    "reason": text("Why, in a line."),
                    "parent": text("id of the binding's decision before."),
                    "term": number("Term of the leader that made it."),
                    "desired": number("Replicas asked for."),
                    "pending": json!({
                        "type": "array",
                        "description": "Replicas without a place.",
                        "items": {"type": "object", "properties": {
                            "replicas": number("How many."), "reason": text("Why."),
                        }},
                    }),
                    "affinityName": text("The affinity term in force."),
                    "binding": reference("The binding."),
                    "workload": reference("The template."),
                    "before": shares("Shares before. Absent when not known."),
                    "after": shares("Shares that it set."),
                    "moves": json!({
                        "type": "array",
                        "description": "Replicas that moved.",
                        "items": {"type": "object", "properties": {
                            "from": text("Absent: they are new."),
                            "to": text("Absent: they are gone."),
                            "count": number("How many."),
                        }},
                    }),
                    "gap": json!({
                        "type": "object",
                        "description": "This object stands for several decisions that history missed.",
                        "properties": {"from": text("id of the first."), "count": number("How many.")},
                    }),
                    "withdrawal": json!({
                        "type": "object",
                        "description": "How far members had confirmed the end of the binding.",
                        "properties": {
                            "clusters": names("Who had its objects."),
                            "unconfirmed": names("Who had not confirmed when this was recorded."),
                        },
                    }),
                    "detail": json!({
                        "type": "object",
                        "description": "The whole decision: every cluster's verdict, scores, capacities. Only in the answer to a get of one object.",
                        "x-kubernetes-preserve-unknown-fields": true,
                    }),
                    "detailMissing": text("Why there is no detail."),
                    "unreadable": text("Why this row cannot be read."),
                },
            },
        },
    })
}
