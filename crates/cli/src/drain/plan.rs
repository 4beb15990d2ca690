//! `atoll drain --dry-run`: the decisions that a drain would cause, computed here by the scheduler core from the
//! current objects of the hub.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use anyhow::ensure;
use atoll_api::binding::{GracefulEvictionTask, TargetCluster};
use atoll_api::{
    Cluster, ClusterPropagationPolicy, ClusterResourceBinding, ClusterSet, PropagationPolicy,
    ResourceBinding, WorkloadPolicy, WorkloadSpread,
};
use atoll_controller::emptying::{is_ended_job, takes_no_room};
use atoll_controller::pace;
use atoll_scheduler::offline::{Answer, Document, Fate, Settings, World};
use atoll_scheduler::{Decision, Profiles, Scheduler};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Resource, discovery};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::args::Format;
use crate::cordon;
use crate::hub::Hub;
use crate::input;
use crate::print::{self, Printer, Text, Tone};
use crate::read::get::each;

/// Templates fetched concurrently.
const AT_ONCE: usize = 16;

/// The effect of a drain on one workload.
struct Row<'a> {
    object: String,
    decision: Option<&'a Decision>,
    /// Where its replicas go.
    moves: Vec<(String, i64)>,
    /// Why it stays; `None` if it moves.
    stays: Option<String>,
    /// Whether the drain waits for it.
    holds: bool,
}

pub(super) async fn run(
    hub: &Hub,
    member: &str,
    format: Format,
    out: &Printer,
) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let (world, problems) = read(hub, member, now).await?;
    let settings = Settings { profile: None, now };
    let answers = world.decide(&mut Scheduler::new(Profiles::default()), &settings);
    let rows: Vec<Row<'_>> =
        answers.iter().filter_map(|answer| row(answer, &world, member)).collect();
    for problem in &problems {
        print::note(format!("error: {problem}"));
    }
    let staying = rows.iter().filter(|row| row.stays.is_some()).count();
    let moving = rows.len() - staying;
    let light = rows.iter().filter(|row| row.stays.is_some() && !row.holds).count();
    if !rows.is_empty() {
        print::note(format!(
            "Of the workloads on {member}, {moving} would move and {staying} would stay{}. The controller limits the pace: at\n\
             most {} a second (--eviction-rate), and within 10 s at most {} % of a member's room (--eviction-room-percent),\n\
             unless it was started with other limits.\n",
            match light {
                0 => String::new(),
                light => format!(
                    ", {light} of them without blocking the drain because they take no room"
                ),
            },
            pace::BINDINGS_PER_SECOND,
            pace::ROOM_PERCENT,
        ));
    }
    print_rows(&rows, member, format, out)?;
    ensure!(
        problems.is_empty(),
        "{} could not be read: the plan may be incomplete",
        print::counted(problems.len(), "object", "objects")
    );
    Ok(())
}

fn print_rows(rows: &[Row<'_>], member: &str, format: Format, out: &Printer) -> anyhow::Result<()> {
    let staying = rows.iter().filter(|row| row.stays.is_some()).count();
    let moving = rows.len() - staying;
    match format {
        Format::Table if rows.is_empty() => out.line(format!("Nothing runs on {member}.")),
        Format::Table => {
            out.table(&["WORKLOAD", "MOVES TO", "STAYS BECAUSE"], rows.iter().map(cells).collect())
        }
        format => out.object(
            format,
            &json!({"member": member, "moving": moving, "staying": staying, "items": rows.iter().map(item).collect::<Vec<_>>()}),
        ),
    }
}

/// The objects of the hub with the member drained since `now`, and those that could not be read.
async fn read(hub: &Hub, member: &str, now: Timestamp) -> anyhow::Result<(World, Vec<String>)> {
    let mut world = World::default();
    let mut templates = BTreeMap::new();
    let mut problems = Vec::new();
    {
        let mut add = |object: Value| {
            if let Err(problem) = put(&mut world, object) {
                problems.push(problem);
            }
        };
        let drained = |mut cluster: Cluster| {
            if cluster.metadata.name.as_deref() == Some(member) {
                cluster.spec.taints.retain(|taint| !cordon::is_drain(taint));
                cluster.spec.taints.push(cordon::drain_taint(now));
            }
            cluster
        };
        list::<Cluster>(hub, &mut |cluster| add(typed(&drained(cluster)))).await?;
        list::<PropagationPolicy>(hub, &mut |policy| add(typed(&policy))).await?;
        list::<ClusterPropagationPolicy>(hub, &mut |policy| add(typed(&policy))).await?;
        list::<WorkloadPolicy>(hub, &mut |policy| add(typed(&policy))).await?;
        list::<WorkloadSpread>(hub, &mut |spread| add(typed(&spread))).await?;
        list::<ClusterSet>(hub, &mut |set| add(typed(&set))).await?;
        let mut note = |clusters: &[TargetCluster], tasks: &[GracefulEvictionTask], of: &Value| {
            let here = clusters.iter().any(|target| target.name == member)
                || tasks.iter().any(|task| task.from_cluster == member);
            if here {
                templates.insert(of.to_string(), of.clone());
            }
        };
        list::<ResourceBinding>(hub, &mut |binding| {
            let spec = &binding.spec;
            note(&spec.clusters, &spec.graceful_eviction_tasks, &json!(spec.resource));
            add(typed(&binding));
        })
        .await?;
        list::<ClusterResourceBinding>(hub, &mut |binding| {
            let spec = &binding.spec;
            note(&spec.clusters, &spec.graceful_eviction_tasks, &json!(spec.resource));
            add(typed(&binding));
        })
        .await?;
    }
    list::<Namespace>(hub, &mut |namespace| {
        let metadata = namespace.metadata;
        let labels = metadata.labels.unwrap_or_default();
        world.namespaces.insert(metadata.name.unwrap_or_default(), labels);
    })
    .await?;
    for object in fetch(hub, templates.into_values().collect(), &mut problems).await? {
        if let Err(problem) = put(&mut world, object) {
            problems.push(problem);
        }
    }
    Ok((world, problems))
}

/// Adds an object of the hub; errors name the object.
fn put(world: &mut World, object: Value) -> Result<(), String> {
    let title = input::title(&object);
    world.add(Document { origin: String::new(), object }).map_err(|error| {
        match error.problem.starts_with(&title) {
            true => error.problem,
            false => format!("{title}: {}", error.problem),
        }
    })
}

/// An object of one of Atoll's kinds. List items and cluster-scoped kinds lack apiVersion and kind.
fn typed<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Value {
    let mut object = value(object);
    object["apiVersion"] = K::api_version(&()).into();
    object["kind"] = K::kind(&()).into();
    object
}

/// An object as JSON.
fn value(object: &impl Serialize) -> Value {
    // Our types are plain structs with string keys, so they always serialise.
    serde_json::to_value(object).unwrap_or_default()
}

async fn list<K>(hub: &Hub, take: &mut impl FnMut(K)) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::all(hub.client.clone());
    each(hub, &format!("list {}", K::plural(&())), &api, take).await
}

/// The templates of the bindings, of any kind. A deleted template is skipped, because its binding is going too; kinds
/// that the hub no longer serves are reported in `problems`.
async fn fetch(
    hub: &Hub,
    references: Vec<Value>,
    problems: &mut Vec<String>,
) -> anyhow::Result<Vec<Value>> {
    let mut resources: BTreeMap<(String, String), ApiResource> = BTreeMap::new();
    let mut unserved: BTreeSet<(String, String)> = BTreeSet::new();
    let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    for of in &references {
        let key = (text(of, "apiVersion"), text(of, "kind"));
        if resources.contains_key(&key) || unserved.contains(&key) {
            continue;
        }
        let (group, version) = key.0.rsplit_once('/').unwrap_or(("", &key.0));
        let gvk = GroupVersionKind::gvk(group, version, &key.1);
        let doing = format!("find {} of {}", key.1, key.0);
        match hub.call(&doing, discovery::pinned_kind(&hub.client, &gvk)).await {
            Ok((resource, _)) => {
                resources.insert(key, resource);
            }
            Err(error) if is_absent(&error) => {
                let same = |other: &&Value| (text(other, "apiVersion"), text(other, "kind")) == key;
                problems.extend(references.iter().filter(same).map(|of| {
                    let place = of["namespace"].as_str().map_or(String::new(), |n| format!("{n}/"));
                    let (kind, name) = (&key.1, text(of, "name"));
                    format!("{kind} {place}{name}: the hub serves no {kind} of {} any more", key.0)
                }));
                unserved.insert(key);
            }
            Err(error) => return Err(error),
        }
    }
    let served = references.iter().filter_map(|of| {
        let key = (text(of, "apiVersion"), text(of, "kind"));
        resources.get(&key).map(|resource| (of, resource))
    });
    let found = futures::stream::iter(served).map(async |(of, resource)| {
        let (namespace, name) = (of["namespace"].as_str(), text(of, "name"));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(hub.client.clone(), namespace, resource),
            None => Api::all_with(hub.client.clone(), resource),
        };
        let place = namespace.map_or(String::new(), |namespace| format!("{namespace}/"));
        let doing = format!("get {} {place}{name}", resource.kind);
        let object = hub.call(&doing, api.get_opt(&name)).await?;
        anyhow::Ok(object.map(|mut object| {
            object.types.get_or_insert_with(|| kube::api::TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            });
            value(&object)
        }))
    });
    let found: Vec<Option<Value>> = found.buffered(AT_ONCE).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// Whether the hub does not have the requested object or kind.
fn is_absent(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404)
        || matches!(error.downcast_ref(), Some(kube::Error::Discovery(_)))
}

/// The row of a workload on the member; `None` for any other workload.
fn row<'a>(answer: &'a Answer, world: &World, member: &str) -> Option<Row<'a>> {
    let object = answer.object.to_string();
    let binding = world.bindings.get(&answer.object.binding());
    let holds = binding.is_none_or(|binding| {
        let status = binding.status.clone().unwrap_or_default();
        !takes_no_room(&binding.spec, &status, member)
    });
    let decision = match &answer.fate {
        Fate::Decided(decision) => decision,
        Fate::Unusable(why) => {
            return Some(Row {
                object,
                decision: None,
                moves: Vec::new(),
                stays: Some(why.clone()),
                holds,
            });
        }
        Fate::NotClaimed(_) => return None,
    };
    let on = |shares: &[TargetCluster]| {
        shares.iter().find(|share| share.name == member).map(|share| share.replicas)
    };
    on(decision.before())?;
    let mut moves: Vec<(String, i64)> = decision
        .moves()
        .iter()
        .filter(|step| step.from == member)
        .map(|step| (step.to.to_string(), step.count))
        .collect();
    let left = on(decision.clusters());
    if left.is_none() && moves.is_empty() {
        // Without replicas, or duplicated everywhere: new members take its place.
        let before = |name: &str| decision.before().iter().any(|share| share.name == name);
        let new = decision.clusters().iter().filter(|share| !before(&share.name));
        moves = new.map(|share| (share.name.clone(), share.replicas)).collect();
    }
    let leaving = decision.evictions().iter().filter(|task| task.from_cluster == member);
    let waiting: i64 = leaving.map(|task| task.unplaced).sum();
    let ended = binding.is_some_and(|binding| {
        let status = binding.status.clone().unwrap_or_default();
        is_ended_job(&binding.spec, &status, member)
    });
    let stays = match left {
        Some(_) if ended => Some("the Job has ended; a copy elsewhere would run again".to_owned()),
        Some(_) => Some(why(decision)),
        None if waiting > 0 => {
            let replicas = print::counted(waiting, "replica has", "replicas have");
            Some(format!("{replicas} no other place: {}", why(decision)))
        }
        None => None,
    };
    Some(Row { object, decision: Some(decision), moves, stays, holds })
}

/// Why a workload stays.
fn why(decision: &Decision) -> String {
    if !decision.reason.is_empty() {
        return decision.reason.clone();
    }
    let forbidden = decision.triggers.iter().find(|check| check.holds && !check.allowed);
    if let Some(check) = forbidden {
        return format!("its policy does not allow {}: {}", check.trigger, check.why);
    }
    let note = decision.notes.first().cloned();
    note.unwrap_or_else(|| "its policy tolerates the taint".to_owned())
}

fn cells(row: &Row<'_>) -> Vec<Text> {
    let replicas = row.decision.is_some_and(|decision| decision.desired.is_some());
    let moves = row.moves.iter().map(|(to, count)| match replicas {
        true => format!("{to}: {count}"),
        false => to.clone(),
    });
    let moves: Vec<String> = moves.collect();
    let moves = if moves.is_empty() { "-".to_owned() } else { moves.join("\n") };
    let stays = match &row.stays {
        Some(why) if row.holds => Text::toned(why, Tone::Warn),
        Some(why) => Text::from(format!("(does not block the drain) {why}")),
        None => Text::from(""),
    };
    vec![Text::from(&row.object), Text::from(moves), stays]
}

fn item(row: &Row<'_>) -> Value {
    let moves = row.moves.iter().map(|(to, replicas)| json!({"to": to, "replicas": replicas}));
    json!({
        "object": row.object,
        "moves": moves.collect::<Vec<_>>(),
        "stays": row.stays,
        "holds": row.stays.is_some() && row.holds,
        "decision": row.decision,
    })
}
