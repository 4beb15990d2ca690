//! Members' APIs through three controllers, each behind a front proxy that the test is: all of them answer, and the end of
//! a leader is an error that clients try again after.

use std::net::SocketAddr;
use std::time::Duration;

use atoll_apiserver::pki::Authority;
use atoll_http::upgrade;
use futures::io::AsyncBufReadExt;
use futures::{AsyncBufRead, TryStreamExt};
use http::Request;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use kube::config::AuthInfo;
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::support::federation::{cluster_scoped, create};
use crate::support::kubelet::GREETING;
use crate::support::plane::Plane;
use crate::support::wait::LIMIT;

const NAME: &str = "atoll-api.atoll-system.svc";
/// Time between two attempts: a controller that starts needs the processor.
const PAUSE: Duration = Duration::from_millis(50);
const MEMBER: &str = "/apis/proxy.atoll.dev/v1alpha1/clusters/member1/proxy";
const FLEET: &str = "/apis/proxy.atoll.dev/v1alpha1/fleet/all/proxy";

/// The front proxy's authority, as the hub names it.
pub(crate) async fn front_proxy(plane: &Plane) -> Authority {
    let authority = Authority::open(&plane.folder.path().join("hub/front-proxy")).unwrap();
    let maps = crate::support::federation::objects(
        &plane.hub.client,
        "",
        "v1",
        "ConfigMap",
        "kube-system",
    );
    let name = "extension-apiserver-authentication";
    // A real API server has written it.
    if maps.get_opt(name).await.unwrap().is_none() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {
            "requestheader-client-ca-file": authority.certificate(),
            "requestheader-allowed-names": "[\"front-proxy-client\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        }});
        maps.create(&Default::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    }
    authority
}

/// jane, at the controller that serves there.
pub(crate) async fn jane(plane: &Plane, front: &Authority, address: SocketAddr) -> Client {
    let secrets: Api<Secret> = Api::namespaced(plane.hub.client.clone(), "atoll-system");
    let authority = secrets.get("atoll-ca").await.unwrap().data.unwrap();
    let pem = authority.values().find(|pem| pem.0.starts_with(b"-----BEGIN CERTIFICATE")).unwrap();
    let roots: Vec<_> = rustls::pki_types::pem::PemObject::pem_slice_iter(&pem.0)
        .map(|der: Result<rustls::pki_types::CertificateDer<'static>, _>| der.unwrap().to_vec())
        .collect();
    let mut config = Config::new(format!("https://{address}").parse().unwrap());
    config.root_cert = Some(roots);
    config.tls_server_name = Some(NAME.to_owned());
    // Each answer is looked at.
    config.default_retry = false;
    let shown = front.client("front-proxy-client", "front-proxy-client", &[]).unwrap();
    let base64 = |pem: &str| {
        let text = serde_json::to_value(ByteString(pem.as_bytes().to_vec())).unwrap();
        text.as_str().unwrap().to_owned()
    };
    config.auth_info = AuthInfo {
        client_certificate_data: Some(base64(&shown.certificate)),
        client_key_data: Some(base64(&shown.key).into()),
        ..AuthInfo::default()
    };
    for (header, value) in [("x-remote-user", "jane"), ("x-remote-group", "system:authenticated")] {
        config.headers.push((header.parse().unwrap(), value.parse().unwrap()));
    }
    Client::try_from(config).unwrap()
}

/// Rights of jane: on the hub to reach members, on the member to read.
pub(crate) async fn allow(client: &Client, rules: Value) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "jane"}, "rules": rules});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jane"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    for (kind, object) in [("ClusterRole", role), ("ClusterRoleBinding", binding)] {
        let api = cluster_scoped(client, "rbac.authorization.k8s.io", "v1", kind);
        create(&api, object).await;
    }
}

async fn get(client: &Client, path: &str) -> Result<Value, kube::Error> {
    client.request(Request::get(path).body(Vec::new()).unwrap()).await
}

/// The answer, once there is one. Until then the only errors are of these codes.
async fn answered(client: &Client, path: &str, until_then: &[u16]) -> Value {
    let attempts = async {
        loop {
            match get(client, path).await {
                Ok(answer) => return answer,
                Err(kube::Error::Api(status)) => {
                    assert!(until_then.contains(&status.code), "{status:?}");
                }
                // The listener is not there yet.
                Err(_) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(LIMIT, attempts).await.unwrap_or_else(|_| panic!("no answer: {path}"))
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// Opens a watch and reads its first event.
async fn watch(client: &Client) -> impl AsyncBufRead + Unpin + use<> {
    let path = format!("{MEMBER}/api/v1/nodes?watch=true");
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = http_body_util::BodyExt::into_data_stream(response.into_body());
    let mut lines = body.map_err(std::io::Error::other).into_async_read();
    let mut line = String::new();
    tokio::time::timeout(LIMIT, lines.read_line(&mut line)).await.unwrap().unwrap();
    assert!(line.contains("ADDED"), "{line}");
    lines
}

/// Opens a session in a pod over a WebSocket and reads its greeting.
async fn session(client: &Client) -> impl AsyncRead + Unpin + use<> {
    let path = format!("{MEMBER}/api/v1/namespaces/default/pods/web/exec?command=sh&stdout=true");
    let request = Request::get(path)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "v5.channel.k8s.io");
    let mut response = client.send(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 101);
    let connection = upgrade::take(response.extensions_mut()).unwrap();
    let mut io = connection.io().await.unwrap();
    let mut greeting = vec![0; GREETING.len()];
    tokio::time::timeout(LIMIT, io.read_exact(&mut greeting)).await.unwrap().unwrap();
    assert_eq!(greeting, GREETING);
    io
}

/// How a watch ends, and its last line.
async fn end(mut lines: impl AsyncBufRead + Unpin) -> (String, std::io::Result<()>) {
    let reading = async {
        let (mut last, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            match lines.read_line(&mut line).await {
                Ok(0) => return (last, Ok(())),
                Ok(_) => last.clone_from(&line),
                Err(error) => return (last, Err(error)),
            }
        }
    };
    tokio::time::timeout(LIMIT, reading).await.expect("it ends")
}

#[tokio::test(flavor = "multi_thread")]
async fn any_controller_answers_for_members_and_the_end_of_a_leader_is_an_error_to_try_again_after()
{
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut plane = Plane::start(3, 1, &[]).await;
    let front = front_proxy(&plane).await;
    plane.members[0].agent.take().unwrap().signal("-TERM");
    plane.members[0].words.push("--proxy".to_owned());
    plane.members[0].start_agent();
    let reach = json!([
        {"apiGroups": ["proxy.atoll.dev"], "resources": ["clusters/proxy"], "verbs": ["get", "create"]},
        {"apiGroups": ["proxy.atoll.dev"], "resources": ["fleet/proxy"], "verbs": ["get"]},
    ]);
    allow(&plane.hub.client, reach).await;
    let rights = json!([
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
    ]);
    allow(&plane.members[0].server.client, rights).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "image": "web"}]}});
    plane.members[0].server.create(pod).await;

    // The leader and both others answer alike.
    let nodes = format!("{MEMBER}/api/v1/nodes");
    let mut clients = Vec::new();
    let mut answers = Vec::new();
    for number in 0..3 {
        let client = jane(&plane, &front, plane.api(number)).await;
        // Rights and the front proxy's authority reach a controller after a while.
        let list = answered(&client, &nodes, &[401, 403, 503]).await;
        let all = answered(&client, &format!("{FLEET}/api/v1/nodes"), &[401, 403, 503]).await;
        assert_eq!(names(&list), names(&all));
        answers.push(names(&list).join(" "));
        clients.push(client);
    }
    assert!(
        !answers[0].is_empty() && answers.iter().all(|names| *names == answers[0]),
        "{answers:?}"
    );
    // What the member or the hub refuses stays refused, whichever controller is asked.
    for client in &clients {
        let refused = get(client, &format!("{MEMBER}/api/v1/secrets")).await.unwrap_err();
        assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");
        let unknown = get(client, &nodes.replace("member1", "moon")).await.unwrap_err();
        assert!(matches!(&unknown, kube::Error::Api(status) if status.code == 404), "{unknown}");
    }

    // The leader ends. Streams through the others break off, and new requests succeed after a while; until then every
    // answer is one to try again after.
    let (first, _) = plane.leader(&[]).await;
    let others: Vec<usize> = (0..3).filter(|number| *number != first).collect();
    let mut streams = Vec::new();
    for number in &others {
        streams.push(watch(&clients[*number]).await);
    }
    // Real API servers have no kubelets here.
    let mut sessions = Vec::new();
    if atoll_envtest::assets().is_none() {
        for number in &others {
            sessions.push(session(&clients[*number]).await);
        }
    }
    let process = plane.controllers[first].take().unwrap();
    let leaving = tokio::task::spawn_blocking(move || process.signal("-TERM"));
    for stream in streams {
        let (last, end) = end(stream).await;
        assert!(end.is_err(), "a stream that broke off must not look complete");
        let event: Value = serde_json::from_str(&last).unwrap();
        let status = &event["object"];
        assert_eq!((&event["type"], &status["code"]), (&json!("ERROR"), &json!(503)), "{event}");
        assert_eq!(status["details"]["retryAfterSeconds"], 1, "{event}");
        assert!(status["message"].as_str().unwrap().contains("run the command again"), "{event}");
    }
    // A session ends with its result, and with the close code of a server that restarts.
    for mut session in sessions {
        let mut rest = Vec::new();
        tokio::time::timeout(LIMIT, session.read_to_end(&mut rest)).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&rest);
        assert!(rest[0] == 0x82 && text.contains("\u{3}{\""), "{text}");
        assert_eq!(text.matches("run the command again").count(), 2, "{text}");
        let close = rest.windows(2).any(|code| code == 1012_u16.to_be_bytes());
        assert!(close, "{rest:?}");
    }
    for number in &others {
        // Clients try again after this one, and after no other.
        let list = answered(&clients[*number], &nodes, &[503]).await;
        assert_eq!(names(&list).join(" "), answers[0]);
    }
    let (took, code) = leaving.await.unwrap();
    assert!(code == Some(0) && took < Duration::from_secs(10), "{took:?}");
}
