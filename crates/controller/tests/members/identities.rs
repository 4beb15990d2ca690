//! Every call with every kind of identity, over sockets and TLS: exactly the allowed ones go through.

use std::time::Duration;

use atoll_controller::members::{Arrival, REVOKED_BEFORE, TOKEN_LIFE, create_token};
use atoll_protocol::ca::CertificateAuthority;
use atoll_protocol::identity::{ClusterUid, TrustDomain};
use atoll_protocol::member::{KeyRequest, MemberIdentity};
use atoll_protocol::token::BootstrapToken;
use atoll_protocol::v1::agent_message::Message as ToController;
use atoll_protocol::v1::agent_service_client::AgentServiceClient;
use atoll_protocol::{tls, transport, v1};
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::Channel;

use crate::agent::{Store, enrol, hello};
use crate::enrolment::identity;
use crate::rig::{Hub, Rig, eventually};

/// Callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// No certificate.
    Nobody,
    Member,
    /// Its certificate was revoked.
    Revoked,
    /// Its Cluster was deleted.
    Deleted,
    /// A uid that begins with the member's.
    Longer,
    /// A uid that is a prefix of the member's.
    Shorter,
    /// The member's own, expired a week ago.
    Expired,
    /// The member's uid, signed by another authority of the same name.
    OtherAuthority,
    /// The same from another trust domain.
    OtherDomain,
}

const EVERYBODY: [Who; 9] = [
    Who::Nobody,
    Who::Member,
    Who::Revoked,
    Who::Deleted,
    Who::Longer,
    Who::Shorter,
    Who::Expired,
    Who::OtherAuthority,
    Who::OtherDomain,
];

/// Contents of a certificate request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Nothing,
    AnotherName,
    ASubject,
}

const REQUESTS: [Asks; 3] = [Asks::Nothing, Asks::AnotherName, Asks::ASubject];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Fresh,
    /// Used before, with the same key.
    Again,
    /// Used before, with another key.
    Stolen,
    Ended,
    /// Never created.
    Unknown,
}

const TOKENS: [Token; 5] =
    [Token::Fresh, Token::Again, Token::Stolen, Token::Ended, Token::Unknown];

#[derive(Debug, Clone, Copy)]
enum Call {
    Enroll(Token, Asks),
    Renew(Asks),
    /// A session, with the uid of the member or of another one.
    Session {
        own: bool,
    },
}

/// The allowed cells; all others are refused, with this code. `None` = at the handshake.
fn expected(who: Who, call: Call) -> Option<Code> {
    let known = match who {
        Who::Expired | Who::OtherAuthority | Who::OtherDomain => return None,
        Who::Nobody => Code::Unauthenticated,
        Who::Revoked | Who::Deleted | Who::Longer | Who::Shorter => Code::PermissionDenied,
        Who::Member => Code::Ok,
    };
    let form = |asks| if asks == Asks::Nothing { Code::Ok } else { Code::InvalidArgument };
    Some(match call {
        // The token alone decides, not its sender.
        Call::Enroll(Token::Unknown, _) => Code::Unauthenticated,
        Call::Enroll(Token::Ended, _) => Code::PermissionDenied,
        Call::Enroll(Token::Stolen, Asks::Nothing) => Code::PermissionDenied,
        Call::Enroll(_, asks) => form(asks),
        Call::Renew(asks) if known == Code::Ok => form(asks),
        Call::Session { own: false } if known == Code::Ok => Code::PermissionDenied,
        Call::Renew(_) | Call::Session { .. } => known,
    })
}

/// A certificate request with this key.
fn request(key: &KeyRequest, asks: Asks) -> Vec<u8> {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    match asks {
        Asks::Nothing => return key.csr_der().to_vec(),
        Asks::AnotherName => {
            let name = "controller.example".to_owned().try_into().unwrap();
            params.subject_alt_names = vec![rcgen::SanType::DnsName(name)];
        }
        Asks::ASubject => params.distinguished_name.push(rcgen::DnType::CommonName, "admin"),
    }
    let key = rcgen::KeyPair::from_pem(&key.key_pem()).unwrap();
    params.serialize_request(&key).unwrap().der().to_vec()
}

struct Scene {
    rig: Rig,
    address: std::net::SocketAddr,
    /// In the order of [`EVERYBODY`], without `Nobody`.
    identities: Vec<MemberIdentity>,
    other: MemberIdentity,
}

impl Scene {
    fn identity(&self, who: Who) -> Option<&MemberIdentity> {
        let place = EVERYBODY.iter().position(|one| *one == who).unwrap();
        place.checked_sub(1).map(|place| &self.identities[place])
    }

    /// A separate connection for every call. `None` if the handshake fails.
    async fn connect(&self, who: Who) -> Option<AgentServiceClient<Channel>> {
        let clock = self.rig.hub.clock.clone();
        let tls = match self.identity(who) {
            Some(identity) => tls::member_config(identity, clock).unwrap(),
            None => {
                let hash = self.rig.members.authority().await.hash();
                tls::enrolment_config(hash, clock).unwrap()
            }
        };
        let io = TcpStream::connect(self.address).await.unwrap();
        transport::channel(io, tls).await.ok().map(transport::client)
    }

    async fn token(&self) -> BootstrapToken {
        let (hub, cluster) = (&self.rig.hub, self.rig.hub.clusters().get("member").await.unwrap());
        create_token(&hub.client, &hub.clock, &cluster, TOKEN_LIFE).await.unwrap()
    }

    /// Result of the call; `None` = no reply from the controller.
    async fn call(&self, who: Who, call: Call) -> Option<Code> {
        // In TLS 1.3 the client learns of a refused certificate after its side of the handshake.
        let code = |status: &tonic::Status| transport::answered(status).then_some(status.code());
        let key = KeyRequest::generate().unwrap();
        match call {
            Call::Enroll(token, asks) => {
                let text = self.prepared(token, &key).await;
                let mut client = self.connect(who).await?;
                let csr_der = request(&key, asks);
                match client.enroll(enrolment(&text, csr_der)).await {
                    Ok(_) => Some(Code::Ok),
                    Err(status) => code(&status),
                }
            }
            Call::Renew(asks) => {
                let mut client = self.connect(who).await?;
                let csr_der = request(&key, asks);
                match client.renew(v1::RenewRequest { csr_der, follows_authority: true }).await {
                    Ok(_) => Some(Code::Ok),
                    Err(status) => code(&status),
                }
            }
            Call::Session { own } => {
                let mut client = self.connect(who).await?;
                let claimed = match (own, self.identity(who)) {
                    (true, Some(identity)) => identity,
                    _ => &self.other,
                };
                let (outgoing, messages) = tokio::sync::mpsc::channel(1);
                let first = ToController::Hello(hello(claimed, "member", 1, &Store::default()));
                outgoing.send(v1::AgentMessage { message: Some(first) }).await.unwrap();
                let answers = match client.session(ReceiverStream::new(messages)).await {
                    Ok(answers) => answers,
                    Err(status) => return code(&status),
                };
                match answers.into_inner().message().await {
                    Ok(_) => Some(Code::Ok),
                    Err(status) => code(&status),
                }
            }
        }
    }

    /// A token in the named state.
    async fn prepared(&self, token: Token, key: &KeyRequest) -> String {
        if token == Token::Unknown {
            return BootstrapToken::generate().unwrap().reveal();
        }
        let made = self.token().await;
        let used = match token {
            Token::Again => Some(key.csr_der().to_vec()),
            Token::Stolen => Some(KeyRequest::generate().unwrap().csr_der().to_vec()),
            Token::Fresh | Token::Ended | Token::Unknown => None,
        };
        if let Some(csr_der) = used {
            let mut client = self.connect(Who::Nobody).await.unwrap();
            client.enroll(enrolment(&made.reveal(), csr_der)).await.unwrap();
        }
        if token == Token::Ended {
            let secrets: Api<Secret> = Api::namespaced(self.rig.hub.client.clone(), "atoll-system");
            let past = self.rig.hub.clock.now() - SignedDuration::from_secs(1);
            let data = json!({"data": {"expires": ByteString(past.to_string().into_bytes())}});
            let name = format!("bootstrap-token-{}", made.id().as_str());
            secrets.patch(&name, &PatchParams::default(), &Patch::Merge(data)).await.unwrap();
        }
        made.reveal()
    }
}

fn enrolment(token: &str, csr_der: Vec<u8>) -> v1::EnrollRequest {
    v1::EnrollRequest {
        token: token.to_owned(),
        csr_der,
        member_uid: "kube-system-member".into(),
        kubernetes_version: "v1.33.0".into(),
        follows_authority: true,
    }
}

/// Real sockets in front of the rig.
async fn listen(rig: &Rig) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, arrivals) = (listener.local_addr().unwrap(), rig.arrivals.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let arrival = Arrival { io: Box::new(stream), identity: None };
            if arrivals.send(arrival).await.is_err() {
                return;
            }
        }
    });
    address
}

#[tokio::test]
async fn exactly_the_allowed_cells_of_calls_and_identities() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    for name in ["member", "other", "revoked", "deleted"] {
        hub.register(name).await;
    }
    let (member, other) = (enrol(&rig, "member").await, enrol(&rig, "other").await);
    let (revoked, deleted) = (enrol(&rig, "revoked").await, enrol(&rig, "deleted").await);
    let authority = rig.members.authority().await;
    let now = hub.clock.now();
    let signed = |authority: &CertificateAuthority, uid: &str, at| {
        let (key, uid) = (KeyRequest::generate().unwrap(), ClusterUid::new(uid).unwrap());
        let issued = authority.sign_member(key.csr_der(), &uid, at).unwrap();
        identity(&key, issued.chain, &uid, authority)
    };
    let uid = member.cluster_uid().as_str().to_owned();
    let foreign = |domain| {
        let domain = TrustDomain::new(domain).unwrap();
        let authority = CertificateAuthority::create(&domain, now).unwrap();
        signed(&authority, &uid, now)
    };
    // Old enough to be renewed.
    let aged = signed(&authority, &uid, now - SignedDuration::from_hours(2));
    let identities = vec![
        aged,
        revoked,
        deleted,
        signed(&authority, &format!("{uid}a"), now),
        signed(&authority, &uid[..uid.len() - 1], now),
        signed(&authority, &uid, now - SignedDuration::from_hours(8 * 24)),
        foreign("atoll.test"),
        foreign("other.test"),
    ];
    // Revoked up to a moment that is just ahead: nothing has to be waited for.
    let ahead = now + SignedDuration::from_secs(3600);
    hub.annotate("revoked", REVOKED_BEFORE, &ahead.to_string()).await;
    hub.delete("deleted").await;
    hub.gone("deleted").await;
    let address = listen(&rig).await;
    let scene = Scene { rig, address, identities, other };
    let refused = async |who| {
        scene.call(who, Call::Renew(Asks::Nothing)).await == Some(Code::PermissionDenied)
    };
    // What the hub holds reaches the controller by its watch.
    eventually(async || refused(Who::Revoked).await && refused(Who::Deleted).await).await;

    let enrolments =
        TOKENS.into_iter().flat_map(|t| REQUESTS.into_iter().map(move |r| Call::Enroll(t, r)));
    let renewals = REQUESTS.into_iter().map(Call::Renew);
    let sessions = [true, false].into_iter().map(|own| Call::Session { own });
    let calls: Vec<_> = enrolments.chain(renewals).chain(sessions).collect();
    let mut wrong = Vec::new();
    for who in EVERYBODY {
        for call in &calls {
            let limit = Duration::from_secs(30);
            let answer = tokio::time::timeout(limit, scene.call(who, *call)).await.unwrap();
            if answer != expected(who, *call) {
                wrong.push(format!("{who:?} {call:?}: {answer:?}, not {:?}", expected(who, *call)));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
