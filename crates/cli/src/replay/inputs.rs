//! Reads inputs from the hub: whole ones once, then differences.

use anyhow::Context;
use atoll_history::api::{self, Kind};
use atoll_history::inputs::State;
use kube::api::{Api, DynamicObject};

use crate::hub::Hub;
use crate::read::decisions::resource;

/// The inputs of one decision after another.
pub(super) struct Inputs<'a> {
    hub: &'a Hub,
    api: Api<DynamicObject>,
    state: State,
    /// The decision whose inputs the state has.
    of: Option<String>,
}

impl<'a> Inputs<'a> {
    pub(super) fn new(hub: &'a Hub) -> Self {
        let api = Api::all_with(hub.client.clone(), &resource(Kind::DecisionInput));
        Self { hub, api, state: State::default(), of: None }
    }

    /// The inputs of a decision, or why they are missing.
    ///
    /// # Errors
    /// When the hub does not answer or refuses.
    pub(super) async fn of(&mut self, id: &str) -> anyhow::Result<Result<&State, String>> {
        let name = match self.of.take() {
            Some(earlier) if earlier != id => format!("{id}.{earlier}"),
            _ => id.to_owned(),
        };
        let doing = format!("get the inputs of decision {id}");
        let object = self.hub.call(&doing, self.api.get(&name)).await?;
        let object = serde_json::to_value(object).context("read inputs")?;
        let links = match api::inputs::read(&object) {
            Ok(links) => links,
            Err(why) => return Ok(Err(why)),
        };
        for link in links {
            if let Err(error) = self.state.apply(&link.frame) {
                return Ok(Err(format!(
                    "those of decision {} cannot be read: {error}",
                    link.decision
                )));
            }
        }
        self.of = Some(id.to_owned());
        Ok(Ok(&self.state))
    }
}
