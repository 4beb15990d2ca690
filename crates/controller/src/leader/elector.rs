//! The election's task and its handle.

use std::time::Duration;

use atoll_api::{Clock, marks};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::candidate::{Candidate, LOOKS, LeaseTimes};
use super::leadership::Leadership;
use super::record::{self, Seen};
use super::term::LeaderTerm;
use crate::manager;

/// Minimum time between two raises of the term. Each raise makes every agent reconnect, which takes up to 8 s.
pub const RAISE_PAUSE: Duration = Duration::from_secs(30);

/// Invalid settings of an election.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElectionError {
    /// There could be two leaders at once.
    #[error(
        "lease times: renew deadline ({renew:?}) must be shorter than the lease ({lease:?}) and longer than the retry period ({retry:?})"
    )]
    Times {
        /// Renew deadline.
        renew: Duration,
        /// Lease duration.
        lease: Duration,
        /// Retry period.
        retry: Duration,
    },
}

/// The handle of a running election.
#[derive(Clone)]
pub struct Election {
    state: watch::Receiver<Option<Leadership>>,
    /// Where another controller that leads is reached.
    other: watch::Receiver<Option<String>>,
    /// Highest reported term: raises are rate limited, so only the highest counts.
    heard: watch::Sender<LeaderTerm>,
}

impl Election {
    /// Receives changes of leadership.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<Option<Leadership>> {
        self.state.clone()
    }

    /// Receives the address of another controller that leads; `None` while none is known, or this one leads.
    #[must_use]
    pub fn other_leader(&self) -> watch::Receiver<Option<String>> {
        self.other.clone()
    }

    /// Reports a term higher than ours from elsewhere: raises ours above it, at most once in [`RAISE_PAUSE`]. The
    /// caller has verified the source: a binding in the hub, enough members, or an operator.
    pub fn heard_term(&self, term: LeaderTerm) {
        let Some(ours) = self.state.borrow().map(|leadership| leadership.term) else { return };
        if term.is_out_of_range(ours) {
            tracing::warn!(%term, %ours, "term refused: more than 2^32 above ours");
            return;
        }
        self.heard.send_if_modified(|highest| {
            let higher = term > *highest;
            *highest = (*highest).max(term);
            higher
        });
    }
}

/// The election's task.
pub struct Elector {
    api: Api<Lease>,
    candidate: Candidate,
    clock: Clock,
    state: watch::Sender<Option<Leadership>>,
    other: watch::Sender<Option<String>>,
    heard: watch::Receiver<LeaderTerm>,
    /// Highest term in any binding, once the caches are complete; before that we are no candidate.
    ready: watch::Receiver<Option<LeaderTerm>>,
    seen: Option<Seen>,
    /// Highest term of this process's leaderships: a restored or deleted Lease does not lower it.
    highest: LeaderTerm,
    /// Earliest time of the next raise.
    raise_from: Instant,
}

/// Creates an election: run [`Elector::run`] in a task of its own. It is no candidate before `ready` holds the highest
/// term in any binding.
///
/// # Errors
/// When the times would allow two leaders at once.
pub fn election(
    client: Client,
    candidate: Candidate,
    clock: Clock,
    ready: watch::Receiver<Option<LeaderTerm>>,
) -> Result<(Election, Elector), ElectionError> {
    let LeaseTimes { duration, renew_deadline, retry } = candidate.times;
    if renew_deadline >= duration || retry >= renew_deadline {
        return Err(ElectionError::Times { renew: renew_deadline, lease: duration, retry });
    }
    let (state, receiver) = watch::channel(None);
    let (other, of_other) = watch::channel(None);
    let (sender, heard) = watch::channel(LeaderTerm::default());
    let api = Api::namespaced(client, &candidate.namespace);
    let raise_from = Instant::now();
    let highest = LeaderTerm::default();
    let elector = Elector {
        api,
        candidate,
        clock,
        state,
        other,
        heard,
        ready,
        seen: None,
        highest,
        raise_from,
    };
    Ok((Election { state: receiver, other: of_other, heard: sender }, elector))
}

/// Result of an attempt to acquire or renew.
enum Attempt {
    /// We hold the Lease; the request was sent at this moment.
    Held { term: LeaderTerm, sent_at: Instant },
    /// Another controller holds it.
    Others,
    /// The hub did not answer or rejected the request.
    Failed(String),
}

impl Elector {
    /// Takes part in the election until cancelled; then releases the Lease, if we hold it.
    pub async fn run(mut self, token: CancellationToken) {
        let ready = async {
            // A closed channel means that the controller is stopping: the token is then cancelled too.
            let _ = self.ready.wait_for(Option::is_some).await;
        };
        if token.run_until_cancelled(ready).await.is_none() {
            return;
        }
        let mut at_least = LeaderTerm::default();
        loop {
            at_least = self.raise().unwrap_or(at_least);
            let attempt = self.attempt(at_least).await;
            self.judge(attempt);
            let pause = self.pause();
            let may_raise = Instant::now() >= self.raise_from;
            tokio::select! {
                biased;
                () = token.cancelled() => break,
                Ok(()) = self.heard.changed(), if may_raise => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        let led = self.state.send_replace(None);
        if led.is_some() {
            self.release().await;
        }
    }

    /// Time to the next attempt; at most the time to our own deadline.
    fn pause(&self) -> Duration {
        let retry = self.candidate.times.retry;
        let look = retry / LOOKS;
        let now = Instant::now();
        match *self.state.borrow() {
            Some(leadership) => retry.min(leadership.deadline.saturating_duration_since(now)),
            None => match &self.seen {
                // While waiting for another holder to expire: try at the moment of expiry.
                Some(seen) => look.min(
                    seen.expires(self.candidate.times.duration).saturating_duration_since(now),
                ),
                None => look,
            }
            .max(Duration::from_millis(10)),
        }
    }

    /// The next term to acquire, if a higher one than ours was reported and enough time has passed since the last
    /// raise.
    fn raise(&mut self) -> Option<LeaderTerm> {
        let ours = self.state.borrow().map(|leadership| leadership.term)?;
        let heard = *self.heard.borrow_and_update();
        let now = Instant::now();
        if heard <= ours || heard.is_out_of_range(ours) || now < self.raise_from {
            return None;
        }
        self.raise_from = now + RAISE_PAUSE;
        tracing::warn!(%heard, %ours, "a higher term was reported: raising ours above it");
        Some(heard.next())
    }

    /// Highest term in any binding, if within range of the highest known otherwise.
    fn floor(&self, known: LeaderTerm) -> LeaderTerm {
        let floor = self.ready.borrow().unwrap_or_default();
        if floor.is_out_of_range(known) {
            tracing::warn!(
                %floor,
                %known,
                "a binding's spec.decision.term is more than 2^32 above the Lease's: ignored"
            );
            return known;
        }
        floor.max(known)
    }

    fn judge(&mut self, attempt: Attempt) {
        match attempt {
            Attempt::Held { term, sent_at } => {
                self.highest = self.highest.max(term);
                self.note_other(None);
                let deadline = sent_at + self.candidate.times.renew_deadline;
                self.state.send_if_modified(|state| {
                    let taken = state.is_none_or(|held| held.term != term);
                    if taken {
                        tracing::info!(%term, identity = %self.candidate.identity(), "leadership acquired");
                    }
                    let late = state.is_some_and(|held| held.in_force().is_none());
                    *state = Some(Leadership { term, deadline });
                    // A renewal in time changes only the deadline, which readers read on demand.
                    taken || late
                });
            }
            Attempt::Others => self.stop("another controller holds the Lease"),
            Attempt::Failed(error) => {
                let led = *self.state.borrow();
                tracing::debug!(%error, leading = led.is_some(), "lease attempt failed");
                if led.is_some_and(|leadership| leadership.in_force().is_none()) {
                    self.stop(&format!("the Lease could not be renewed in time: {error}"));
                }
            }
        }
    }

    /// Another controller leads, and is reached there.
    fn note_other(&self, address: Option<&str>) {
        self.other.send_if_modified(|known| {
            let changed = known.as_deref() != address;
            if changed {
                *known = address.map(str::to_owned);
            }
            changed
        });
    }

    fn stop(&self, why: &str) {
        if self.state.borrow().is_some() {
            tracing::warn!(why, "leadership ended");
            self.state.send_replace(None);
        }
    }

    async fn attempt(&mut self, at_least: LeaderTerm) -> Attempt {
        // An attempt must not outlast our own deadline, or the time between two attempts.
        let left = match *self.state.borrow() {
            Some(leadership) => leadership.deadline.saturating_duration_since(Instant::now()),
            None => self.candidate.times.renew_deadline,
        };
        let sent_at = Instant::now();
        match tokio::time::timeout(left, self.try_hold(at_least)).await {
            Ok(Ok(Some(term))) => Attempt::Held { term, sent_at },
            Ok(Ok(None)) => Attempt::Others,
            Ok(Err(error)) => Attempt::Failed(error.to_string()),
            Err(_) => Attempt::Failed("the hub did not answer in time".to_owned()),
        }
    }

    /// One read of the record and, if we may acquire or renew it, one guarded write. Returns the term if we hold it.
    async fn try_hold(&mut self, at_least: LeaderTerm) -> Result<Option<LeaderTerm>, kube::Error> {
        let identity = self.candidate.identity();
        let current = self.api.get_opt(&self.candidate.name).await?;
        let Some(current) = current else {
            let term = self.floor(self.highest.max(at_least)).next();
            let fresh = record::taken(None, &self.candidate, &identity, term, self.clock.now());
            let mut created = self.api.create(&manager::create(marks::MANAGER), &fresh).await;
            if matches!(&created, Err(kube::Error::Api(status)) if status.is_not_found()) {
                self.make_namespace().await?;
                created = self.api.create(&manager::create(marks::MANAGER), &fresh).await;
            }
            return match created {
                Ok(_) => Ok(Some(term)),
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
                Err(error) => Err(error),
            };
        };
        let holder = record::holder(&current).to_owned();
        if holder != identity {
            self.note_other(record::address(&current).filter(|_| !holder.is_empty()));
        }
        let held_term = record::term(&current);
        let now = self.clock.now();
        let ours = self.state.borrow().map(|leadership| leadership.term);
        let leading = ours.is_some();
        let (fresh, term) = if holder == identity
            && let Some(ours) = ours
        {
            // The Lease in the hub is authoritative. A term in it that is neither ours nor the one that we requested
            // last (its reply may have been lost) was another leader's: ours must differ from it.
            let theirs = held_term > ours && held_term != at_least;
            let term = if theirs { held_term.next() } else { ours.max(at_least) };
            (record::renewed(&current, &self.candidate, term, now), term)
        } else {
            let expired = self.expired(&current);
            if !holder.is_empty() && !expired && !self.candidate.is_dead_predecessor(&holder) {
                return Ok(None);
            }
            let term = self.floor(held_term.max(self.highest)).next();
            (record::taken(Some(&current), &self.candidate, &identity, term, now), term)
        };
        match self.api.replace(&self.candidate.name, &manager::create(marks::MANAGER), &fresh).await
        {
            Ok(_) => Ok(Some(term)),
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                if leading {
                    // Perhaps our own earlier write, whose reply was lost: the next read will show.
                    Err(kube::Error::Api(status))
                } else {
                    Ok(None)
                }
            }
            Err(error) => Err(error),
        }
    }

    /// On a new hub the Lease's namespace does not exist yet.
    async fn make_namespace(&self) -> Result<(), kube::Error> {
        let namespaces: Api<Namespace> = Api::all(self.api.clone().into_client());
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(self.candidate.namespace.clone()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        match namespaces.create(&manager::create(marks::MANAGER), &namespace).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            made => made.map(drop),
        }
    }

    /// Whether the record has been unchanged for a lease duration on our own clock.
    fn expired(&mut self, current: &Lease) -> bool {
        let version = current.metadata.resource_version.clone().unwrap_or_default();
        let now = Instant::now();
        match &self.seen {
            Some(seen) if seen.version == version => {
                now >= seen.expires(self.candidate.times.duration)
            }
            _ => {
                self.seen = Some(Seen { version, at: now });
                false
            }
        }
    }

    /// Releases the Lease, so that the next leader need not wait for its expiry. Best effort.
    async fn release(&self) {
        let released = async {
            let Some(current) = self.api.get_opt(&self.candidate.name).await? else {
                return Ok(());
            };
            if record::holder(&current) != self.candidate.identity() {
                return Ok(());
            }
            let fresh = record::released(&current, self.clock.now());
            let params = manager::create(marks::MANAGER);
            self.api.replace(&self.candidate.name, &params, &fresh).await.map(drop)
        };
        match tokio::time::timeout(self.candidate.times.retry, released).await {
            Ok(Ok(())) => tracing::info!("Lease released"),
            Ok(Err(error)) => tracing::warn!(%error, "the Lease could not be released"),
            Err(_) => tracing::warn!("the Lease could not be released in time"),
        }
    }
}
