//! The first placement of a template that runs already, under another federation.

use serde::{Deserialize, Serialize};

use crate::binding::TargetCluster;

/// Value of the annotation [`crate::marks::START`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Start {
    /// Clusters and replicas.
    pub clusters: Vec<TargetCluster>,
    /// The affinity term in force, of a policy with `clusterAffinities`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity_name: Option<String>,
}

/// Limit of the clusters: as many as a policy may name.
const MOST: usize = 1024;

impl Start {
    /// Reads the annotation and checks it against the replicas that the template asks for. `divided`: its replicas are
    /// divided among the clusters, as opposed to Duplicated.
    ///
    /// # Errors
    /// Names what is wrong, and the fix.
    pub fn read(text: &str, desired: Option<i64>, divided: bool) -> Result<Self, String> {
        let start: Self = serde_json::from_str(text)
            .map_err(|error| format!("not a placement as JSON ({error}); correct or remove it"))?;
        let clusters = &start.clusters;
        if clusters.is_empty() || clusters.len() > MOST {
            return Err(format!("clusters: give 1 to {MOST}"));
        }
        let mut names: Vec<&str> = clusters.iter().map(|target| target.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("clusters: {:?} is there twice", pair[0]));
        }
        if let Some(target) = clusters.iter().find(|target| target.replicas < 0) {
            return Err(format!("clusters: {:?} has {} replicas", target.name, target.replicas));
        }
        let desired = desired.unwrap_or_default();
        let total = clusters.iter().fold(0_i64, |sum, target| sum.saturating_add(target.replicas));
        if divided && total != desired {
            return Err(format!(
                "clusters: they have {total} replicas together, the template asks for {desired}"
            ));
        }
        if !divided && let Some(target) = clusters.iter().find(|target| target.replicas != desired)
        {
            return Err(format!(
                "clusters: {:?} has {} replicas, the template asks for {desired} on each",
                target.name, target.replicas
            ));
        }
        Ok(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_must_fit_the_template() {
        let divided = r#"{"clusters":[{"name":"a","replicas":2},{"name":"b","replicas":1}]}"#;
        let start = Start::read(divided, Some(3), true).unwrap();
        assert_eq!(start.clusters.len(), 2);
        let config = r#"{"clusters":[{"name":"a"}],"affinityName":"near"}"#;
        let start = Start::read(config, None, true).unwrap();
        assert_eq!(start.affinity_name.as_deref(), Some("near"));
        for (text, desired, is_divided, part) in [
            (divided, 4, true, "3 replicas together"),
            (divided, 2, false, "\"b\" has 1 replicas"),
            ("{", 1, true, "not a placement"),
            (r#"{"clusters":[]}"#, 0, true, "give 1 to"),
            (r#"{"clusters":[{"name":"a"},{"name":"a"}]}"#, 0, true, "twice"),
            (r#"{"clusters":[{"name":"a","replicas":-1}]}"#, -1, true, "-1 replicas"),
            (r#"{"clusters":[{"name":"a"}],"cluster":"a"}"#, 0, true, "not a placement"),
        ] {
            let why = Start::read(text, Some(desired), is_divided).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
