//! The rules of customizations that agents use: retained fields, health, and the reported part of the status. Every agent
//! gets the same list; a text is sent once in a session.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use atoll_api::customization::{
    CustomizationRules, CustomizationTarget, Operation, ResourceInterpreterCustomizationSpec,
};
use atoll_api::hex;
use atoll_protocol::transport::{MAX_CUSTOMIZATIONS, MAX_RULE_TEXT, MAX_RULE_TEXTS};
use atoll_protocol::v1;
use atoll_protocol::v1::controller_message::Message;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

/// Prefix of the entries of kinds that webhooks read: no customization has such a name.
const READ_BY_WEBHOOKS: &str = "webhooks:";

/// A customization with rules that concern agents, or a kind whose health or status webhooks read.
#[derive(Debug, Clone, PartialEq)]
struct AgentCustomization {
    name: String,
    target: CustomizationTarget,
    /// Hash of the whole spec, by which the rest of the controller knows it.
    spec_hash: Arc<str>,
    /// Hash of `text`.
    hash: Arc<str>,
    /// What agents get of the spec, as JSON; `None` if all texts together would be too large.
    text: Option<Bytes>,
}

/// All customizations with rules that concern agents, and the kinds that webhooks read, in order of names.
#[derive(Debug, Default, PartialEq)]
pub struct AgentCustomizations(Vec<AgentCustomization>);

impl AgentCustomizations {
    /// From names, specs and hashes of the specs. Invalid ones are left out: their status says why. What did not change
    /// since `before` is taken from there. `read` are API versions and kinds whose health or status webhooks read: agents
    /// get no text for them, so they report statuses as they are.
    pub fn of<'a>(
        before: &Self,
        all: impl Iterator<
            Item = (&'a str, &'a Arc<ResourceInterpreterCustomizationSpec>, &'a Arc<str>),
        >,
        read: BTreeSet<(String, String)>,
    ) -> Self {
        let mut found = Vec::new();
        let mut room = MAX_RULE_TEXTS;
        for (name, spec, spec_hash) in all {
            let known = before.get(name).filter(|entry| entry.spec_hash == *spec_hash);
            let known = known.and_then(|entry| Some((entry.text.clone()?, entry.hash.clone())));
            let made = || {
                let text = for_agents(spec)?;
                let hash = hex::encode(&Sha256::digest(&text));
                Some((Bytes::from(text), Arc::from(hash)))
            };
            let Some((text, hash)) = known.or_else(made) else { continue };
            if found.len() >= MAX_CUSTOMIZATIONS {
                tracing::warn!(
                    customization = name,
                    "agents get at most {MAX_CUSTOMIZATIONS} customizations: this one is not sent"
                );
                continue;
            }
            let fits = text.len() <= MAX_RULE_TEXT && text.len() <= room;
            if fits {
                room -= text.len();
            } else {
                tracing::warn!(
                    customization = name,
                    "agents get at most {MAX_RULE_TEXTS} bytes of rules: these are not sent, and agents report raw statuses"
                );
            }
            found.push(AgentCustomization {
                name: name.to_owned(),
                target: spec.target.clone(),
                spec_hash: Arc::clone(spec_hash),
                hash,
                text: fits.then_some(text),
            });
        }
        for (api_version, kind) in read {
            let name = format!("{READ_BY_WEBHOOKS}{api_version}/{kind}");
            if found.len() >= MAX_CUSTOMIZATIONS {
                tracing::warn!(
                    kind = name,
                    "agents get at most {MAX_CUSTOMIZATIONS} customizations and kinds: webhooks do not get its whole status"
                );
                continue;
            }
            let hash: Arc<str> = hex::encode(&Sha256::digest(&name)).into();
            let target = CustomizationTarget { api_version, kind };
            found.push(AgentCustomization {
                name,
                target,
                spec_hash: hash.clone(),
                hash,
                text: None,
            });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Self(found)
    }

    /// Hash of the spec of a customization that agents know under this hash; `None` if it has changed since.
    pub(super) fn spec_hash(&self, name: &str, hash: &str) -> Option<&Arc<str>> {
        self.get(name).filter(|entry| *entry.hash == *hash).map(|entry| &entry.spec_hash)
    }

    fn get(&self, name: &str) -> Option<&AgentCustomization> {
        let at = self.0.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok()?;
        self.0.get(at)
    }

    /// Names and hashes of the specs.
    #[cfg(test)]
    pub(crate) fn names(&self) -> Vec<(String, Arc<str>)> {
        self.0.iter().map(|entry| (entry.name.clone(), entry.spec_hash.clone())).collect()
    }

    fn list(&self) -> v1::Customizations {
        let entries = self.0.iter().map(|entry| v1::Customization {
            name: entry.name.clone(),
            hash: entry.hash.to_string(),
            api_version: entry.target.api_version.clone(),
            kind: entry.target.kind.clone(),
        });
        v1::Customizations { entries: entries.collect() }
    }
}

/// What agents get of a spec, as JSON; `None` if it has nothing for them or is invalid.
fn for_agents(spec: &ResourceInterpreterCustomizationSpec) -> Option<Vec<u8>> {
    let rules = &spec.customizations;
    let of_agents = [Operation::Retain, Operation::InterpretStatus, Operation::InterpretHealth];
    if of_agents.iter().all(|operation| rules.rule(*operation).is_none())
        || !spec.problems().is_empty()
    {
        return None;
    }
    let reduced = ResourceInterpreterCustomizationSpec {
        target: spec.target.clone(),
        customizations: CustomizationRules {
            retention: rules.retention.clone(),
            status_reflection: rules.status_reflection.clone(),
            health_interpretation: rules.health_interpretation.clone(),
            ..CustomizationRules::default()
        },
    };
    // Texts and lists of texts: they are always valid JSON.
    serde_json::to_vec(&reduced).ok()
}

/// One session's part of it: what the agent has, and what it gets next.
pub(super) struct CustomizationSender {
    newest: watch::Receiver<Arc<AgentCustomizations>>,
    /// Hashes of the texts that the agent has.
    sent: BTreeSet<Arc<str>>,
    /// The agent has a list that is not empty.
    listed: bool,
    queued: VecDeque<Queued>,
}

enum Queued {
    Text(Arc<str>, Bytes),
    List(Arc<AgentCustomizations>),
}

impl CustomizationSender {
    pub(super) fn new(mut newest: watch::Receiver<Arc<AgentCustomizations>>) -> Self {
        newest.mark_changed();
        Self { newest, sent: BTreeSet::new(), listed: false, queued: VecDeque::new() }
    }

    /// The next message about customizations, if there is one.
    pub(super) fn next(&mut self) -> Option<(Message, &'static str)> {
        if self.newest.has_changed().unwrap_or(false) {
            let newest = Arc::clone(&self.newest.borrow_and_update());
            self.queue(newest);
        }
        Some(match self.queued.pop_front()? {
            Queued::Text(hash, text) => {
                let message = v1::RuleText { hash: hash.to_string(), spec_json: text };
                self.sent.insert(hash);
                (Message::RuleText(message), "rule_text")
            }
            Queued::List(list) => {
                // The agent drops the other texts.
                self.sent.retain(|hash| list.0.iter().any(|entry| entry.hash == *hash));
                self.listed = !list.0.is_empty();
                (Message::Customizations(list.list()), "customizations")
            }
        })
    }

    fn queue(&mut self, newest: Arc<AgentCustomizations>) {
        self.queued.clear();
        if newest.0.is_empty() && !self.listed && self.sent.is_empty() {
            return;
        }
        let mut hashes = self.sent.clone();
        for entry in &newest.0 {
            if let Some(text) = &entry.text
                && hashes.insert(Arc::clone(&entry.hash))
            {
                self.queued.push_back(Queued::Text(Arc::clone(&entry.hash), text.clone()));
            }
        }
        self.queued.push_back(Queued::List(newest));
    }

    /// Waits for a change.
    pub(super) async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        let changed = self.newest.changed().await;
        if changed.is_ok() {
            self.newest.mark_changed();
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(rules: &Value) -> Arc<ResourceInterpreterCustomizationSpec> {
        let spec = json!({"target": {"apiVersion": "a/v1", "kind": "A"}, "customizations": rules});
        Arc::new(serde_json::from_value(spec).unwrap())
    }

    fn all(
        specs: &[(&str, Arc<ResourceInterpreterCustomizationSpec>)],
    ) -> Arc<AgentCustomizations> {
        let hash: Arc<str> = "of the spec".into();
        let specs = specs.iter().map(|(name, spec)| (*name, spec, &hash));
        Arc::new(AgentCustomizations::of(&AgentCustomizations::default(), specs, BTreeSet::new()))
    }

    fn health(text: &str) -> Value {
        json!({"healthInterpretation": {"cel": text}})
    }

    /// What is sent: `text HASH`, or the names with their hashes.
    fn sent(sender: &mut CustomizationSender) -> Vec<String> {
        let short = |hash: &str| hash[..6].to_owned();
        std::iter::from_fn(|| sender.next())
            .map(|(message, _)| match message {
                Message::RuleText(text) => format!("text {}", short(&text.hash)),
                Message::Customizations(list) => {
                    let entries = list.entries.iter();
                    entries.map(|entry| format!("{}={} ", entry.name, short(&entry.hash))).collect()
                }
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn hash(all: &AgentCustomizations, at: usize) -> String {
        all.0[at].hash[..6].to_owned()
    }

    #[test]
    fn agents_get_only_what_concerns_them_and_each_text_once() {
        let replicas =
            json!({"replicaResource": {"cel": "1"}, "healthInterpretation": {"cel": "a"}});
        let one =
            all(&[("a", spec(&replicas)), ("b", spec(&json!({"replicaResource": {"cel": "1"}})))]);
        let newest = watch::Sender::new(Arc::clone(&one));
        let mut sender = CustomizationSender::new(newest.subscribe());
        let a = hash(&one, 0);
        assert_eq!(sent(&mut sender), [format!("text {a}"), format!("a={a} ")]);
        let text = String::from_utf8(one.0[0].text.clone().unwrap().to_vec()).unwrap();
        assert!(!text.contains("replicaResource"), "{text}");
        assert_eq!(one.spec_hash("a", &one.0[0].hash).map(|hash| &**hash), Some("of the spec"));
        assert_eq!(one.spec_hash("a", "other"), None);

        // The same text under another name is not sent again; a new one is.
        let two = all(&[("a", spec(&health("b"))), ("c", spec(&health("a")))]);
        newest.send_replace(Arc::clone(&two));
        let b = hash(&two, 0);
        assert_eq!(sent(&mut sender), [format!("text {b}"), format!("a={b} c={a} ")]);
        // The agent forgets a text that the list lacks.
        newest.send_replace(Arc::default());
        assert_eq!(sent(&mut sender), [""]);
        newest.send_replace(one);
        assert_eq!(sent(&mut sender), [format!("text {a}"), format!("a={a} ")]);
    }

    #[test]
    fn of_kinds_that_webhooks_read_agents_get_the_name_only() {
        let rules = spec(&health("a"));
        let hash: Arc<str> = "of the spec".into();
        let read = BTreeSet::from([("a/v1".to_owned(), "A".to_owned())]);
        let none = AgentCustomizations::default();
        let all = AgentCustomizations::of(&none, [("z", &rules, &hash)].into_iter(), read);
        let newest = watch::Sender::new(Arc::new(all));
        let mut sender = CustomizationSender::new(newest.subscribe());
        let messages: Vec<_> = std::iter::from_fn(|| sender.next()).map(|(m, _)| m).collect();
        let [Message::RuleText(_), Message::Customizations(list)] = &messages[..] else {
            panic!("{messages:?}");
        };
        let entries: Vec<_> =
            list.entries.iter().map(|e| (&*e.name, &*e.api_version, &*e.kind)).collect();
        assert_eq!(entries, [("webhooks:a/v1/A", "a/v1", "A"), ("z", "a/v1", "A")]);
    }

    #[test]
    fn a_session_without_customizations_has_no_message_about_them() {
        let newest = watch::Sender::new(Arc::default());
        assert!(CustomizationSender::new(newest.subscribe()).next().is_none());
    }

    #[test]
    fn agents_get_a_bounded_number_of_bytes_and_entries_and_no_invalid_rule() {
        let script = |at: usize| {
            let text = format!("{at:09}{}", "-".repeat(9_000));
            spec(&json!({"healthInterpretation": {"luaScript": text}}))
        };
        let names: Vec<_> = (0..MAX_CUSTOMIZATIONS + 9).map(|at| format!("{at:09}")).collect();
        let specs: Vec<_> =
            names.iter().enumerate().map(|(at, name)| (name.as_str(), script(at))).collect();
        let found = all(&specs);
        let bytes: usize = found.0.iter().flat_map(|entry| &entry.text).map(Bytes::len).sum();
        assert_eq!(found.0.len(), MAX_CUSTOMIZATIONS);
        assert!(bytes <= MAX_RULE_TEXTS && bytes > MAX_RULE_TEXTS / 2, "{bytes}");
        assert_eq!(found.0.last().unwrap().text, None);
        let hash: Arc<str> = "of the spec".into();
        let again = specs.iter().map(|(name, spec)| (*name, spec, &hash));
        assert_eq!(AgentCustomizations::of(&found, again, BTreeSet::new()), *found);
        let invalid = spec(&json!({"healthInterpretation": {"cel": "true", "luaScript": "x"}}));
        let mut secrets = ResourceInterpreterCustomizationSpec::clone(&spec(&health("true")));
        secrets.target = CustomizationTarget { api_version: "v1".into(), kind: "Secret".into() };
        let none = all(&[("a", invalid), ("b", Arc::new(secrets))]);
        assert_eq!(*none, AgentCustomizations::default());
    }
}
