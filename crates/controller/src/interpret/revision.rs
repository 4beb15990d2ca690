//! Objects with other numbers of replicas, as the rules of users write them.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_customize::{Request, Response};
use serde_json::Value;

use super::{Interpreter, RuleFailed};
use crate::index::rules::Rules;

/// The answers of a rule for several numbers of replicas.
#[derive(Debug, Default)]
pub(crate) struct Revised {
    /// The object with each number; `None` if the rule failed. A number is missing if too many rules wait.
    pub(crate) objects: BTreeMap<i64, Option<Arc<Value>>>,
    /// The last failure.
    pub(crate) failed: Option<RuleFailed>,
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
            if answer.is_busy {
                continue;
            }
            let object = match answer.response {
                Some(Response::Object(object)) => Some(Arc::new(object)),
                _ => None,
            };
            revised.objects.insert(replicas, object);
            revised.failed = answer.failed.or(revised.failed);
        }
        revised
    }
}
