//! Getting an identity: once by token, then by renewal.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::Clock;
use atoll_protocol::member::{KeyRequest, MemberError as CertificateError, MemberIdentity};
use atoll_protocol::tls::{TlsError, enrolment_config};
use atoll_protocol::transport::{self, ChannelError};
use atoll_protocol::v1;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::addresses::{Addresses, Refusal};
use super::identity::{IdentityError, Keeper, Kept, Pending};
use crate::options::{Connector, Join};
use atoll_api::{Backoff, Jitter};

/// Limit of `Enroll` and `Renew`: the controller signs and writes one Secret.
const CALL_LIMIT: Duration = Duration::from_secs(15);
/// Backoff of renewals. Six days are left when the first attempt fails.
const RENEW_BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(30), most: Duration::from_secs(60 * 60) };
/// Longest sleep before the clock is read again: it may have been set.
const LOOK: Duration = Duration::from_secs(15 * 60);

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// Reading or storing the identity failed.
    #[error("store the agent's identity")]
    Keep(#[from] IdentityError),
    /// There is neither an identity nor a token.
    #[error("the agent has no identity and no token: run the command that `atoll join` prints")]
    NoToken,
    /// The controller refused the token.
    #[error("the controller refused the token ({0}): get a new one with `atoll rejoin`")]
    Refused(String),
    /// Invalid key or certificate.
    #[error("make the agent's key and certificate")]
    Certificate(#[from] CertificateError),
    /// configure TLS.
    #[error("configure TLS")]
    Tls(#[from] TlsError),
}

/// Why one enrolment attempt failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("connect to the controller")]
    Connect(#[from] std::io::Error),
    #[error("{0}")]
    Channel(#[from] ChannelError),
    #[error("the controller answered {}: {}", .0.code(), .0.message())]
    Answer(Box<tonic::Status>),
    #[error("no answer within {} s", CALL_LIMIT.as_secs())]
    Timeout,
}

/// Inputs of an enrolment.
pub(crate) struct Enrolment<'a> {
    /// Where the identity is stored.
    pub keeper: &'a Keeper,
    /// Token and authority.
    pub join: Option<&'a Join>,
    /// How to reach the controller.
    pub connector: &'a Connector,
    /// The controller's addresses.
    pub addresses: &'a mut Addresses,
    /// Clock for TLS.
    pub clock: Clock,
    /// uid of the member's kube-system namespace.
    pub member_uid: &'a str,
    /// Version of the member's API server.
    pub kubernetes_version: &'a str,
}

impl Enrolment<'_> {
    /// The stored identity, or a new one if the token is not the one that the stored identity came from. Waits for a
    /// controller without limit; `None` when cancelled.
    ///
    /// # Errors
    /// When the controller refuses the token and there is no stored identity, and when storing fails.
    pub(crate) async fn identity(
        mut self,
        token: &CancellationToken,
    ) -> Result<Option<MemberIdentity>, EnrolError> {
        let kept = self.keeper.load().await?;
        let identity = kept.identity();
        let Some(join) = self.join else {
            return identity.map(Some).ok_or(EnrolError::NoToken);
        };
        if let Some(identity) = identity {
            if kept.token_id == join.token.id().as_str() {
                return Ok(Some(identity));
            }
            return match self.enrol(join, kept, token).await {
                Err(EnrolError::Refused(why)) => {
                    tracing::warn!(%why, "the token was refused; the agent keeps its present identity");
                    Ok(Some(identity))
                }
                other => other,
            };
        }
        self.enrol(join, kept, token).await
    }

    async fn enrol(
        &mut self,
        join: &Join,
        mut kept: Kept,
        token: &CancellationToken,
    ) -> Result<Option<MemberIdentity>, EnrolError> {
        let id = join.token.id().as_str();
        let request = match &kept.pending {
            Some(pending) if pending.token_id == id => KeyRequest::from_key_pem(&pending.key)?,
            _ => {
                let request = KeyRequest::generate()?;
                kept.pending = Some(Pending { token_id: id.to_owned(), key: request.key_pem() });
                self.keeper.save(&kept).await?;
                request
            }
        };
        let tls = enrolment_config(join.ca_hash, self.clock.clone())?;
        loop {
            let address = self.addresses.current().to_owned();
            let answer = tokio::select! {
                biased;
                () = token.cancelled() => return Ok(None),
                answer = self.ask(join, &request, &address, Arc::clone(&tls)) => answer,
            };
            let refusal = match answer {
                Ok(answer) => {
                    let identity = MemberIdentity::from_response(&request, &answer, &join.ca_hash)?;
                    let kept = Kept {
                        chain: identity.chain_pem(),
                        key: identity.key_pem().to_owned(),
                        cluster_name: answer.cluster_name,
                        token_id: id.to_owned(),
                        pending: None,
                    };
                    self.keeper.save(&kept).await?;
                    tracing::info!(cluster = %kept.cluster_name, "enrolled");
                    return Ok(Some(identity));
                }
                Err(Failure::Answer(status)) => match Refusal::of(&status) {
                    Refusal::Identity => {
                        return Err(EnrolError::Refused(status.message().to_owned()));
                    }
                    refusal => {
                        tracing::warn!(%address, %status, "cannot enrol yet");
                        refusal
                    }
                },
                Err(error) => {
                    tracing::warn!(%address, error = %chain(&error), "cannot enrol yet");
                    Refusal::Other
                }
            };
            let wait = self.addresses.failed(&refusal);
            tokio::select! {
                biased;
                () = token.cancelled() => return Ok(None),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn ask(
        &self,
        join: &Join,
        request: &KeyRequest,
        address: &str,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<v1::CertificateResponse, Failure> {
        let io = self.connector.connect(address).await?;
        // The handshake fails here, before the token is sent, when the authority is not the expected one.
        let channel = transport::channel(io, tls).await?;
        let message = v1::EnrollRequest {
            token: join.token.reveal(),
            csr_der: request.csr_der().to_vec(),
            member_uid: self.member_uid.to_owned(),
            kubernetes_version: self.kubernetes_version.to_owned(),
            follows_authority: true,
        };
        let mut client = transport::client(channel);
        match tokio::time::timeout(CALL_LIMIT, client.enroll(message)).await {
            Ok(answer) => {
                Ok(answer.map_err(|status| Failure::Answer(Box::new(status)))?.into_inner())
            }
            Err(_) => Err(Failure::Timeout),
        }
    }
}

/// The error and its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}

/// Whether a renewed certificate is of the same authority as the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Authority {
    Same,
    Changed,
}

/// Inputs of renewals, without the connection.
#[derive(Clone)]
pub(crate) struct Renewal {
    /// Where the identity is stored.
    pub keeper: Keeper,
    /// The identity in use; a renewed one is used from the next connection on.
    pub identity: watch::Sender<Arc<MemberIdentity>>,
    /// Clock.
    pub clock: Clock,
    /// Age at which to renew.
    pub after: Duration,
    /// Jitter.
    pub jitter: Jitter,
    /// The controller asked for a renewal.
    pub asked: Arc<Notify>,
}

impl Renewal {
    /// Renews over this channel whenever due or asked. Returns when the authority changed: the next connection presents
    /// the certificate of the new one.
    pub(crate) async fn run(&self, channel: Channel) {
        let mut failures = 0;
        // A controller renews a certificate once an hour, and answers a repeated request again, because a reply may be
        // lost.
        let mut request = None;
        let mut asked = false;
        loop {
            let issued = self.identity.borrow().facts().not_before;
            let age = self.clock.now().duration_since(issued);
            let left = self.after.saturating_sub(Duration::try_from(age).unwrap_or_default());
            if !left.is_zero() && !asked {
                tokio::select! {
                    biased;
                    () = self.asked.notified() => asked = true,
                    () = tokio::time::sleep(left.min(LOOK)) => (),
                }
                continue;
            }
            match self.renew(channel.clone(), &mut request).await {
                Ok(Authority::Changed) => return,
                Ok(Authority::Same) => (failures, request, asked) = (0, None, false),
                Err(error) => {
                    tracing::warn!(%error, "cannot renew the certificate yet");
                    failures += 1;
                    tokio::time::sleep(RENEW_BACKOFF.half_jitter(failures, &self.jitter)).await;
                }
            }
        }
    }

    async fn renew(
        &self,
        channel: Channel,
        request: &mut Option<KeyRequest>,
    ) -> Result<Authority, String> {
        let text = |error: &dyn std::error::Error| chain(error);
        let request = match request {
            Some(request) => &*request,
            none => none.insert(KeyRequest::generate().map_err(|error| text(&error))?),
        };
        let message =
            v1::RenewRequest { csr_der: request.csr_der().to_vec(), follows_authority: true };
        let mut client = transport::client(channel);
        let answer = tokio::time::timeout(CALL_LIMIT, client.renew(message))
            .await
            .map_err(|_| Failure::Timeout.to_string())?
            .map_err(|status| status.to_string())?
            .into_inner();
        let authority = self.identity.borrow().authority_hash().map_err(|error| text(&error))?;
        let identity = MemberIdentity::from_response(request, &answer, &authority)
            .map_err(|error| text(&error))?;
        if identity.cluster_uid() != self.identity.borrow().cluster_uid() {
            return Err("the renewed certificate is for another cluster".to_owned());
        }
        let mut kept = self.keeper.load().await.map_err(|error| text(&error))?;
        kept.chain = identity.chain_pem();
        kept.key = identity.key_pem().to_owned();
        kept.cluster_name = answer.cluster_name;
        self.keeper.save(&kept).await.map_err(|error| text(&error))?;
        let now = identity.authority_hash().map_err(|error| text(&error))?;
        tracing::info!(until = %identity.facts().not_after, authority = %now, "renewed the certificate");
        self.identity.send_replace(Arc::new(identity));
        Ok(if now == authority { Authority::Same } else { Authority::Changed })
    }
}
