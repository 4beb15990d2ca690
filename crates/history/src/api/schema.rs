//! The schema of the objects, for `kubectl explain`.

use serde_json::{Value, json};

use super::Kind;

/// OpenAPI v3 of an object of a kind.
#[must_use]
pub fn schema(kind: Kind) -> Value {
    match kind {
        Kind::Decision | Kind::ClusterDecision => decision(),
        Kind::MemberEvent => member_event(),
        Kind::DecisionInput => decision_input(),
    }
}

fn decision_input() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    json!({
        "type": "object",
        "description": "What a decision read, for atoll replay. Read only.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {"type": "object", "description": "The inputs.", "properties": {
                "decision": text("id of the decision."),
                "missing": text("Why its inputs are missing."),
                "frames": {"type": "array", "description": "Differences that give the inputs, oldest first.", "items": {
                    "type": "object",
                    "properties": {
                        "decision": text("id of the decision that they were stored with."),
                        "frame": text("The differences, compressed, as base64."),
                    },
                }},
            }},
        },
    })
}

fn member_event() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let at = json!({"type": "string", "format": "date-time", "description": "When."});
    json!({
        "type": "object",
        "description": "Something that happened to a member cluster, as it was recorded. Read only.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {"type": "object", "description": "What happened.", "properties": {
                "cluster": text("Name of the Cluster."),
                "clusterUid": text("Its uid, where it is known."),
                "at": at,
                "event": text("What: Joined, Ready, Lost, Suspected, Tainted, Cordoned, Drained, Left, and Exec, Attach and PortForward of users."),
                "reason": text("Why, in one word; the key of the taint for taints; Opened, Refused, Failed or Ended for sessions."),
                "message": text("Why, for people; user, pod and result of sessions."),
            }},
        },
    })
}

fn decision() -> Value {
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
    let moment = |description: &str| json!({"type": "string", "format": "date-time", "description": description});
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
                        "description": "This object stands for several decisions that are missing from history.",
                        "properties": {"from": text("id of the first."), "count": number("How many.")},
                    }),
                    "provenance": json!({
                        "type": "object",
                        "description": "Who decided, and what it read.",
                        "properties": {
                            "version": text("Version of the scheduler."),
                            "profile": text("Its profile."),
                            "sources": {
                                "type": "array",
                                "description": "The template first, then the policies, with generation and last change.",
                                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                            },
                        },
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
            "status": {
                "type": "object",
                "description": "Progress after the decision. Unknown times are absent.",
                "properties": {
                    "decided": moment("When the scheduler made it."),
                    "committed": moment("When the hub held it."),
                    "dispatched": moment("When the last member that it concerns was sent its share."),
                    "applied": moment("When the last of them had applied it."),
                    "healthy": moment("When the last of them reported every replica healthy."),
                    "superseded": moment("When a later decision took its place."),
                    "slowest": text("The member that was healthy last."),
                    "notKnownHealthy": names("Members that it concerns that were not seen healthy."),
                    "members": {
                        "type": "array",
                        "description": "Each member that it concerns.",
                        "items": {"type": "object", "properties": {
                            "name": text("Name of the Cluster."),
                            "dispatched": moment("When it was sent its share."),
                            "applied": moment("When it had applied it."),
                            "healthy": moment("When it reported every replica healthy."),
                        }},
                    },
                },
            },
        },
    })
}
