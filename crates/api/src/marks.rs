//! The labels, annotations, finalizers and field managers that identify Atoll's objects and fields.

/// Whether the key of a label or annotation belongs to Atoll.
#[must_use]
pub fn is_own(key: &str) -> bool {
    key.split_once('/')
        .is_some_and(|(domain, _)| domain == "atoll.dev" || domain.ends_with(".atoll.dev"))
}

/// Label on every member object that Atoll applied; its value is [`MANAGED_BY_VALUE`].
pub const MANAGED_BY: &str = "atoll.dev/managed-by";
/// Value of [`MANAGED_BY`].
pub const MANAGED_BY_VALUE: &str = "atoll";
/// Annotation on a member object: the uids of the bindings that claim it, comma separated, ascending.
pub const CLAIMS: &str = "atoll.dev/claims";
/// Annotation on a member object: hash of the rendered manifest, computed by the controller.
pub const HASH: &str = "atoll.dev/hash";
/// Annotation on a member object: `true` keeps the object when its binding is deleted (`preserveResourcesOnDeletion`).
pub const PRESERVE: &str = "atoll.dev/preserve";
/// The marks of objects on members, by the field of their metadata.
pub const MEMBER_MARKS: [(&str, &[&str]); 2] =
    [("labels", &[MANAGED_BY]), ("annotations", &[CLAIMS, HASH, PRESERVE])];
/// Finalizer on bindings: members must be notified before the binding is deleted.
pub const BINDING_FINALIZER: &str = "atoll.dev/members";
/// Finalizer on Clusters: the member is emptied before the Cluster is deleted.
pub const CLUSTER_FINALIZER: &str = "atoll.dev/cluster";
/// Annotation on a Cluster that is being deleted: the options, comma separated. [`UNJOIN_RELEASE`] keeps running
/// objects on the member, without Atoll's marks. [`UNJOIN_FORCE`] does not wait for an unreachable member or for work
/// that cannot move, and leaves that work behind.
pub const UNJOIN: &str = "atoll.dev/unjoin";
/// See [`UNJOIN`].
pub const UNJOIN_RELEASE: &str = "release";
/// See [`UNJOIN`].
pub const UNJOIN_FORCE: &str = "force";
/// Annotation on a Cluster: orphans that a user wants removed from the member, comma separated, each in the form of
/// [`crate::cluster::ObjectName`]. The controller deletes the annotation when none of them is left.
pub const PRUNE: &str = "atoll.dev/prune";
/// Annotation on a Cluster, with any value: held removals (condition `PruneHeld`) may proceed. The controller deletes
/// the annotation once they do.
pub const CONFIRM_PRUNE: &str = "atoll.dev/confirm-prune";
/// Annotation on a Cluster, with any value: a user confirms that members without a session are lost, so that the
/// controller does not suspect its own connection. It covers all members that are silent at that time. The controller
/// deletes the annotation.
pub const CONFIRM_LOST: &str = "atoll.dev/confirm-lost";
/// Annotation on a Cluster, with any value: a user accepts the term that the member's agent reports (condition
/// `TermAhead`), and the leader raises its own term above it. The controller deletes the annotation afterwards.
pub const ACCEPT_TERM: &str = "atoll.dev/accept-term";
/// Annotation of the leader's Lease: the fencing term.
pub const TERM: &str = "atoll.dev/term";
/// Annotation of the leader's Lease: the version of the leader's program.
pub const LEADER_VERSION: &str = "atoll.dev/version";
/// Annotation of the leader's Lease: where other controllers reach the leader's listener for agents.
pub const LEADER_ADDRESS: &str = "atoll.dev/leader-address";
/// Label on the leader's own Pod.
pub const LEADER: &str = "atoll.dev/leader";

/// Annotation on a binding: the placement in force at the last decision, as JSON.
pub const APPLIED_PLACEMENT: &str = "policy.atoll.dev/applied-placement";
/// Annotation on a binding: name of the policy that claims the template.
pub const POLICY_NAME: &str = "policy.atoll.dev/name";
/// Annotation on a binding: namespace of that policy; absent for a cluster-scoped one.
pub const POLICY_NAMESPACE: &str = "policy.atoll.dev/namespace";
/// Label on a binding: uid of the namespaced policy that claims the template.
pub const POLICY_UID: &str = "policy.atoll.dev/uid";
/// Label on a binding: uid of the cluster-scoped policy that claims the template.
pub const CLUSTER_POLICY_UID: &str = "policy.atoll.dev/cluster-uid";
/// Label of an object that does not follow the objects that refer to it (`propagateDeps`): `"true"` keeps it on the hub.
pub const SKIP_DEPENDENCY: &str = "resourcetemplate.atoll.dev/skip-dependency";
/// Label of an object that must not be deleted on the hub while it has [`DELETION_PROTECTED_VALUE`].
pub const DELETION_PROTECTED: &str = "resourcetemplate.atoll.dev/deletion-protected";
/// See [`DELETION_PROTECTED`].
pub const DELETION_PROTECTED_VALUE: &str = "Always";
/// Label, with value `"true"`, of the ResourceQuota that the controller makes for the `staticAssignments` of a
/// FederatedResourceQuota. No PropagationPolicy applies to it, and no OverridePolicy of its namespace.
pub const STATIC_ASSIGNMENT: &str = "policy.atoll.dev/static-assignment";
/// Annotation on a template, `overwrite` or `abort`: what happens where a member has an object of that name which Atoll
/// does not manage. It takes precedence over `conflictResolution` of the policy.
pub const CONFLICT_RESOLUTION: &str = "work.atoll.dev/conflict-resolution";
/// Annotation on a template: the clusters and replicas of its first decision, as JSON ([`crate::start::Start`]). It counts
/// only if the policy that claims the template has [`ACCEPTS_START`], and only as long as there is no binding.
pub const START: &str = "work.atoll.dev/start";
/// Annotation on a policy, with value `"true"`: templates that it claims may name their first placement themselves
/// ([`START`]). `atoll migrate` sets it.
pub const ACCEPTS_START: &str = "policy.atoll.dev/accepts-start";
/// Label on a template or its pod template: the name of its WorkloadPolicy.
pub const WORKLOAD_POLICY: &str = "policy.atoll.dev/workload-policy";
/// Kosmos' spellings of [`WORKLOAD_POLICY`], also accepted.
pub const WORKLOAD_POLICY_ALIASES: [&str; 2] =
    ["workload-policy/kosmos.io", "workload-policy.kosmos.io"];

/// Taint of a member without a session.
pub const TAINT_UNREACHABLE: &str = "cluster.atoll.dev/unreachable";
/// Taint of a member that has a session but reports an unhealthy API.
pub const TAINT_NOT_READY: &str = "cluster.atoll.dev/not-ready";
/// Taint that `atoll cordon` sets.
pub const TAINT_CORDONED: &str = "cluster.atoll.dev/cordoned";

/// Taint that `atoll drain` sets, in addition to [`TAINT_CORDONED`].
pub const TAINT_DRAIN: &str = "cluster.atoll.dev/drain";

/// Field manager of the agent on member objects and of the controller on bindings.
pub const MANAGER: &str = "atoll";
/// Field manager of the controller's status writes.
pub const MANAGER_STATUS: &str = "atoll-status";
/// Field manager of the controller's writes to `spec.replicas` of templates (`replicaSync: FromMembers`).
pub const MANAGER_REPLICAS: &str = "atoll-replicas";
/// Field manager of the controller's taints.
pub const MANAGER_HEALTH: &str = "atoll-health";

/// Namespace on the hub for Atoll's own objects (Lease, CA Secret).
pub const SYSTEM_NAMESPACE: &str = "atoll-system";
