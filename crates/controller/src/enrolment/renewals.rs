//! Rate limit of certificate renewals: each once, at the earliest an hour after its issue.

use atoll_protocol::ca::PublicKeyHash;
use jiff::{SignedDuration, Timestamp};

/// Minimum age of a certificate for renewal, and time between two renewals of it. Agents renew daily.
const INTERVAL: SignedDuration = SignedDuration::from_hours(1);
/// Tracked certificates per member. Each is at least an hour old, and agents have one at a time.
const REMEMBERED: usize = 16;

/// A member's renewals of the last hour. A new leader starts without any, so it may allow one more.
#[derive(Debug, Default)]
pub(crate) struct Renewals(Vec<Renewal>);

#[derive(Debug)]
struct Renewal {
    /// Hash of the renewed certificate's key.
    old: PublicKeyHash,
    /// Hash of the new key.
    new: PublicKeyHash,
    at: Timestamp,
}

/// Why a certificate may not be renewed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooOften {
    #[error("the certificate was issued {} s ago: it can be renewed an hour after its issue", .0.as_secs())]
    Young(SignedDuration),
    #[error(
        "the certificate was renewed less than an hour ago: use the new one, or ask again later"
    )]
    Again,
    #[error(
        "{REMEMBERED} certificates of this member were renewed within an hour: try again later"
    )]
    Many,
}

impl Renewals {
    /// Records a renewal of the certificate with key `old`, issued at the given time. The same request may be repeated,
    /// because its reply may have been lost.
    pub(crate) fn admit(
        &mut self,
        old: PublicKeyHash,
        issued: Timestamp,
        new: PublicKeyHash,
        now: Timestamp,
    ) -> Result<(), TooOften> {
        let age = now.duration_since(issued);
        if age < INTERVAL {
            return Err(TooOften::Young(age.max(SignedDuration::ZERO)));
        }
        self.0.retain(|renewal| now.duration_since(renewal.at).abs() < INTERVAL);
        if let Some(known) = self.0.iter().find(|renewal| renewal.old == old) {
            return if known.new == new { Ok(()) } else { Err(TooOften::Again) };
        }
        if self.0.len() >= REMEMBERED {
            return Err(TooOften::Many);
        }
        self.0.push(Renewal { old, new, at: now });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use atoll_protocol::member::KeyRequest;

    use super::*;

    #[test]
    fn a_certificate_is_renewed_once_an_hour_and_the_same_request_is_answered_again() {
        let key = || KeyRequest::generate().unwrap().public_key();
        let at = |minutes: i64| Timestamp::from_second(1_700_000_000 + 60 * minutes).unwrap();
        let (old, new, other) = (key(), key(), key());
        let mut renewals = Renewals::default();
        let young = renewals.admit(old, at(0), new, at(59));
        assert!(matches!(young, Err(TooOften::Young(_))), "{young:?}");
        assert_eq!(renewals.admit(old, at(0), new, at(60)), Ok(()));
        assert_eq!(renewals.admit(old, at(0), new, at(61)), Ok(()));
        assert_eq!(renewals.admit(old, at(0), other, at(61)), Err(TooOften::Again));
        // The new certificate is too young, and the old one may be renewed again after an hour.
        assert!(renewals.admit(new, at(60), other, at(62)).is_err());
        assert_eq!(renewals.admit(old, at(0), other, at(120)), Ok(()));
        for _ in 1..REMEMBERED {
            assert_eq!(renewals.admit(key(), at(0), key(), at(121)), Ok(()));
        }
        assert_eq!(renewals.admit(key(), at(0), key(), at(121)), Err(TooOften::Many));
    }
}
