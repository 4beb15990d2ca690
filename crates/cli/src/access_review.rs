//! Asks the hub whether a user may do something (SubjectAccessReview).

use std::time::Duration;

use atoll_apimachinery::ApiError;
use atoll_apimachinery::gate::Attributes;
use atoll_apimachinery::identity::Identity;
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

/// Limit of the wait for the hub's answer.
pub(crate) const HUB_TIMEOUT: Duration = Duration::from_secs(5);

/// The hub's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Allowed,
    /// With the hub's reason, which may be empty.
    Denied(String),
}

/// Asks the hub.
///
/// # Errors
/// When the hub does not answer.
pub(crate) async fn review(
    hub: &Client,
    identity: &Identity,
    wanted: &Attributes,
) -> Result<Decision, ApiError> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(identity.user.clone()),
            uid: Some(identity.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(identity.groups.clone()),
            extra: Some(identity.extra.clone()),
            ..spec(wanted)
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(hub.clone());
    let params = PostParams::default();
    let asked = tokio::time::timeout(HUB_TIMEOUT, reviews.create(&params, &review)).await;
    let status = match asked {
        Ok(Ok(answer)) => answer.status.unwrap_or_default(),
        Ok(Err(error)) => {
            tracing::warn!(%error, "the hub did not answer a SubjectAccessReview");
            return Err(ApiError::unavailable("the hub cannot authorize this request now"));
        }
        Err(_) => {
            tracing::warn!("the hub did not answer a SubjectAccessReview in time");
            return Err(ApiError::unavailable("the hub did not authorize this request in time"));
        }
    };
    Ok(match status.allowed && status.denied != Some(true) {
        true => Decision::Allowed,
        false => Decision::Denied(status.reason.unwrap_or_default()),
    })
}

fn spec(wanted: &Attributes) -> SubjectAccessReviewSpec {
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    match &wanted.resource {
        Some(resource) => SubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: some(&wanted.verb),
                group: some(&resource.group),
                version: some(&resource.version),
                resource: some(&resource.resource),
                subresource: some(&resource.subresource),
                namespace: some(&resource.namespace),
                name: some(&resource.name),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        None => SubjectAccessReviewSpec {
            non_resource_attributes: Some(NonResourceAttributes {
                verb: some(&wanted.verb),
                path: some(&wanted.path),
            }),
            ..SubjectAccessReviewSpec::default()
        },
    }
}
