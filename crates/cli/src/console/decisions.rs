//! The pages Decisions, of one decision, and of the difference of two.

use atoll_api::binding::{Outcome, Trigger};
use atoll_api::text::variants;
use atoll_console::data::{
    DecisionFilter, DecisionPage, Decisions, DiffLine, DiffPage, Paged, ROWS,
};
use atoll_console::{Changes, Fault};
use atoll_decision::explain as texts;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::{Reader, fault, missing, named, rows};
use crate::hub::Hub;
use crate::print::causes;
use crate::read::decisions::{self, Fields, Of};
use crate::read::diff::{self, Diff};
use crate::read::item::{self, Item};
use crate::read::{explain, life, times};

/// Columns of a decision's text.
const WIDTH: usize = 110;

/// Triggers that are recorded.
fn triggers() -> Vec<String> {
    let mut triggers = variants::<Trigger>();
    triggers.retain(|name| *name != Trigger::Avoid.to_string());
    triggers
}

impl Reader {
    fn scope(&self, filter: &DecisionFilter) -> Result<Of, Fault> {
        match (&self.only, &filter.namespace) {
            (Some(only), Some(asked)) if only != asked => {
                Err(Fault::Forbidden(format!("this console was started for namespace {only}")))
            }
            (Some(only), _) => Ok(Of::Namespace(only.clone())),
            (None, Some(asked)) => Ok(Of::Namespace(named("a namespace", asked)?.to_owned())),
            (None, None) => Ok(Of::Everything),
        }
    }

    pub(super) async fn read_decisions(&self, filter: &DecisionFilter) -> Result<Decisions, Fault> {
        let now = Timestamp::now();
        let mut fields = selectors(filter);
        for (name, value) in [("since", &filter.since), ("until", &filter.until)] {
            if let Some(value) = value {
                let time = times::parse(value)
                    .map_err(|why| Fault::Invalid(format!("{name} {value:?}: {why}")))?;
                fields.push((name, time.to_string()));
            }
        }
        let of = self.scope(filter)?;
        let found = decisions::list(&self.hub, &of, &fields, ROWS).await.map_err(fault)?;
        let last = found.items.last().filter(|_| found.more);
        Ok(Decisions {
            rows: found.items.iter().map(|item| rows::decision(item, now)).collect(),
            older: last.map(|item| Item(item).text("at").to_owned()),
            triggers: triggers(),
            outcomes: variants::<Outcome>(),
        })
    }

    pub(super) async fn read_decision(
        &self,
        namespace: Option<&str>,
        id: &str,
        page: usize,
    ) -> Result<DecisionPage, Fault> {
        let id = item::id(id).map_err(Fault::NotFound)?;
        let of = match namespace {
            Some(namespace) => Of::Namespace(named("a namespace", namespace)?.to_owned()),
            None => self.everything(),
        };
        let object = decisions::find(&self.hub, &of, &id, "decision").await.map_err(missing)?;
        let mut found = DecisionPage {
            row: rows::decision(&object, Timestamp::now()),
            parent: object["spec"]["parent"].as_str().map(str::to_owned),
            verdicts: Paged::default(),
            made_from: diff::made_from(&object),
            followed: life::lines(&object),
            ..DecisionPage::default()
        };
        match explain::detail(&object) {
            Ok(Ok(decision)) => {
                found.text = texts::render(&decision, WIDTH);
                found.verdicts = rows::verdicts(&decision, page);
            }
            Ok(Err(why)) => found.text = why,
            Err(error) => found.text = causes(&error),
        }
        Ok(found)
    }

    pub(super) async fn read_diff(&self, from: &str, to: &str) -> Result<DiffPage, Fault> {
        let of = self.everything();
        let mut both = Vec::with_capacity(2);
        for id in [from, to] {
            let id = item::id(id).map_err(|why| Fault::Invalid(format!("{id:?}: {why}")))?;
            both.push(decisions::find(&self.hub, &of, &id, "decision").await.map_err(missing)?);
        }
        let diff = Diff::of(&both[0], &both[1]).map_err(fault)?;
        let now = Timestamp::now();
        let sections = [
            ("Decision", diff.fields),
            ("Shares", diff.shares),
            ("Made from", diff.sources),
            ("Verdicts", diff.verdicts),
            ("Room for more", diff.capacity),
            ("Scores", diff.scores),
        ];
        let line =
            |change: diff::Change| DiffLine { of: change.of, from: change.from, to: change.to };
        let section = |(title, changes): (&str, Vec<diff::Change>)| {
            (title.to_owned(), changes.into_iter().map(line).collect())
        };
        Ok(DiffPage {
            from: rows::decision(&both[0], now),
            to: rows::decision(&both[1], now),
            sections: sections.into_iter().map(section).collect(),
            unknown: diff.unknown,
        })
    }

    /// Says when a decision that the filter selects was recorded.
    pub(super) fn new_decisions(&self, filter: &DecisionFilter) -> Changes {
        let Ok(of) = self.scope(filter) else { return stream::empty().boxed() };
        let (said, heard) = mpsc::channel(1);
        let follow = follow(self.within(None), of, selectors(filter), said);
        let heard = stream::unfold(heard, |mut heard| async move {
            heard.recv().await?;
            Some(((), heard))
        });
        // The second stream has no items; it does the work, and ends with the first.
        stream::select(heard, stream::once(follow).filter_map(|()| async { None })).boxed()
    }
}

fn selectors(filter: &DecisionFilter) -> Fields {
    let fields = [
        ("spec.workload.kind", &filter.kind),
        ("spec.workload.name", &filter.name),
        ("spec.trigger", &filter.trigger),
        ("spec.outcome", &filter.outcome),
        ("spec.cluster", &filter.member),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
}

async fn follow(hub: Hub, of: Of, fields: Fields, said: mpsc::Sender<()>) {
    let news = async {
        let after = decisions::list(&hub, &of, &fields, 1).await?;
        decisions::follow(&hub, &of, &fields, &after, |_| {
            // If one waits already, it says this one too.
            let _ = said.try_send(());
            Ok(())
        })
        .await
    };
    if let Err(error) = news.await {
        tracing::debug!("decisions are not followed: {error:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_offers_what_is_recorded() {
        let (triggers, outcomes) = (triggers(), variants::<Outcome>());
        assert!(triggers.len() >= 15 && outcomes.len() >= 7, "{triggers:?}, {outcomes:?}");
        for name in triggers {
            assert!(serde_json::from_value::<Trigger>(name.as_str().into()).is_ok(), "{name}");
        }
        for name in outcomes {
            assert!(serde_json::from_value::<Outcome>(name.as_str().into()).is_ok(), "{name}");
        }
    }
}
