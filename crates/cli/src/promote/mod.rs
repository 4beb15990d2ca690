//! `atoll promote`: takes objects that a member has already to the hub, with policies that keep them where they are.

mod checks;
mod others;
mod template;

use anyhow::{Context, bail, ensure};
use atoll_api::ClusterName;
use clap::Args;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use self::others::Others;
use crate::args::{Format, HubFlags};
use crate::hub::Hub;
use crate::join::MANAGER;
use crate::logs::is_name;
use crate::print::{self, Printer, note};
use crate::reach::{self, Member};
use crate::read::fleet::{self, Collection};
use crate::read::workload::{self, Kind, Workload};

/// What `--all` promotes.
const ALL: [&str; 4] =
    ["deployments.apps", "statefulsets.apps", "daemonsets.apps", "cronjobs.batch"];

#[derive(Debug, Args)]
pub(crate) struct PromoteArgs {
    /// TYPE/NAME or TYPE NAME, for example deploy/web
    #[arg(num_args = 1..=2, required_unless_present = "all", conflicts_with = "all", value_name = "WORKLOAD")]
    workload: Vec<String>,
    /// All Deployments, StatefulSets, DaemonSets and CronJobs of the namespace, which --namespace names
    #[arg(long)]
    all: bool,
    /// The member that has it
    #[arg(long = "from", value_name = "MEMBER")]
    from: String,
    /// Only print what would be created, as YAML; the hub checks it but stores nothing
    #[arg(long)]
    dry_run: bool,
}

/// What is created on the hub for one object.
struct Promotion {
    workload: Workload,
    template: Value,
    policy: Value,
}

pub(crate) async fn run(flags: &HubFlags, args: PromoteArgs, out: &Printer) -> anyhow::Result<()> {
    ensure!(
        !args.all || flags.namespace.is_some(),
        "--all promotes everything of one namespace: name it with --namespace"
    );
    let hub = Hub::find(flags).await?;
    let from = [args.from.clone()];
    let members = reach::members(&hub, &from).await?;
    let member = members.first().context("the member is missing")?;
    let has_namespace = checks::namespace(&hub, &ClusterName::from(args.from.as_str())).await?;
    let promotions = match args.all {
        true => all(&hub, member).await?,
        false => vec![one(&hub, member, &args.workload).await?],
    };
    if promotions.is_empty() {
        return out.line(format!(
            "{} has nothing in namespace {} that can be promoted.",
            args.from, hub.namespace
        ));
    }
    if has_namespace {
        for promotion in &promotions {
            promotion.create(&hub, true).await?;
        }
    }
    match Others::read(&hub, &args.from).await {
        Ok(others) => promotions.iter().flat_map(|one| others.warnings(one)).for_each(note),
        Err(error) => {
            note(format!("whether other policies affect the objects is unknown: {error:#}"))
        }
    }
    if args.dry_run {
        return print(&hub, &promotions, has_namespace, out);
    }
    if !has_namespace {
        create(&hub, &resource("", "v1", "Namespace"), None, &namespace(&hub), false).await?;
    }
    for promotion in &promotions {
        promotion.create(&hub, false).await?;
        let (workload, policy) = (&promotion.workload, &promotion.policy["metadata"]["name"]);
        let policy = policy.as_str().unwrap_or_default();
        out.line(format!(
            "{workload} of {} is on the hub, with PropagationPolicy {policy}",
            args.from
        ))?;
    }
    Ok(())
}

/// An object of the member that the user named.
async fn one(hub: &Hub, member: &Member, words: &[String]) -> anyhow::Result<Promotion> {
    let workload = workload::resolve(hub, words).await?;
    checks::kind(&workload)?;
    let object = match member.get(&workload.path(), None).await {
        Ok(object) => object,
        Err(failure) if failure.is_not_found() => bail!("{} has no {workload}", member.name),
        Err(failure) => bail!("{}: {failure}", member.name),
    };
    checks::object(&workload, &object).map_err(|why| anyhow::anyhow!("{workload}: {why}"))?;
    if exists(hub, &workload).await? {
        bail!("the hub has {workload} already: a policy that selects it decides where it runs");
    }
    Promotion::of(workload, &object, member).await
}

/// The workloads of a namespace. Those that cannot be promoted are named.
async fn all(hub: &Hub, member: &Member) -> anyhow::Result<Vec<Promotion>> {
    let mut promotions = Vec::new();
    for type_ in ALL {
        let kind = workload::kind(hub, type_).await?;
        let path = kind.path(Some(&hub.namespace));
        let collection = Collection { path, ..Collection::default() };
        let answers = collection.of(std::slice::from_ref(member)).await;
        let pages = match answers.into_iter().next().map(|answer| answer.pages) {
            Some(Ok(pages)) => pages,
            Some(Err(failure)) => bail!("{}: {type_}: {failure}", member.name),
            None => bail!("{}: {type_}: no answer", member.name),
        };
        for item in pages.iter().flat_map(fleet::items) {
            let Some(name) = item["metadata"]["name"].as_str() else { continue };
            // It becomes part of the paths of requests to the hub.
            if !is_name(name) {
                let name = print::visible_line(name);
                note(format!(
                    "{name:?} of {} is left out: this is no name of an object",
                    member.name
                ));
                continue;
            }
            let workload = of(hub, &kind, name);
            let mut object = item.clone();
            if !object.is_object() {
                continue;
            }
            // Lists name the kind of their items once.
            object["apiVersion"] = kind.api_version().into();
            object["kind"] = kind.kind.clone().into();
            if let Err(why) = checks::object(&workload, &object) {
                note(format!("{workload} is left out: {why}"));
            } else if exists(hub, &workload).await? {
                note(format!("{workload} is left out: the hub has it already"));
            } else {
                promotions.push(Promotion::of(workload, &object, member).await?);
            }
        }
    }
    Ok(promotions)
}

fn of(hub: &Hub, kind: &Kind, name: &str) -> Workload {
    Workload {
        kind: kind.clone(),
        decisions_served: false,
        namespace: Some(hub.namespace.clone()),
        name: name.to_owned(),
    }
}

async fn exists(hub: &Hub, workload: &Workload) -> anyhow::Result<bool> {
    let resource = workload.kind.resource();
    let api: Api<DynamicObject> =
        Api::namespaced_with(hub.client.clone(), &hub.namespace, &resource);
    let found = hub.call(&format!("get {workload}"), api.get_opt(&workload.name)).await?;
    Ok(found.is_some())
}

impl Promotion {
    async fn of(workload: Workload, object: &Value, member: &Member) -> anyhow::Result<Self> {
        let mut template = template::of(object);
        let autoscaled = checks::is_autoscaled(member, &workload).await;
        let autoscaled = autoscaled.map_err(|failure| {
            anyhow::anyhow!(
                "{workload}: whether a HorizontalPodAutoscaler of {} sets its replicas is unknown ({failure}): allow \
                 `list` of horizontalpodautoscalers there and try again",
                member.name
            )
        })?;
        if autoscaled {
            note(format!(
                "{workload}: a HorizontalPodAutoscaler of {} sets its replicas, and goes on with it",
                member.name
            ));
            template["metadata"]["labels"][atoll_interpreter::RETAIN_REPLICAS] = "true".into();
        }
        let policy = template::policy(&workload, &member.name);
        Ok(Self { workload, template, policy })
    }

    /// Creates policy and object. The policy comes first: the object is never on the hub without what keeps it in its place.
    async fn create(&self, hub: &Hub, dry: bool) -> anyhow::Result<()> {
        let policies = resource("policy.atoll.dev", "v1alpha1", "PropagationPolicy");
        let namespace = Some(hub.namespace.as_str());
        let made = create(hub, &policies, namespace, &self.policy, dry).await?;
        let kind = self.workload.kind.resource();
        let Err(error) = create(hub, &kind, namespace, &self.template, dry).await else {
            return Ok(());
        };
        if !dry {
            let api: Api<DynamicObject> =
                Api::namespaced_with(hub.client.clone(), &hub.namespace, &policies);
            let preconditions = Preconditions { uid: made.metadata.uid, resource_version: None };
            let params =
                DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            let name = made.metadata.name.unwrap_or_default();
            let removed = hub.call("remove the policy again", api.delete(&name, &params)).await;
            if let Err(left) = removed {
                return Err(error.context(format!("PropagationPolicy {name} stayed ({left:#})")));
            }
        }
        Err(error)
    }
}

async fn create(
    hub: &Hub,
    resource: &ApiResource,
    namespace: Option<&str>,
    object: &Value,
    dry_run: bool,
) -> anyhow::Result<DynamicObject> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(hub.client.clone(), namespace, resource),
        None => Api::all_with(hub.client.clone(), resource),
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let doing = format!("create {} {name}", resource.kind);
    let object = serde_json::from_value(object.clone()).with_context(|| doing.clone())?;
    let params = PostParams { dry_run, field_manager: Some(MANAGER.to_owned()) };
    hub.call(&doing, api.create(&params, &object)).await
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn namespace(hub: &Hub) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": hub.namespace}})
}

fn print(
    hub: &Hub,
    promotions: &[Promotion],
    has_namespace: bool,
    out: &Printer,
) -> anyhow::Result<()> {
    let namespace = (!has_namespace).then(|| namespace(hub));
    if namespace.is_some() {
        note("the hub has not checked the objects: the namespace is not there yet");
    }
    let objects = promotions.iter().flat_map(|promotion| [&promotion.policy, &promotion.template]);
    for object in namespace.iter().chain(objects) {
        out.line("---")?;
        out.object(Format::Yaml, object)?;
    }
    Ok(())
}
