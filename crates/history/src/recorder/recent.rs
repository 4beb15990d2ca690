//! Recently acknowledged records. A database that fails over may lose its last commits.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::Record;

/// How far back a failover may reach. Asynchronous replicas lag by fractions of a second.
pub(super) const SPAN: Duration = Duration::from_secs(30);
/// Limit of stored records, the newest: a minute's work of a busy federation, about 16 MiB.
const MOST: usize = 16_384;
/// Limit of their details in bytes; older records lose theirs.
const DETAIL_BYTES: usize = 16 << 20;

/// Acknowledged records, oldest first.
#[derive(Default)]
pub(super) struct Recent {
    records: VecDeque<(Instant, Record)>,
    detail_bytes: usize,
    /// Number of records at the front without a detail.
    bare: usize,
}

impl Recent {
    /// Adds records in write order.
    pub(super) fn push(&mut self, records: Vec<Record>) {
        let now = Instant::now();
        for record in records {
            self.detail_bytes += bytes(&record);
            self.records.push_back((now, record));
        }
        self.expire(now);
        while self.detail_bytes > DETAIL_BYTES
            && let Some((_, record)) = self.records.get_mut(self.bare)
        {
            self.detail_bytes -= bytes(record);
            record.detail = None;
            record.inputs = None;
            self.bare += 1;
        }
    }

    fn expire(&mut self, now: Instant) {
        while self.records.len() > MOST
            || self.records.front().is_some_and(|(since, _)| now - *since > SPAN)
        {
            let Some((_, record)) = self.records.pop_front() else { break };
            self.detail_bytes -= bytes(&record);
            self.bare = self.bare.saturating_sub(1);
        }
    }

    /// Frees the records that are older than [`SPAN`]: if no others follow them, they would stay.
    pub(super) fn forget_old(&mut self) {
        self.expire(Instant::now());
        self.records.shrink_to_fit();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records of the last [`SPAN`].
    pub(super) fn all(&self) -> Vec<Record> {
        let now = Instant::now();
        let young = self.records.iter().filter(|(since, _)| now - *since <= SPAN);
        young.map(|(_, record)| record.clone()).collect()
    }
}

fn bytes(record: &Record) -> usize {
    record.detail.as_ref().map_or(0, |detail| detail.as_bytes().len())
        + record.inputs.as_ref().map_or(0, |inputs| inputs.as_bytes().len())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::{BindingRef, Detail, Withdrawal};

    fn record(n: usize) -> Record {
        let binding = BindingRef {
            kind: "ResourceBinding".to_owned(),
            namespace: None,
            name: n.to_string(),
            uid: n.to_string().into(),
        };
        let withdrawal = Withdrawal { clusters: vec![], unconfirmed: vec![] };
        let at = Timestamp::UNIX_EPOCH;
        let mut record =
            Record::withdrawn(binding, Default::default(), None, vec![], withdrawal, at, 1);
        record.detail = Some(Detail::from_bytes(vec![0; 4096]));
        record
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_bounded_in_time_number_and_bytes() {
        let mut recent = Recent::default();
        recent.push((0..10).map(record).collect());
        tokio::time::advance(SPAN + Duration::from_secs(1)).await;
        assert_eq!(recent.all(), []);
        recent.push((10..MOST + 20).map(record).collect());
        let all = recent.all();
        assert_eq!(all.len(), MOST);
        assert_eq!(all.last().unwrap().binding.uid, (MOST + 19).to_string());
        let details = all.iter().filter(|record| record.detail.is_some()).count();
        assert_eq!(details, DETAIL_BYTES / 4096);
        assert!(all[0].detail.is_none() && all[MOST - 1].detail.is_some());
        assert_eq!(recent.detail_bytes, DETAIL_BYTES);
        // Records that have expired release their bytes.
        tokio::time::advance(SPAN * 2).await;
        let mut last = record(1);
        last.detail = Some(Detail::encode(&json!({})));
        let left = bytes(&last);
        recent.push(vec![last]);
        assert_eq!((recent.records.len(), recent.detail_bytes, recent.bare), (1, left, 0));
        tokio::time::advance(SPAN * 2).await;
        recent.forget_old();
        assert!(recent.is_empty());
        assert_eq!((recent.records.capacity(), recent.detail_bytes), (0, 0));
    }
}
