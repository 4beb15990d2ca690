//! Limits on open connections, so that no client can use up the slots of all others.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Limits of concurrently open connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For all clients together.
    pub total: usize,
    /// Per client.
    pub each: usize,
    /// A connection younger than this is never closed in favour of a new one.
    pub grace: Duration,
}

/// The open connections by client.
///
/// At a limit, a new connection replaces the oldest connection of the client with the most connections (of its own
/// client if that is at its limit), if that one is older than the grace period. Otherwise it is refused. So a client
/// with many idle connections loses those first, and never displaces a client with few.
pub struct Connections<K: Ord + Clone> {
    limits: Limits,
    table: Arc<Mutex<Table<K>>>,
}

struct Table<K> {
    open: BTreeMap<K, VecDeque<Entry>>,
    count: usize,
    next: u64,
}

struct Entry {
    id: u64,
    since: Instant,
    cut: CancellationToken,
}

/// The slot of an open connection, freed on drop.
pub struct Place<K: Ord + Clone> {
    table: Arc<Mutex<Table<K>>>,
    client: K,
    id: u64,
    cut: CancellationToken,
}

impl<K: Ord + Clone> Connections<K> {
    /// No connection is open yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let table = Table { open: BTreeMap::new(), count: 0, next: 0 };
        Self { limits, table: Arc::new(Mutex::new(table)) }
    }

    /// A slot for a new connection of this client; `None` when it is refused.
    pub fn enter(&self, client: K, now: Instant) -> Option<Place<K>> {
        let mut table = lock(&self.table);
        let own = table.open.get(&client).map_or(0, VecDeque::len);
        if own >= self.limits.each {
            table.displace(&client, self.limits.grace, now)?;
        } else if table.count >= self.limits.total {
            let heaviest = table.heaviest()?;
            table.displace(&heaviest, self.limits.grace, now)?;
        }
        let (id, cut) = (table.next, CancellationToken::new());
        table.next += 1;
        table.count += 1;
        let entry = Entry { id, since: now, cut: cut.clone() };
        table.open.entry(client.clone()).or_default().push_back(entry);
        Some(Place { table: self.table.clone(), client, id, cut })
    }
}

impl<K: Ord + Clone> Table<K> {
    /// The client with the most connections; of several, the one with the oldest connection.
    fn heaviest(&self) -> Option<K> {
        let oldest = |entries: &VecDeque<Entry>| entries.front().map(|entry| entry.since);
        let heaviest = self
            .open
            .iter()
            .max_by(|(_, a), (_, b)| a.len().cmp(&b.len()).then_with(|| oldest(b).cmp(&oldest(a))));
        heaviest.map(|(client, _)| client.clone())
    }

    /// Closes the oldest connection of this client, if older than the grace period.
    fn displace(&mut self, client: &K, grace: Duration, now: Instant) -> Option<()> {
        let entry = self.open.get(client)?.front()?;
        if now.saturating_duration_since(entry.since) < grace {
            return None;
        }
        entry.cut.cancel();
        let id = entry.id;
        self.leave(client, id);
        Some(())
    }

    fn leave(&mut self, client: &K, id: u64) {
        let Some(entries) = self.open.get_mut(client) else { return };
        let Some(at) = entries.iter().position(|entry| entry.id == id) else { return };
        entries.remove(at);
        self.count -= 1;
        if entries.is_empty() {
            self.open.remove(client);
        }
    }
}

impl<K: Ord + Clone> Place<K> {
    /// Cancelled when another connection has taken this slot: close this one.
    pub fn cut(&self) -> &CancellationToken {
        &self.cut
    }
}

impl<K: Ord + Clone> Drop for Place<K> {
    fn drop(&mut self) {
        lock(&self.table).leave(&self.client, self.id);
    }
}

fn lock<K>(table: &Mutex<Table<K>>) -> MutexGuard<'_, Table<K>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The client behind an address: an IPv6 customer has at least a /64, so the lower half does not distinguish clients.
#[must_use]
pub fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(1);

    fn limits(total: usize, each: usize) -> Limits {
        Limits { total, each, grace: GRACE }
    }

    #[test]
    fn a_client_at_its_limit_displaces_only_its_own_oldest_connection() {
        let (start, connections) = (Instant::now(), Connections::new(limits(10, 2)));
        let other = connections.enter("b", start).unwrap();
        let first = connections.enter("a", start).unwrap();
        let second = connections.enter("a", start).unwrap();
        assert!(connections.enter("a", start).is_none(), "both are younger than the grace");
        let third = connections.enter("a", start + GRACE).unwrap();
        assert!(first.cut().is_cancelled());
        for kept in [&other, &second, &third] {
            assert!(!kept.cut().is_cancelled());
        }
        // The displaced one ends later, and frees nothing twice.
        drop(first);
        assert!(connections.enter("b", start + GRACE).is_some());
        assert_eq!(lock(&connections.table).count, 3);
    }

    #[test]
    fn when_all_places_are_taken_the_client_with_the_most_loses_its_oldest() {
        let (start, connections) = (Instant::now(), Connections::new(limits(4, 4)));
        let honest = connections.enter("honest", start).unwrap();
        let greedy: Vec<_> = (0..3).map(|_| connections.enter("greedy", start).unwrap()).collect();
        assert!(connections.enter("new", start).is_none(), "all are younger than the grace");
        let new = connections.enter("new", start + GRACE).unwrap();
        let cut: Vec<_> = greedy.iter().map(|place| place.cut().is_cancelled()).collect();
        assert_eq!(cut, [true, false, false]);
        assert!(!honest.cut().is_cancelled() && !new.cut().is_cancelled());
        drop((honest, greedy, new));
        assert!(lock(&connections.table).open.is_empty());
        assert_eq!(lock(&connections.table).count, 0);
    }

    #[test]
    fn addresses_of_one_customer_are_one_client() {
        let client = |text: &str| client_of(text.parse().unwrap());
        assert_eq!(client("2001:db8:0:1::1"), client("2001:db8:0:1:ffff::2"));
        assert_ne!(client("2001:db8:0:1::1"), client("2001:db8:0:2::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
    }
}
