//! Events of a member, if the hub serves them.

use anyhow::Context;
use atoll_history::MemberEventKind;
use atoll_history::api::Kind;
use jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::Value;

use super::decisions::{escape, resource};
use crate::hub::Hub;

/// The newest events of a member, at most `limit`: of this kind, or of all but samples of its use. An embedded or aggregated API of an earlier version serves none.
///
/// # Errors
/// When the hub does not answer.
pub(crate) async fn list(
    hub: &Hub,
    member: &str,
    kind: Option<MemberEventKind>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    limit: usize,
) -> anyhow::Result<Vec<Value>> {
    let mut selectors = vec![format!("spec.cluster={}", escape(member))];
    selectors.extend(kind.map(|kind| format!("spec.event={kind}")));
    selectors.extend(since.map(|since| format!("since={since}")));
    selectors.extend(until.map(|until| format!("until={until}")));
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let params = ListParams::default().fields(&selectors.join(",")).limit(limit);
    let api: Api<DynamicObject> = Api::all_with(hub.client.clone(), &resource(Kind::MemberEvent));
    let doing = format!("list what happened to member {member}");
    match hub.call(&doing, api.list(&params)).await {
        Ok(page) => page
            .items
            .into_iter()
            .map(|object| serde_json::to_value(object).context("read an event of a member"))
            .collect(),
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn is_absent(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404)
}
