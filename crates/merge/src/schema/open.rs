//! The open parts of a kind: objects about whose content a schema says nothing.

use super::{Schema, Type};

impl Schema {
    /// Paths of the open parts: objects, below declared fields, whose content no type, rule or alternative schema reads. So
    /// neither defaults nor the validity of an object depend on it.
    #[must_use]
    pub fn open_objects(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        self.find_open(&mut Vec::new(), &mut found);
        found
    }

    fn find_open(&self, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        let node = self.node();
        // Rules and alternative schemas of an object may read everything below it.
        let reads = |checks: &super::Checks| {
            !(checks.all_of.is_empty() && checks.any_of.is_empty() && checks.one_of.is_empty())
                || checks.not.is_some()
                || !checks.allowed.is_empty()
        };
        if !node.rules.is_empty() || node.checks.as_deref().is_some_and(reads) {
            return;
        }
        if node.kind == Type::Object && self.is_open() {
            if !path.is_empty() && node.checks.is_none() {
                found.push(path.clone());
            }
            return;
        }
        for (name, property) in self.properties() {
            path.push(name.to_owned());
            property.find_open(path, found);
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_open_where_no_type_and_no_rule_reads_them() {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut limited = open.clone();
        limited["minProperties"] = 1.into();
        let schema = Schema::from_openapi(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "required": ["placement"], "properties": {
                "placement": open,
                "limited": limited,
                "list": {"type": "array", "items": open},
                "map": {"type": "object", "additionalProperties": open},
                "text": {"type": "string"},
                "ruled": {
                    "type": "object",
                    "properties": {"open": open},
                    "x-kubernetes-validations": [{"rule": "has(self.open)"}],
                },
                "either": {
                    "type": "object",
                    "properties": {"open": open},
                    "anyOf": [{"required": ["open"]}],
                },
            }},
            "status": open,
        }}))
        .unwrap();
        assert_eq!(schema.open_objects(), [vec!["spec", "placement"], vec!["status"]]);
    }
}
