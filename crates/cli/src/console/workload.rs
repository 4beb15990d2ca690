//! The pages Overview and of a workload.

use std::time::Duration;

use atoll_api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use atoll_api::{ClusterResourceBinding, ResourceBinding, names};
use atoll_console::Fault;
use atoll_console::data::{
    Lane, Mark, Overview, Paged, ROWS, Span, Timeline, Tone, Workload, WorkloadId,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use serde_json::Value;

use super::{Reader, checked, fault, index, missing, rows};
use crate::hub::Hub;
use crate::leader;
use crate::print::causes;
use crate::read::decisions::{self, Fields, Of};
use crate::read::timeline::spans;
use crate::read::{explain, item, work, workload};
use crate::status::concern;

/// Decisions on the overview.
const RECENT: usize = 15;
/// How far back they go.
const HOUR: Duration = Duration::from_secs(3600);
/// Decisions in the timeline of a workload.
const TIMELINE: usize = 300;
/// Decisions in the table of a workload.
const LISTED: usize = 20;

impl Reader {
    /// Whose decisions are listed, without a filter.
    pub(super) fn everything(&self) -> Of {
        self.only.clone().map_or(Of::Everything, Of::Namespace)
    }

    pub(super) async fn read_overview(
        &self,
        members: usize,
        concerns: usize,
    ) -> Result<Overview, Fault> {
        let now = Timestamp::now();
        let since = now.checked_sub(HOUR).unwrap_or(now);
        let of = self.everything();
        let fields: Fields = vec![("since", since.to_string())];
        let (overview, recent, leader, held) = tokio::join!(
            self.fleet.ask(move |index| index.overview(members, concerns, now)),
            decisions::list(&self.hub, &of, &fields, RECENT),
            leader::find(&self.hub),
            self.held(now),
        );
        let mut overview = overview?;
        match held {
            Ok(held) => {
                overview.more_held = held.len().saturating_sub(ROWS);
                overview.held = held.into_iter().take(ROWS).collect();
            }
            Err(error) => {
                overview.notes.push(format!("plans of guards are not shown: {}", causes(&error)));
            }
        }
        match recent {
            Ok(found) => {
                overview.recent =
                    found.items.iter().map(|item| rows::decision(item, now)).collect();
            }
            Err(error) => {
                overview.notes.push(format!("decisions are not shown: {}", causes(&error)));
            }
        }
        match leader {
            Ok(leader) => {
                overview.leader = leader
                    .filter(|leader| leader.leads(now))
                    .map(|leader| format!("{}, term {}", leader.holder, leader.term));
            }
            Err(error) => {
                overview.notes.push(format!("the leader is not shown: {}", causes(&error)));
                overview.leader = Some("unknown".to_owned());
            }
        }
        Ok(overview)
    }

    /// The binding of a workload.
    pub(super) async fn binding(
        &self,
        of: &WorkloadId,
    ) -> anyhow::Result<Option<(ObjectMeta, ResourceBindingSpec, Option<ResourceBindingStatus>)>>
    {
        let name = names::binding_name(&of.name, &of.kind, &of.group);
        let doing = format!("get the binding {name} of {of}");
        let client = self.hub.client.clone();
        Ok(match &of.namespace {
            Some(namespace) => {
                let api: Api<ResourceBinding> = Api::namespaced(client, namespace);
                let found = self.hub.call(&doing, api.get_opt(&name)).await?;
                found.map(|binding| (binding.metadata, binding.spec, binding.status))
            }
            None => {
                let api: Api<ClusterResourceBinding> = Api::all(client);
                let found = self.hub.call(&doing, api.get_opt(&name)).await?;
                found.map(|binding| (binding.metadata, binding.spec, binding.status))
            }
        })
    }

    /// A workload as the verbs know it.
    pub(super) async fn resolved(
        &self,
        of: &WorkloadId,
    ) -> Result<(Hub, workload::Workload), Fault> {
        checked(of)?;
        let hub = self.within(of.namespace.as_deref());
        let resolved = workload::resolve(&hub, &[of.type_(), of.name.clone()]).await;
        Ok((hub, resolved.map_err(missing)?))
    }

    pub(super) async fn read_workload(
        &self,
        of: &WorkloadId,
        shares: usize,
        verdicts: usize,
    ) -> Result<Workload, Fault> {
        let now = Timestamp::now();
        let (hub, resolved) = self.resolved(of).await?;
        let subject = Of::Workload(resolved);
        let fields = Fields::new();
        let (binding, found) =
            tokio::join!(self.binding(of), decisions::list(&hub, &subject, &fields, TIMELINE),);
        let mut page = Workload { id: of.clone(), ..Workload::default() };
        let bound = binding.map_err(fault)?;
        let exists = bound.is_some();
        if let Some((metadata, spec, status)) = bound {
            bind(&mut page, &metadata, &spec, status.as_ref(), shares, now);
        }
        match found {
            Ok(found) if found.items.is_empty() && !exists => {
                return Err(Fault::NotFound(format!(
                    "nothing was ever decided about {of}: is the name right, and does a policy select it?"
                )));
            }
            Ok(found) => decided(&mut page, &found, now),
            Err(error) => {
                page.notes.push(format!("its decisions are not shown: {}", causes(&error)));
            }
        }
        if !page.decisions.is_empty() {
            weigh(&hub, &subject, &mut page, verdicts, now).await;
        }
        Ok(page)
    }
}

fn bind(
    page: &mut Workload,
    metadata: &ObjectMeta,
    spec: &ResourceBindingSpec,
    status: Option<&ResourceBindingStatus>,
    shares: usize,
    now: Timestamp,
) {
    page.id = index::id(spec);
    page.policy = index::policy(metadata);
    page.replicas = spec.replicas;
    let all = work::of(metadata.name.as_deref().unwrap_or_default(), spec, status);
    page.shares = Paged::of(&all, shares, ROWS, |work| rows::share(work, None));
    page.concerns =
        concern::of_binding(spec, status).iter().map(|c| rows::concern(c, None, now)).collect();
    if let Some(status) = status {
        page.conditions = rows::conditions(&status.conditions, now);
        if status.truncated {
            page.notes.push("The hub keeps the reports of 100 members, unhealthy ones first; further members are shown as unknown.".to_owned());
        }
    }
}

fn decided(page: &mut Workload, found: &decisions::Decisions, now: Timestamp) {
    page.decisions =
        found.items.iter().take(LISTED).map(|item| rows::decision(item, now)).collect();
    if !found.items.is_empty() {
        let mut timeline = spans::Timeline::new(String::new(), &found.items, None, None, now);
        timeline.truncated = found.more;
        page.timeline = Some(drawn(&timeline, &page.id));
    }
}

/// The verdicts of the last decision that has some.
async fn weigh(hub: &Hub, of: &Of, page: &mut Workload, verdicts: usize, now: Timestamp) {
    let (object, later) = match explain::newest(hub, of).await {
        Ok(found) => found,
        Err(error) => {
            page.notes.push(format!("the verdicts on clusters are not shown: {}", causes(&error)));
            return;
        }
    };
    page.notes.extend(later);
    page.decision = Some(rows::decision(&object, now));
    match explain::detail(&object) {
        Ok(Ok(decision)) => page.verdicts = rows::verdicts(&decision, verdicts),
        Ok(Err(why)) => page.notes.push(why),
        Err(error) => page.notes.push(causes(&error)),
    }
}

fn drawn(timeline: &spans::Timeline, of: &WorkloadId) -> Timeline {
    let span =
        |span: &spans::Span| Span { from: span.from, until: span.until, replicas: span.replicas };
    let lane = |member: &spans::Member| Lane {
        member: member.name.clone(),
        spans: member.spans.iter().map(span).collect(),
    };
    let mark = |mark: &spans::Mark| Mark {
        at: mark.at,
        path: Some(atoll_console::data::decision_path(of.namespace.as_deref(), &mark.id)),
        label: format!("{}, {}: {}", mark.trigger, mark.outcome, mark.reason),
        tone: match mark.unreadable {
            true => Tone::Bad,
            false => rows::tone(item::tone(&mark.outcome)),
        },
    };
    Timeline {
        from: timeline.from,
        until: timeline.until,
        lanes: timeline.members.iter().map(lane).collect(),
        marks: timeline.decisions.iter().map(mark).collect(),
        truncated: timeline.truncated,
    }
}

/// A text of an object's field.
pub(super) fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
