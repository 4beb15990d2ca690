//! Plans, previews of actions, and actions: what the verbs do, with the same code.

use atoll_api::marks;
use atoll_console::Fault;
use atoll_console::data::{Action, Plan, PlanRow, WhatIf, WorkloadId};

use super::{Reader, checked, fault, missing, named};
use crate::print::causes;
use crate::read::workload;
use crate::{approve, confirm_lost, cordon, plan, rebalance};

impl Reader {
    /// The plan of `atoll plan` with these arguments.
    async fn planned(&self, words: &[String], objects: &str) -> Result<Plan, Fault> {
        let rules = &self.rules;
        let planned =
            plan::console::plan(&self.hub, words, objects, &rules.tenancy, &rules.reserved);
        planned.await.map_err(|error| match crate::hub::status(&error) {
            // Without a status of the hub, it is the input that is wrong, or the hub is silent. Both are for the form.
            None => Fault::Invalid(causes(&error)),
            Some(_) => fault(error),
        })
    }

    pub(super) async fn read_plan(&self, ask: &WhatIf) -> Result<Plan, Fault> {
        let mut words = Vec::new();
        for (flag, value) in [
            ("--without", &ask.without),
            ("--drain", &ask.drain),
            ("--taint", &ask.taint),
            ("--scale", &ask.scale),
        ] {
            if !value.is_empty() {
                words.push(format!("{flag}={value}"));
            }
        }
        self.planned(&words, &ask.objects).await
    }

    pub(super) async fn read_preview(&self, action: &Action) -> Result<Plan, Fault> {
        match action {
            Action::Cordon(member) => {
                named("a member", member)?;
                let taint = format!("--taint={member}={}:NoSchedule", marks::TAINT_CORDONED);
                self.planned(&[taint], "").await
            }
            Action::Uncordon(member) => {
                let taints = self.cordons(member).await?;
                if taints.is_empty() {
                    return Err(Fault::Invalid(format!(
                        "{member} is neither cordoned nor drained"
                    )));
                }
                let loses = |taint: String| format!("--taint={member}={taint}-");
                let words: Vec<String> = taints.into_iter().map(loses).collect();
                self.planned(&words, "").await
            }
            Action::Drain(member) => {
                named("a member", member)?;
                self.planned(&[format!("--drain={member}")], "").await
            }
            Action::Rebalance(of) => self.rebalance(of, false).await,
            Action::ConfirmLost => {
                let lost = confirm_lost::lost(&self.hub).await.map_err(fault)?;
                let names: Vec<String> =
                    lost.iter().filter_map(|cluster| cluster.metadata.name.clone()).collect();
                if names.is_empty() {
                    return Err(Fault::Invalid("no member is lost".to_owned()));
                }
                let words: Vec<String> =
                    names.iter().map(|name| format!("--without={name}")).collect();
                let mut plan = self.planned(&words, "").await?;
                plan.summary = format!("Lost: {}. {}", names.join(", "), plan.summary);
                Ok(plan)
            }
            Action::Approve(plan) => self.read_held(plan).await,
        }
    }

    pub(super) async fn do_action(&self, action: &Action) -> Result<String, Fault> {
        match action {
            Action::Cordon(member) => {
                named("a member", member)?;
                cordon::set(&self.hub, member).await.map_err(missing)?;
                Ok(format!("{member} is cordoned"))
            }
            Action::Uncordon(member) => {
                named("a member", member)?;
                cordon::clear(&self.hub, member).await.map_err(missing)?;
                Ok(format!("{member} accepts new work"))
            }
            Action::Drain(member) => {
                named("a member", member)?;
                cordon::drain(&self.hub, member).await.map_err(missing)?;
                Ok(format!("{member} is drained"))
            }
            Action::Rebalance(of) => {
                let plan = self.rebalance(of, true).await?;
                Ok(plan.summary)
            }
            Action::ConfirmLost => {
                let names = confirm_lost::confirm(&self.hub).await.map_err(missing)?;
                Ok(format!("lost: {}", names.join(", ")))
            }
            Action::Approve(plan) => {
                approve::check(plan).map_err(missing)?;
                let approved = approve::request(&self.hub, plan).await.map_err(fault)?;
                Ok(approve::sentence(plan, &approved))
            }
        }
    }

    /// The taints of cordon and drain that a member has, as `KEY:EFFECT`.
    async fn cordons(&self, member: &str) -> Result<Vec<String>, Fault> {
        named("a member", member)?;
        let cluster = crate::cluster::get(&self.hub, member).await.map_err(missing)?;
        let ours = [marks::TAINT_CORDONED, marks::TAINT_DRAIN];
        let taints = cluster.spec.taints.iter().filter(|t| ours.contains(&t.key.as_str()));
        Ok(taints.map(|taint| format!("{}:{}", taint.key, taint.effect)).collect())
    }

    async fn rebalance(&self, of: &WorkloadId, really: bool) -> Result<Plan, Fault> {
        checked(of)?;
        let hub = self.within(of.namespace.as_deref());
        let found =
            workload::resolve(&hub, &[of.type_(), of.name.clone()]).await.map_err(missing)?;
        let asked = rebalance::of_console(&hub, found, self.rules.tenancy, really);
        let done = asked.await.map_err(|error| match crate::hub::status(&error) {
            None => Fault::Invalid(causes(&error)),
            Some(_) => fault(error),
        })?;
        let row =
            |(object, change, why): (String, Vec<String>, String)| PlanRow { object, change, why };
        let summary = match done.created {
            Some(name) => format!("WorkloadRebalancer {name} is created."),
            None if done.rows.iter().all(|(_, moves, _)| moves.is_empty()) => {
                "Nothing would move.".to_owned()
            }
            None => "These replicas would move.".to_owned(),
        };
        Ok(Plan {
            summary,
            changes: done.rows.into_iter().map(row).collect(),
            problems: done.problems,
            ..Plan::default()
        })
    }
}
