//! Where the agent's key and certificate are kept: a Secret on the member, or a folder.

use std::path::{Path, PathBuf};

use atoll_protocol::member::MemberIdentity;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::key::{GroupKind, Key};
use crate::member::{Member, MemberError, Target};
use crate::options::IdentityStore;

/// The one file, and the one key of the Secret.
const FILE: &str = "identity.json";

/// What is kept. One text, so that no half of it can be replaced without the other.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Kept {
    /// Leaf and authority, PEM; empty before the first enrolment.
    pub chain: String,
    /// Its private key, PEM.
    pub key: String,
    /// Name of the Cluster object.
    pub cluster_name: String,
    /// Id of the token that it came from.
    pub token_id: String,
    /// An enrolment under way: a lost answer can be asked for again with the same key only.
    pub pending: Option<Pending>,
}

/// An enrolment under way.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Pending {
    /// Id of the token.
    pub token_id: String,
    /// Private key, PEM.
    pub key: String,
}

/// Why the identity cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The Secret.
    #[error("the Secret {0} of the agent's identity")]
    Secret(String, #[source] MemberError),
    /// A file.
    #[error("the file {0} of the agent's identity")]
    File(PathBuf, #[source] std::io::Error),
    /// What is kept is damaged.
    #[error("the identity kept in {0} cannot be read: remove it and join again")]
    Damaged(String),
}

impl Kept {
    /// The identity, if there is a whole one.
    #[must_use]
    pub(crate) fn identity(&self) -> Option<MemberIdentity> {
        if self.chain.is_empty() {
            return None;
        }
        MemberIdentity::from_pem(&self.chain, &self.key)
            .inspect_err(|error| tracing::warn!(%error, "the kept identity cannot be used"))
            .ok()
    }
}

/// An [`IdentityStore`] that can be read and written.
#[derive(Clone)]
pub(crate) struct Keeper {
    /// Where.
    pub store: IdentityStore,
    /// For a Secret.
    pub member: Member,
    /// Namespace of the Secret.
    pub namespace: String,
}

impl Keeper {
    /// What is kept; nothing where there is none yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn load(&self) -> Result<Kept, IdentityError> {
        let damaged = |place: String| move |_| IdentityError::Damaged(place);
        match &self.store {
            IdentityStore::Secret(name) => {
                let secret = self.member.get(&target(), &self.key(name)).await;
                let secret = secret.map_err(|error| IdentityError::Secret(name.clone(), error))?;
                let Some(text) = secret.as_ref().and_then(|secret| secret["data"][FILE].as_str())
                else {
                    return Ok(Kept::default());
                };
                let bytes = STANDARD
                    .decode(text)
                    .map_err(|_| IdentityError::Damaged(format!("Secret {name}")))?;
                serde_json::from_slice(&bytes).map_err(damaged(format!("Secret {name}")))
            }
            IdentityStore::InProcess(_) => Ok(Kept::default()),
            IdentityStore::Folder(folder) => {
                let path = folder.join(FILE);
                match tokio::fs::read(&path).await {
                    Ok(bytes) => {
                        serde_json::from_slice(&bytes).map_err(damaged(path.display().to_string()))
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                        Ok(Kept::default())
                    }
                    Err(error) => Err(IdentityError::File(path, error)),
                }
            }
        }
    }

    /// Keeps it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) async fn save(&self, kept: &Kept) -> Result<(), IdentityError> {
        let text = serde_json::to_vec(kept).expect("a struct of strings always makes JSON");
        match &self.store {
            IdentityStore::Secret(name) => {
                let secret = json!({
                    "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                    "metadata": {"name": name, "namespace": self.namespace},
                    "data": {FILE: STANDARD.encode(text)},
                });
                let saved = self.member.apply(&target(), &self.key(name), &secret, true).await;
                saved.map(drop).map_err(|error| IdentityError::Secret(name.clone(), error))
            }
            IdentityStore::InProcess(_) => Ok(()),
            IdentityStore::Folder(folder) => {
                let path = folder.join(FILE);
                write_private(folder, &path, &text)
                    .await
                    .map_err(|error| IdentityError::File(path, error))
            }
        }
    }

    fn key(&self, name: &str) -> Key {
        Key {
            kind: GroupKind::new("", "Secret"),
            namespace: self.namespace.clone(),
            name: name.to_owned(),
        }
    }
}

fn target() -> Target {
    Target::builtin("", "v1", "Secret", "secrets", true)
}

/// Whole or not at all, and for the owner's eyes only from the first byte on.
async fn write_private(folder: &Path, path: &Path, text: &[u8]) -> std::io::Result<()> {
    use tokio::io::AsyncWriteExt;
    tokio::fs::create_dir_all(folder).await?;
    let draft = path.with_extension("new");
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    options.mode(0o600);
    let mut file = options.open(&draft).await?;
    file.write_all(text).await?;
    file.sync_all().await?;
    tokio::fs::rename(&draft, path).await
}
