//! Which representation of objects a client requests.

use http::HeaderMap;

use crate::error::ApiError;

/// The shape of objects in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// The object itself.
    #[default]
    Object,
    /// `meta.k8s.io/v1` Table, for display.
    Table,
    /// `meta.k8s.io/v1` PartialObjectMetadata(List).
    Metadata,
}

/// Answers to `Accept: application/json;g=apidiscovery.k8s.io;...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryShape {
    /// The documents before aggregated discovery.
    Legacy,
    /// In the requested version.
    Aggregated(&'static str),
}

struct MediaType<'a> {
    essence: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl MediaType<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    fn is_json(&self) -> bool {
        matches!(self.essence, "application/json" | "application/*" | "*/*")
    }
}

fn media_types(headers: &HeaderMap) -> Vec<MediaType<'_>> {
    headers
        .get_all(http::header::ACCEPT)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .filter_map(|part| {
            let mut pieces = part.split(';').map(str::trim);
            let essence = pieces.next().filter(|e| !e.is_empty())?;
            let parameters = pieces.filter_map(|p| p.split_once('=')).collect();
            Some(MediaType { essence, parameters })
        })
        .collect()
}

/// The first shape of the client's list that this server can write. Protobuf, YAML and CBOR are skipped.
///
/// # Errors
/// 406 if none is left.
pub fn shape(headers: &HeaderMap) -> Result<Shape, ApiError> {
    let types = media_types(headers);
    if types.is_empty() {
        return Ok(Shape::Object);
    }
    types
        .iter()
        .filter(|t| t.is_json())
        .find_map(|t| match (t.get("as"), t.get("g"), t.get("v")) {
            (None, ..) => Some(Shape::Object),
            (Some("Table"), Some("meta.k8s.io"), Some("v1")) => Some(Shape::Table),
            (
                Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
                Some("meta.k8s.io"),
                Some("v1"),
            ) => Some(Shape::Metadata),
            _ => None,
        })
        .ok_or_else(|| ApiError::not_acceptable("application/json"))
}

/// Whether the client accepts one of these media types.
pub fn names_one_of(headers: &HeaderMap, known: &[&str]) -> bool {
    media_types(headers).iter().any(|t| known.contains(&t.essence))
}

/// Which discovery document `/api` and `/apis` return.
pub fn discovery(headers: &HeaderMap) -> DiscoveryShape {
    for t in media_types(headers).iter().filter(|t| t.is_json()) {
        match (t.get("as"), t.get("g"), t.get("v")) {
            (None, ..) => return DiscoveryShape::Legacy,
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => {
                return DiscoveryShape::Aggregated("v2");
            }
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2beta1")) => {
                return DiscoveryShape::Aggregated("v2beta1");
            }
            _ => {}
        }
    }
    DiscoveryShape::Legacy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, accept.parse().unwrap());
        headers
    }

    #[test]
    fn the_first_writable_shape_wins() {
        let of = |accept: &str| shape(&headers(accept)).ok();
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(of(table), Some(Shape::Table));
        assert_eq!(
            of("application/vnd.kubernetes.protobuf, application/json"),
            Some(Shape::Object)
        );
        assert_eq!(
            of("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
            Some(Shape::Metadata)
        );
        assert_eq!(of("application/vnd.kubernetes.protobuf"), None);
        assert_eq!(of("*/*"), Some(Shape::Object));
        assert_eq!(shape(&HeaderMap::new()).ok(), Some(Shape::Object));
    }

    #[test]
    fn kubectl_gets_aggregated_discovery() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(discovery(&headers(kubectl)), DiscoveryShape::Aggregated("v2"));
        assert_eq!(discovery(&headers("application/json")), DiscoveryShape::Legacy);
    }
}
