//! Authentication: a client certificate, a ServiceAccount's bearer token, anonymous, or a caller in this process.
//!
//! Every authenticated user may do everything (the server listens on loopback); anonymous requests may read only the
//! health and version paths.

use std::sync::OnceLock;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, header};
use jiff::{SignedDuration, Timestamp};
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use serde_json::{Value, json};

use crate::{
    core::Core,
    error::ApiError,
    meta,
    store::{ObjectKey, TableId},
};

/// Group of all authenticated users.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
const MASTERS: &str = "system:masters";
/// `iss` and default `aud` of tokens.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Lifetimes of requested tokens, in seconds: upstream's default and bounds.
const DEFAULT_LIFETIME: i64 = 3600;
const MIN_LIFETIME: i64 = 600;
const MAX_LIFETIME: i64 = 1 << 32;

/// The user of a request. The TLS listener adds it to the request's extensions; a request without one comes from this
/// process and may do everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name, from the certificate's CN or the token's subject.
    pub user: String,
    /// Groups, from the certificate's O or the token's kind.
    pub groups: Vec<String>,
    /// The ServiceAccount's uid, empty for users.
    pub uid: String,
}

impl Identity {
    /// A caller in this process.
    pub fn internal() -> Self {
        Identity {
            user: "system:admin".to_owned(),
            groups: vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()],
            uid: String::new(),
        }
    }

    /// The anonymous user.
    pub fn anonymous() -> Self {
        Identity {
            user: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            uid: String::new(),
        }
    }

    /// A user with groups, as named by a client certificate.
    pub fn user(user: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().collect();
        groups.push(AUTHENTICATED.to_owned());
        Identity { user: user.into(), groups, uid: String::new() }
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        !self.groups.iter().any(|g| g == AUTHENTICATED)
    }

    /// `authentication.k8s.io` UserInfo.
    pub(crate) fn user_info(&self) -> Value {
        let mut info = json!({"username": self.user, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        info
    }
}

/// Signs and checks ServiceAccount tokens (JWT, HS256: only this server has to check them).
#[derive(Default)]
pub(crate) struct Tokens {
    key: OnceLock<hmac::Key>,
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

impl Tokens {
    /// The key is created with the first token and kept in the store, where no path reaches it, so that tokens survive
    /// a restart. It comes from the system's randomness, never from the seed.
    fn key(&self, core: &Core) -> Result<&hmac::Key, ApiError> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let (table, id) = (TableId::new("internal", "keys"), ObjectKey::new("", "tokens"));
        let mut fresh = [0_u8; 32];
        SystemRandom::new()
            .fill(&mut fresh)
            .map_err(|_| ApiError::internal("the system has no randomness for a token key"))?;
        let text = core.store.step(|step| {
            if let Some(found) = step.get(&table, &id) {
                return Ok(found.value()["key"].as_str().unwrap_or("").to_owned());
            }
            let text = URL_SAFE_NO_PAD.encode(fresh);
            step.put(&table, &id, json!({"metadata": {"name": "tokens"}, "key": text}));
            Ok::<_, ApiError>(text)
        })?;
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|e| {
            ApiError::internal(format_args!("the stored token key is damaged: {e}"))
        })?;
        Ok(self.key.get_or_init(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// A token for a ServiceAccount, and its expiry.
    pub(crate) fn issue(
        &self,
        core: &Core,
        account: &Value,
        audiences: &[String],
        seconds: Option<i64>,
    ) -> Result<(String, Timestamp), ApiError> {
        let seconds = seconds.unwrap_or(DEFAULT_LIFETIME).clamp(MIN_LIFETIME, MAX_LIFETIME);
        let now = core.now();
        let end = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        let (namespace, name) = (meta::namespace(account), meta::name(account));
        let audiences =
            if audiences.is_empty() { vec![ISSUER.to_owned()] } else { audiences.to_vec() };
        let claims = json!({
            "iss": ISSUER,
            "aud": audiences,
            "iat": now.as_second(),
            "nbf": now.as_second(),
            "exp": end.as_second(),
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": meta::uid(account)},
            },
        });
        let signed = format!("{}.{}", part(&json!({"alg": "HS256", "typ": "JWT"})), part(&claims));
        let tag = hmac::sign(self.key(core)?, signed.as_bytes());
        Ok((format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag)), end))
    }

    /// The identity of a token. `None`: not ours, expired, or the account was deleted or recreated.
    pub(crate) fn check(&self, core: &Core, token: &str) -> Result<Option<Identity>, ApiError> {
        let Some((signed, tag)) = token.rsplit_once('.') else { return Ok(None) };
        let Ok(tag) = URL_SAFE_NO_PAD.decode(tag) else { return Ok(None) };
        if hmac::verify(self.key(core)?, signed.as_bytes(), &tag).is_err() {
            return Ok(None);
        }
        let claims: Option<Value> = signed
            .split_once('.')
            .and_then(|(_, claims)| URL_SAFE_NO_PAD.decode(claims).ok())
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(claims) = claims else { return Ok(None) };
        let now = core.now().as_second();
        let text = |path: &str| claims.pointer(path).and_then(Value::as_str).unwrap_or("");
        if claims["exp"].as_i64().is_none_or(|end| end <= now) {
            return Ok(None);
        }
        let namespace = text("/kubernetes.io/namespace");
        let name = text("/kubernetes.io/serviceaccount/name");
        let uid = text("/kubernetes.io/serviceaccount/uid");
        let accounts = TableId::new("", "serviceaccounts");
        let account = core.store.get(&accounts, &ObjectKey::new(namespace, name));
        if account.is_none_or(|a| meta::uid(&a.value()) != uid) {
            return Ok(None);
        }
        Ok(Some(Identity {
            user: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                AUTHENTICATED.to_owned(),
            ],
            uid: uid.to_owned(),
        }))
    }
}

/// The identity of a request: the listener's, replaced by a bearer token if there is one.
pub(super) fn identify(
    core: &Core,
    listener: Option<&Identity>,
    headers: &HeaderMap,
) -> Result<Identity, ApiError> {
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.strip_prefix("Bearer ").or_else(|| v.strip_prefix("bearer ")));
    let identity = match (listener, bearer) {
        (None, _) => Identity::internal(),
        (Some(known), _) if !known.is_anonymous() => known.clone(),
        (Some(_), Some(token)) => {
            core.tokens.check(core, token.trim())?.ok_or_else(ApiError::unauthorized)?
        }
        (Some(anonymous), None) => anonymous.clone(),
    };
    Ok(impersonated(headers).filter(|_| !identity.is_anonymous()).unwrap_or(identity))
}

/// The user that an authenticated user impersonates (`kubectl --as`); every user may.
fn impersonated(headers: &HeaderMap) -> Option<Identity> {
    let text = |v: &http::HeaderValue| v.to_str().ok().map(str::to_owned);
    let user = headers.get("impersonate-user").and_then(text).filter(|u| !u.is_empty())?;
    let groups = headers.get_all("impersonate-group").iter().filter_map(text);
    Some(Identity::user(user, groups.collect::<Vec<_>>()))
}
