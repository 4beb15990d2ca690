//! Storage of the agent's key and certificate: a Secret on the member, or a folder.

use std::path::{Path, PathBuf};

use atoll_protocol::member::MemberIdentity;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::key::{GroupKind, Key};
use crate::member::{Member, MemberError, Target};
use crate::options::IdentityStore;

/// Name of the file, and of the key in the Secret.
const FILE: &str = "identity.json";

/// The stored data. One document, so that it is never replaced in part.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Kept {
    /// Leaf and authority, PEM; empty before the first enrolment.
    pub chain: String,
    /// Its private key, PEM.
    pub key: String,
    /// Name of the Cluster object.
    pub cluster_name: String,
    /// Id of the token that the identity came from.
    pub token_id: String,
    /// An enrolment in progress: a lost reply can be requested again only with the same key.
    pub pending: Option<Pending>,
}

/// An enrolment in progress.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Pending {
    /// Id of the token.
    pub token_id: String,
    /// Private key, PEM.
    pub key: String,
}

/// Why the identity cannot be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The Secret could not be read or written.
    #[error("cannot access Secret {0} with the agent's identity")]
    Secret(String, #[source] MemberError),
    /// A file could not be read or written.
    #[error("cannot access file {0} with the agent's identity")]
    File(PathBuf, #[source] std::io::Error),
    /// The stored data is damaged.
    #[error("the identity in {0} is damaged: delete it and join again")]
    Damaged(String),
}

impl Kept {
    /// The identity, if complete.
    #[must_use]
    pub(crate) fn identity(&self) -> Option<MemberIdentity> {
        if self.chain.is_empty() {
            return None;
        }
        MemberIdentity::from_pem(&self.chain, &self.key)
            .inspect_err(|error| tracing::warn!(%error, "the stored identity cannot be used"))
            .ok()
    }
}

/// Reads and writes an [`IdentityStore`].
#[derive(Clone)]
pub(crate) struct Keeper {
    /// Kind and place of the store.
    pub store: IdentityStore,
    /// For a store that is a Secret.
    pub member: Member,
    /// Namespace of the Secret.
    pub namespace: String,
}

impl Keeper {
    /// The stored data; empty where there is none yet.
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

    /// Stores the data.
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

/// Writes atomically, and readable only by the owner from the first byte on.
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
