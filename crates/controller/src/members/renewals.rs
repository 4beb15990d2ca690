//! How often a certificate is renewed: once, an hour after its issue at the earliest.

use atoll_protocol::ca::PublicKeyHash;
use jiff::{SignedDuration, Timestamp};

/// Least age of a certificate that is renewed, and time between two renewals of it. Agents renew daily.
const INTERVAL: SignedDuration = SignedDuration::from_hours(1);
/// Certificates of one member that are remembered. Each is at least an hour old, and agents have one at a time.
const REMEMBERED: usize = 16;

/// Renewals of the last hour of one member. A new leader starts without any, so a certificate may be renewed once more
/// then.
#[derive(Debug, Default)]
pub(super) struct Renewals(Vec<Renewal>);

#[derive(Debug)]
struct Renewal {
    /// Of the certificate that was renewed.
    old: PublicKeyHash,
    /// Of the new one.
    new: PublicKeyHash,
    at: Timestamp,
}

/// Why a certificate is not renewed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooOften {
    #[error("the certificate was issued {} s ago: one is renewed after an hour at the earliest", .0.as_secs())]
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
    /// Takes a renewal of the certificate with the key `old`, issued then. The same request may be made again, because its
    /// answer may have been lost.
    pub(super) fn admit(
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
        // The new one is young itself, and the old one may be renewed again after an hour.
        assert!(renewals.admit(new, at(60), other, at(62)).is_err());
        assert_eq!(renewals.admit(old, at(0), other, at(120)), Ok(()));
        for _ in 1..REMEMBERED {
            assert_eq!(renewals.admit(key(), at(0), key(), at(121)), Ok(()));
        }
        assert_eq!(renewals.admit(key(), at(0), key(), at(121)), Err(TooOften::Many));
    }
}
