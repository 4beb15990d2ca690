//! Renders a decision for people, on one screen: its trigger, the chosen clusters and their scores, the rejected
//! clusters with the failed rule and values, and the events that would change the outcome.

use std::fmt::Write as _;

use atoll_api::binding::{Preemption, Trigger};
use atoll_api::quantity::Quantity;
use atoll_api::text::counted;

use crate::{ClusterOutcome, Decision, Verdict, WakeCondition, plugin};

/// Rows of a table; further rows are only counted.
const MAX_ROWS: usize = 12;
/// Names in a list; further names are only counted.
const MAX_NAMES: usize = 6;
/// Rejections, moves and wake conditions; further ones are only counted.
const MAX_LINES: usize = 8;
/// Narrowest supported screen, in columns.
const MIN_WIDTH: usize = 40;

/// Renders a decision for a screen of `width` columns.
#[must_use]
pub fn render(decision: &Decision, width: usize) -> String {
    let mut page = Page { text: String::new(), width: width.max(MIN_WIDTH) };
    head(&mut page, decision);
    chosen(&mut page, decision);
    refused(&mut page, decision);
    next(&mut page, decision);
    page.text
}

struct Page {
    text: String,
    width: usize,
}

impl Page {
    /// One line, cut at the edge of the screen.
    fn line(&mut self, text: &str) {
        let text = text.trim_end();
        if text.chars().count() > self.width {
            let cut: String = text.chars().take(self.width - 1).collect();
            self.text.push_str(&cut);
            self.text.push('…');
        } else {
            self.text.push_str(text);
        }
        self.text.push('\n');
    }

    /// A labelled paragraph, wrapped at words.
    fn field(&mut self, label: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let indent = 11;
        let mut line = format!("{label:indent$}");
        let mut length = indent;
        for word in text.split_whitespace() {
            let more = word.chars().count() + 1;
            if length + more > self.width && length > indent {
                self.line(&line);
                line = " ".repeat(indent);
                length = indent;
            }
            line.push_str(word);
            line.push(' ');
            length += more;
        }
        self.line(&line);
    }

    fn title(&mut self, text: &str) {
        self.text.push('\n');
        self.line(text);
    }
}

fn head(page: &mut Page, decision: &Decision) {
    let template = &decision.template;
    let namespace = template.namespace.as_deref().map_or(String::new(), |n| format!("{n}/"));
    page.line(&format!(
        "{} {namespace}{}: {} ({}, {}, profile {})",
        template.kind,
        template.name,
        decision.outcome,
        decision.trigger,
        decision.mode,
        decision.profile
    ));
    if let Some(check) = decision.triggers.last().filter(|check| check.allowed) {
        page.field("Why", &format!("{}: {}", check.trigger, check.why));
    }
    for check in decision.triggers.iter().filter(|check| check.holds && !check.allowed) {
        // It is only checked where `rescheduleOn` lists it; what it found says what holds it back.
        let why = match check.trigger {
            Trigger::Unschedulable => check.why.to_string(),
            _ => format!("not in rescheduleOn: {}", check.why),
        };
        let is = if check.trigger == Trigger::Unschedulable { ":" } else { " is" };
        page.field("Held back", &format!("{}{is} {why}", check.trigger));
    }
    page.field("How", &decision.strategy);
    if let Some(term) = &decision.affinity_name {
        page.field("Term", term);
    }
    let placed = decision.after.iter().fold(0_i64, |sum, s| sum.saturating_add(s.replicas));
    if let Some(desired) = decision.desired {
        let pending = decision.pending_replicas();
        let waits = if pending > 0 { format!(", {pending} pending") } else { String::new() };
        page.field("Replicas", &format!("{desired} requested, {placed} placed{waits}"));
    }
    page.field("Reason", &decision.reason);
    for group in decision.pending.iter().filter(|group| group.reason != decision.reason) {
        page.field("Pending", &format!("{}: {}", group.replicas, group.reason));
    }
    for note in &decision.notes {
        page.field("Note", note);
    }
    for group in &decision.groups {
        let target = group.target.map_or(String::new(), |target| format!(" of {target}"));
        let waits =
            if group.pending > 0 { format!(", {} pending", group.pending) } else { String::new() };
        let others = group.assigned - group.own;
        let others =
            if others > 0 { format!(" ({others} of other workloads)") } else { String::new() };
        let blocked =
            group.blocked_by.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
        let text = format!("{}: {}{target}{others}{waits}{blocked}", group.name, group.assigned);
        page.field("Group", &text);
    }
    for (at, step) in decision.moves.iter().enumerate() {
        if at == MAX_LINES {
            page.field("Moves", &format!("and {} more", decision.moves.len() - at));
            break;
        }
        page.field("Moves", &format!("{} from {} to {}", step.count, step.from, step.to));
    }
    preemptions(page, decision);
    for task in &decision.evictions {
        let until = match (&task.deadline, task.keep) {
            (Some(deadline), _) => {
                format!("kept until the replacements are healthy or {}", deadline.0)
            }
            (None, true) => "kept".to_owned(),
            (None, false) => "until the member confirms the removal".to_owned(),
        };
        let waits = match task.unplaced {
            0 => String::new(),
            unplaced => format!(", at least until {unplaced} of them are placed elsewhere"),
        };
        page.field(
            "Leaving",
            &format!(
                "{}: {}, {until}{waits}",
                task.from_cluster,
                counted(task.replicas, "replica")
            ),
        );
    }
}

fn preemptions(page: &mut Page, decision: &Decision) {
    for (at, taken) in decision.preempts.iter().enumerate() {
        if at == MAX_LINES {
            page.field("Preempts", &format!("and {} more", decision.preempts.len() - at));
            break;
        }
        let earlier = if taken.decision == *decision.id { "" } else { ", by an earlier decision" };
        page.field("Preempts", &format!("{}{earlier}", victim(taken)));
    }
}

/// What a preemption takes, in words.
#[must_use]
pub fn victim(taken: &Preemption) -> String {
    let namespace = taken.namespace.as_deref().map_or(String::new(), |n| format!("{n}/"));
    format!(
        "{} of {namespace}{} (priority {}) on {}",
        counted(taken.replicas, "replica"),
        taken.name,
        taken.priority,
        taken.cluster
    )
}

struct Line<'a> {
    name: String,
    before: Option<i64>,
    after: Option<i64>,
    verdict: &'a Verdict,
    at: usize,
}

fn lines(decision: &Decision) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for verdict in &decision.verdicts {
        if !matches!(
            verdict.outcome,
            ClusterOutcome::Selected | ClusterOutcome::Kept | ClusterOutcome::Gone
        ) {
            continue;
        }
        for (at, name) in verdict.clusters.iter().enumerate() {
            lines.push(Line {
                name: name.to_string(),
                before: verdict.before.get(at),
                after: verdict.after.get(at),
                verdict,
                at,
            });
        }
    }
    lines.sort_by(|a, b| (b.after, &a.name).cmp(&(a.after, &b.name)));
    lines
}

fn capacity(verdict: &Verdict, at: usize) -> String {
    if verdict.capacity.is_empty() {
        return String::new();
    }
    let Some(more) = verdict.capacity.get(at) else { return "unknown".to_owned() };
    let bound = verdict.bounded.get(at).and_then(|bound| usize::try_from(bound).ok());
    match bound.and_then(|bound| verdict.bounds.get(bound)).filter(|bound| !bound.is_empty()) {
        Some(bound) => format!("{more} more ({bound})"),
        None => format!("{more} more"),
    }
}

fn scores(verdict: &Verdict, at: usize) -> String {
    let parts = verdict.scores.iter().filter_map(|(plugin, column)| {
        column.get(at).filter(|score| *score != 0).map(|score| format!("{plugin} {score}"))
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn chosen(page: &mut Page, decision: &Decision) {
    let lines = lines(decision);
    if lines.is_empty() {
        return;
    }
    let names = lines.iter().take(MAX_ROWS).map(|line| line.name.chars().count());
    let width = names.max().unwrap_or(0).clamp("CLUSTER".len(), page.width / 3);
    let weighed = lines.iter().any(|line| line.verdict.weights.get(line.at).is_some());
    let weight = |text: &str| if weighed { format!("  {text:>6}") } else { String::new() };
    page.title(&format!(
        "{:width$}  BEFORE  AFTER{}  CAPACITY            SCORES",
        "CLUSTER",
        weight("WEIGHT")
    ));
    let number = |value: Option<i64>| value.map_or("-".to_owned(), |value| value.to_string());
    for line in lines.iter().take(MAX_ROWS) {
        let mut text = format!(
            "{:width$}  {:>6}  {:>5}{}  {:18}  {}",
            line.name,
            number(line.before),
            number(line.after),
            weight(&number(line.verdict.weights.get(line.at))),
            capacity(line.verdict, line.at),
            scores(line.verdict, line.at)
        );
        if line.verdict.outcome == ClusterOutcome::Gone {
            text.push_str("no longer a cluster");
        }
        page.line(&text);
        for rejection in &line.verdict.rejections {
            page.line(&format!("  kept although {}: {}", rejection.plugin, rejection.reason));
        }
    }
    if lines.len() > MAX_ROWS {
        page.line(&format!("and {} more", lines.len() - MAX_ROWS));
    }
}

fn some_names(verdict: &Verdict) -> String {
    let short = verdict.clusters.short();
    let mut text = short.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    if short.len() > MAX_NAMES {
        let _ = write!(text, " and {} more", short.len() - MAX_NAMES);
    }
    text
}

fn refused(page: &mut Page, decision: &Decision) {
    let passed: Vec<&Verdict> =
        decision.verdicts.iter().filter(|v| v.outcome == ClusterOutcome::NotSelected).collect();
    for verdict in passed {
        page.title(&format!("Fit, but not selected ({})", verdict.clusters.len()));
        let values = verdict.capacity.iter().flatten();
        let best = values.max().map_or(String::new(), |best| format!(": at most {best} more fit"));
        page.line(&format!("  {}{best}", some_names(verdict)));
    }
    let refused: Vec<&Verdict> =
        decision.verdicts.iter().filter(|v| v.outcome == ClusterOutcome::Refused).collect();
    if refused.is_empty() {
        return;
    }
    let count: usize = refused.iter().map(|verdict| verdict.clusters.len()).sum();
    page.title(&format!("Refused ({count})"));
    for (at, verdict) in refused.iter().enumerate() {
        if at == MAX_LINES {
            page.line(&format!("  and {} more groups", refused.len() - at));
            break;
        }
        page.line(&format!("  {}", some_names(verdict)));
        for rejection in &verdict.rejections {
            page.line(&format!("    {}: {}", rejection.plugin, rejection.reason));
        }
    }
}

/// What would change the outcome of a decision, in words.
#[must_use]
pub fn wakes(decision: &Decision) -> Vec<String> {
    let mut conditions: Vec<String> = decision.waits_for.iter().filter_map(in_words).collect();
    // Components that do not fit wait for the same clusters.
    conditions.dedup();
    conditions
}

fn next(page: &mut Page, decision: &Decision) {
    let conditions = wakes(decision);
    if conditions.is_empty() {
        return;
    }
    page.title("What would change the outcome");
    for (at, condition) in conditions.iter().enumerate() {
        if at == MAX_LINES {
            page.line(&format!("  and {} more", conditions.len() - at));
            break;
        }
        page.line(&format!("  {condition}"));
    }
}

/// What would change the outcome for one cluster, in words: first the remedy for each rule that rejects it, then the
/// events that requeue the binding.
#[must_use]
pub fn remedies(decision: &Decision, cluster: &str) -> Vec<String> {
    let Some((verdict, _)) = decision.verdict(cluster) else { return Vec::new() };
    let mut lines: Vec<String> = Vec::new();
    for rejection in &verdict.rejections {
        lines.extend(remedy(&rejection.plugin).map(str::to_owned));
    }
    if verdict.outcome == ClusterOutcome::NotSelected {
        lines.push(
            "other clusters were preferred: more replicas, a wider spread or different scores"
                .to_owned(),
        );
    }
    let refused = |plugin: &str| verdict.rejections.iter().any(|r| r.plugin == plugin);
    for condition in &decision.waits_for {
        let concerns = match condition {
            WakeCondition::TargetChanges { clusters }
            | WakeCondition::CapacityRises { clusters, .. }
            | WakeCondition::MemberQuotaFrees { clusters, .. }
            | WakeCondition::EvictionEnds { clusters } => clusters.contains(cluster),
            // The remedy of the rule already covers these.
            WakeCondition::LabelsChange
            | WakeCondition::TaintsChange
            | WakeCondition::ServesApi { .. } => false,
            WakeCondition::ClusterJoins => false,
            WakeCondition::WorkloadPolicyChanges { .. } => refused("WorkloadPolicy"),
            WakeCondition::WorkloadSpreadChanges { .. } => refused("WorkloadSpread"),
            WakeCondition::AffinityGroupChanges { .. } => refused(plugin::WORKLOAD_AFFINITY),
            WakeCondition::ClusterSetsChange { .. } => refused("ClusterSets"),
            WakeCondition::BindingShrinks { .. }
            | WakeCondition::QuotaFrees { .. }
            | WakeCondition::TimePasses { .. }
            | WakeCondition::Edit { .. } => true,
        };
        if concerns {
            lines.extend(in_words(condition));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    lines.retain(|line| seen.insert(line.clone()));
    lines
}

/// What people can do about a rejection by a built-in rule. The rejection's reason has the failed values.
fn remedy(plugin: &str) -> Option<&'static str> {
    Some(match plugin {
        plugin::CLUSTER_AFFINITY => {
            "name it in the policy's placement.clusterAffinity, or give the cluster labels that it selects"
        }
        plugin::CLUSTER_SETS => {
            "let the clusterSelector of a ClusterSet that selects the namespace select the cluster"
        }
        plugin::TAINT_TOLERATION => {
            "remove the taint from the cluster, or tolerate it in the policy's placement.clusterTolerations"
        }
        plugin::API_ENABLEMENT => "install the kind's API on the cluster",
        plugin::APPLICATION_HEALTH => {
            "the workload becomes healthy there, or failover.application of the policy tolerates more seconds"
        }
        plugin::CLUSTER_EVICTION => "the eviction from it ends",
        plugin::RESOURCE_FIT => {
            "free capacity on the cluster, or lower the requests of each replica"
        }
        plugin::REPLICA_DIVISION => {
            "let a rule of the policy's staticWeightList select the cluster"
        }
        plugin::SPREAD_CONSTRAINT => {
            "set the field of the cluster that the policy's placement.spreadConstraints group by"
        }
        plugin::TOPOLOGY_SPREAD => "set the label on the cluster that the topology spread names",
        plugin::STICKY => "request a rebalance: placement.sticky keeps the workload where it is",
        plugin::WORKLOAD_AFFINITY => {
            "move the other workloads of the group, or change the label that the policy's placement.workloadAffinity groups by"
        }
        plugin::WORKLOAD_POLICY => "let a domain of the WorkloadPolicy select the cluster",
        plugin::WORKLOAD_SPREAD => "let a subset of the WorkloadSpread select the cluster",
        _ => return None,
    })
}

/// A wake condition in words. `None` for one that would not help the reader.
fn in_words(condition: &WakeCondition) -> Option<String> {
    Some(match condition {
        WakeCondition::ClusterJoins => "a cluster joins".to_owned(),
        WakeCondition::TargetChanges { clusters } => {
            let clusters = one_of(&clusters.short());
            format!("{clusters} leaves, disconnects, or changes taints or labels")
        }
        WakeCondition::LabelsChange => "labels or fields of a cluster change".to_owned(),
        WakeCondition::TaintsChange => "taints of a cluster change".to_owned(),
        WakeCondition::ServesApi { api_version, kind } => {
            format!("a cluster serves {api_version} {kind}")
        }
        WakeCondition::CapacityRises { clusters, .. } => {
            format!("one more replica fits on {}", one_of(&clusters.short()))
        }
        WakeCondition::WorkloadPolicyChanges { name, .. } => {
            format!("WorkloadPolicy {name} changes")
        }
        WakeCondition::WorkloadSpreadChanges { .. } => return None,
        WakeCondition::ClusterSetsChange { namespace } => {
            format!("the ClusterSets of namespace {namespace} change")
        }
        WakeCondition::QuotaFrees { namespace, amounts } => {
            let amounts: Vec<String> =
                amounts.iter().map(|(resource, amount)| in_units(resource, *amount)).collect();
            format!(
                "the FederatedResourceQuotas of namespace {namespace} have {} left",
                amounts.join(", ")
            )
        }
        WakeCondition::MemberQuotaFrees { clusters, namespace, .. } => {
            let clusters = one_of(&clusters.short());
            format!("a ResourceQuota of namespace {namespace} has room for more on {clusters}")
        }
        WakeCondition::BindingShrinks { .. } => {
            "another counted workload releases replicas".to_owned()
        }
        WakeCondition::AffinityGroupChanges { label, value, .. } => {
            format!("workloads of group {label}={value} move")
        }
        WakeCondition::TimePasses { at } => format!("the clock reaches {at}"),
        WakeCondition::EvictionEnds { clusters } => {
            format!("the eviction from {} ends", one_of(&clusters.short()))
        }
        WakeCondition::Edit { field } => format!("{field} is edited"),
    })
}

/// An amount with its resource: `1500m cpu`.
fn in_units(resource: &str, amount: i64) -> String {
    format!("{} {resource}", Quantity::of_resource(resource, amount.into()))
}

fn one_of(short: &[String]) -> String {
    match short {
        [one] => one.clone(),
        some if some.len() <= MAX_NAMES => format!("one of {}", some.join(", ")),
        some => {
            format!("one of {} and {} more", some[..MAX_NAMES].join(", "), some.len() - MAX_NAMES)
        }
    }
}
