//! Rate limit of enrolment attempts: each costs the hub a few requests, also without a valid token.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::member::token_bucket::{Bucket, Rate};

/// Per address. Many members may share one behind a NAT, and agents of Hosted members all connect from this machine.
const OF_AN_ADDRESS: Rate = Rate { burst: 50.0, per_second: 5.0 };
/// Of all addresses together.
const IN_ALL: Rate = Rate { burst: 200.0, per_second: 50.0 };
/// Limit of tracked addresses; one whose bucket is full again need not be tracked.
const ADDRESSES: usize = 4_096;

/// Attempts by address.
#[derive(Debug)]
pub(crate) struct Attempts(Mutex<AttemptCounts>);

#[derive(Debug)]
struct AttemptCounts {
    all: Bucket,
    by_address: BTreeMap<IpAddr, Bucket>,
}

impl Attempts {
    pub(crate) fn new(now: Instant) -> Self {
        Self(Mutex::new(AttemptCounts {
            all: Bucket::new(IN_ALL, now),
            by_address: BTreeMap::new(),
        }))
    }

    /// Whether this address may try now.
    pub(crate) fn admit(&self, address: IpAddr, now: Instant) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let AttemptCounts { all, by_address } = &mut *counts;
        if !by_address.contains_key(&address) && by_address.len() >= ADDRESSES {
            by_address.retain(|_, bucket| !bucket.is_full(now));
            if by_address.len() >= ADDRESSES {
                return false;
            }
        }
        let own = by_address.entry(address).or_insert_with(|| Bucket::new(OF_AN_ADDRESS, now));
        own.take(now) && all.take(now)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn an_address_that_tries_without_end_is_slowed_down_and_others_are_not() {
        let start = Instant::now();
        let attempts = Attempts::new(start);
        let admitted = (0..1_000).filter(|_| attempts.admit(address(1), start)).count();
        assert_eq!(admitted, 50);
        assert!(attempts.admit(address(2), start));
        let later = start + Duration::from_secs(2);
        let admitted = (0..1_000).filter(|_| attempts.admit(address(1), later)).count();
        assert_eq!(admitted, 10);
    }

    #[test]
    fn many_addresses_are_limited_together_and_forgotten_when_they_rest() {
        let start = Instant::now();
        let attempts = Attempts::new(start);
        let tried = u32::try_from(ADDRESSES).unwrap() + 10;
        let admitted = (0..tried).filter(|n| attempts.admit(address(*n), start)).count();
        assert_eq!(admitted, 200);
        let rested = start + Duration::from_secs(60);
        assert!(attempts.admit(address(tried + 1), rested));
        assert!(attempts.0.lock().unwrap().by_address.len() < 10);
    }
}
