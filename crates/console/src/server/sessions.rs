//! Tokens that open a session once, and the sessions of browsers.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::Instant;

/// Browsers that may be open; a further one ends the session that was idle longest.
const MOST: usize = 16;
/// A session ends when it was not used for this long: a working day.
const IDLE: Duration = Duration::from_secs(8 * 60 * 60);
/// Bytes of a secret.
const SECRET: usize = 32;

/// Secrets are looked up by their hashes, so the time of a comparison says nothing about a secret.
type Hash = [u8; 32];

/// The sessions.
pub(super) struct Sessions {
    address: SocketAddr,
    random: SystemRandom,
    table: Mutex<Table>,
}

struct Table {
    /// Of the token that opens the next session.
    token: Option<Hash>,
    open: Vec<Session>,
}

struct Session {
    secret: Hash,
    csrf: String,
    used: Instant,
}

impl Sessions {
    /// No session yet; with the address that opens the first.
    pub(super) fn new(address: SocketAddr) -> Result<(Self, String), Unspecified> {
        let table = Mutex::new(Table { token: None, open: Vec::new() });
        let sessions = Self { address, random: SystemRandom::new(), table };
        let url = sessions.invite(&mut sessions.lock())?;
        Ok((sessions, url))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn secret(&self) -> Result<String, Unspecified> {
        let mut bytes = [0; SECRET];
        self.random.fill(&mut bytes)?;
        Ok(URL_SAFE_NO_PAD.encode(bytes))
    }

    fn invite(&self, table: &mut Table) -> Result<String, Unspecified> {
        let token = self.secret()?;
        table.token = Some(hash(&token));
        Ok(format!("http://{}/?token={token}", self.address))
    }

    /// Opens a session with the token, which is used up by that. Returns the value of `Set-Cookie`, and the address that
    /// opens the next session; that is missing if the system has no randomness now.
    pub(super) fn enter(&self, token: &str) -> Option<(String, Option<String>)> {
        let mut table = self.lock();
        table.token.filter(|expected| *expected == hash(token))?;
        let (secret, csrf) = (self.secret().ok()?, self.secret().ok()?);
        table.token = None;
        let now = Instant::now();
        table.open.retain(|session| now.duration_since(session.used) < IDLE);
        if table.open.len() >= MOST
            && let Some(oldest) = (0..table.open.len()).min_by_key(|at| table.open[*at].used)
        {
            table.open.remove(oldest);
        }
        table.open.push(Session { secret: hash(&secret), csrf, used: now });
        let next = self.invite(&mut table).ok();
        let cookie = format!("{}={secret}; Path=/; HttpOnly; SameSite=Strict", self.cookie());
        Some((cookie, next))
    }

    /// The CSRF token of the session with this cookie.
    pub(super) fn find(&self, name: &str, value: &str) -> Option<String> {
        if name != self.cookie() {
            return None;
        }
        let (secret, now) = (hash(value), Instant::now());
        let mut table = self.lock();
        table.open.retain(|session| now.duration_since(session.used) < IDLE);
        let session = table.open.iter_mut().find(|session| session.secret == secret)?;
        session.used = now;
        Some(session.csrf.clone())
    }

    /// Cookies do not tell ports apart, so the name does.
    fn cookie(&self) -> String {
        format!("atoll-console-{}", self.address.port())
    }
}

fn hash(text: &str) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(url: &str) -> &str {
        url.split_once("token=").unwrap().1
    }

    fn pair(cookie: &str) -> (&str, &str) {
        cookie.split_once(';').unwrap().0.split_once('=').unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_opens_one_session_which_ends_when_it_is_idle() {
        let (sessions, url) = Sessions::new("127.0.0.1:7000".parse().unwrap()).unwrap();
        assert!(url.starts_with("http://127.0.0.1:7000/?token="), "{url}");
        assert!(sessions.enter("guess").is_none());
        let (cookie, next) = sessions.enter(token(&url)).unwrap();
        assert!(sessions.enter(token(&url)).is_none(), "a token is used once");
        let (name, secret) = pair(&cookie);
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        let csrf = sessions.find(name, secret).unwrap();
        assert!(sessions.find(name, &csrf).is_none() && sessions.find("other", secret).is_none());
        let (other, _) = sessions.enter(token(&next.unwrap())).unwrap();
        assert_ne!(sessions.find(pair(&other).0, pair(&other).1).unwrap(), csrf);
        tokio::time::advance(IDLE - Duration::from_secs(1)).await;
        assert!(sessions.find(name, secret).is_some(), "the use before counts");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(sessions.find(pair(&other).0, pair(&other).1).is_none());
        assert!(sessions.find(name, secret).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_are_bounded() {
        let (sessions, mut url) = Sessions::new("127.0.0.1:7000".parse().unwrap()).unwrap();
        let mut cookies = Vec::new();
        for _ in 0..=MOST {
            let (cookie, next) = sessions.enter(token(&url)).unwrap();
            cookies.push(cookie);
            url = next.unwrap();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let open = |cookie: &String| sessions.find(pair(cookie).0, pair(cookie).1).is_some();
        assert!(!open(&cookies[0]), "the oldest went");
        assert!(cookies[1..].iter().all(open));
    }
}
