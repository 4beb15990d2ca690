//! Objects with other numbers of replicas, as the rules of users write them.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_customize::{Request, Response};
use serde_json::Value;

use super::{Interpreter, RuleNews};
use crate::index::rules::Rules;

/// The answers of a rule for several numbers of replicas.
#[derive(Debug, Default)]
pub(crate) struct Revised {
    /// The object with each number; `None` if the rule failed. A number is missing if too many rules wait, or if a webhook
    /// did not answer.
    pub(crate) objects: BTreeMap<i64, Option<Arc<Value>>>,
    /// What is to be shown of the rule.
    pub(crate) news: Vec<RuleNews>,
    /// A webhook did not answer.
    pub(crate) unreachable: bool,
}

impl Interpreter {
    /// Asks the rule that writes replicas into an object.
    pub(crate) async fn revise(
        &self,
        rules: &Rules,
        object: &Arc<Value>,
        numbers: impl IntoIterator<Item = i64>,
    ) -> Revised {
        let mut revised = Revised::default();
        for replicas in numbers {
            let request = Request::Revise { object: object.clone(), replicas };
            let answer = self.ask(rules, request).await;
            revised.news.extend(answer.news);
            if answer.unreachable {
                revised.unreachable = true;
                break; // the other numbers would wait for the same time limit
            }
            if answer.is_busy {
                continue;
            }
            let object = match answer.response {
                Some(Response::Object(object)) => Some(Arc::new(object)),
                _ => None,
            };
            revised.objects.insert(replicas, object);
        }
        revised
    }
}
