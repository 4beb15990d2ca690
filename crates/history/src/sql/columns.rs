//! Writes the columns of a decision, for every SQL database.

use atoll_api::binding::TargetCluster;
use serde::Serialize;

use super::rows::name;
use crate::{Detail, Record};

/// Takes the columns of a row in their order.
pub(crate) trait ColumnWriter: Sized {
    fn text(self, text: &str) -> Self;
    fn number(self, number: i64) -> Self;
    /// A time, in microseconds since 1970.
    fn time(self, microseconds: i64) -> Self;
    fn json(self, value: &impl Serialize) -> Self;
    fn bytes(self, bytes: &[u8]) -> Self;
    fn null(self) -> Self;

    /// A column that may be NULL.
    fn optional<T>(self, value: Option<T>, write: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => write(self, value),
            None => self.null(),
        }
    }
}

/// Writes a decision, in the order of `decision_columns!`. `before` are the shares before it, if known.
pub(crate) fn write_decision<W: ColumnWriter>(
    to: W,
    record: &Record,
    before: Option<&[TargetCluster]>,
) -> W {
    let (decision, workload, binding) = (&record.record, &record.workload, &record.binding);
    to.text(&decision.id)
        .optional(decision.parent.as_deref(), W::text)
        .time(record.decided_at().as_microsecond())
        .text(&name(&decision.trigger))
        .text(&name(&decision.mode))
        .text(&name(&decision.outcome))
        .number(decision.desired)
        .json(&decision.pending)
        .optional(decision.affinity_name.as_deref(), W::text)
        .number(decision.term)
        .text(&binding.kind)
        .text(binding.namespace.as_deref().unwrap_or_default())
        .text(&binding.name)
        .text(&binding.uid)
        .text(workload.group())
        .text(workload.version())
        .text(&workload.kind)
        .text(&workload.name)
        .optional(workload.uid.as_deref(), W::text)
        .optional(before, |to, before| to.json(&before))
        .json(&record.after)
        .optional(record.reason.as_deref(), W::text)
        .optional(record.gap.as_ref(), |to, gap| to.json(gap))
        .optional(record.withdrawal.as_ref(), |to, withdrawal| to.json(withdrawal))
        .optional(record.provenance.as_ref(), |to, provenance| to.json(provenance))
        .optional(record.rejections.as_ref(), |to, rejections| to.json(rejections))
        .optional(record.detail.as_ref().map(Detail::as_bytes), W::bytes)
}
