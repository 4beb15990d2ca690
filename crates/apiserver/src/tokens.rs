//! ServiceAccount tokens.

use std::sync::OnceLock;

use atoll_apimachinery::{
    ApiError,
    identity::{AUTHENTICATED, Identity},
    meta,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use serde_json::{Value, json};

use crate::store::{ObjectKey, Store, TableId};

/// `iss` and default `aud` of tokens.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Lifetimes of requested tokens, in seconds: upstream's default and bounds.
const DEFAULT_LIFETIME: i64 = 3600;
const MIN_LIFETIME: i64 = 600;
const MAX_LIFETIME: i64 = 1 << 32;

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
    fn key(&self, store: &Store) -> Result<&hmac::Key, ApiError> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let (table, id) = (TableId::new("internal", "keys"), ObjectKey::new("", "tokens"));
        let mut fresh = [0_u8; 32];
        SystemRandom::new()
            .fill(&mut fresh)
            .map_err(|_| ApiError::internal("the system has no randomness for a token key"))?;
        let text = store.step(|step| {
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
        store: &Store,
        now: Timestamp,
        account: &Value,
        audiences: &[String],
        seconds: Option<i64>,
    ) -> Result<(String, Timestamp), ApiError> {
        let seconds = seconds.unwrap_or(DEFAULT_LIFETIME).clamp(MIN_LIFETIME, MAX_LIFETIME);
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
        let tag = hmac::sign(self.key(store)?, signed.as_bytes());
        Ok((format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag)), end))
    }

    /// The identity of a token. `None`: not ours, expired, or the account was deleted or recreated.
    pub(crate) fn check(
        &self,
        store: &Store,
        now: Timestamp,
        token: &str,
    ) -> Result<Option<Identity>, ApiError> {
        let Some((signed, tag)) = token.rsplit_once('.') else { return Ok(None) };
        let Ok(tag) = URL_SAFE_NO_PAD.decode(tag) else { return Ok(None) };
        if hmac::verify(self.key(store)?, signed.as_bytes(), &tag).is_err() {
            return Ok(None);
        }
        let claims: Option<Value> = signed
            .split_once('.')
            .and_then(|(_, claims)| URL_SAFE_NO_PAD.decode(claims).ok())
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(claims) = claims else { return Ok(None) };
        let text = |path: &str| claims.pointer(path).and_then(Value::as_str).unwrap_or("");
        if claims["exp"].as_i64().is_none_or(|end| end <= now.as_second()) {
            return Ok(None);
        }
        let namespace = text("/kubernetes.io/namespace");
        let name = text("/kubernetes.io/serviceaccount/name");
        let uid = text("/kubernetes.io/serviceaccount/uid");
        let accounts = TableId::new("", "serviceaccounts");
        let account = store.get(&accounts, &ObjectKey::new(namespace, name));
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
            extra: Default::default(),
        }))
    }
}
