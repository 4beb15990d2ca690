//! Members' APIs through three controllers, each behind a front proxy that the test is: all of them answer, and the end of
//! a leader is an error that clients try again after.

use std::net::SocketAddr;
use std::time::Duration;

use atoll_apiserver::pki::Authority;
use futures::io::AsyncBufReadExt;
use futures::{AsyncBufRead, TryStreamExt};
use http::Request;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use kube::config::AuthInfo;
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::support::plane::Plane;
use crate::support::wait::LIMIT;

const NAME: &str = "atoll-api.atoll-system.svc";
const MEMBER: &str = "/apis/proxy.atoll.dev/v1alpha1/clusters/member1/proxy";
const FLEET: &str = "/apis/proxy.atoll.dev/v1alpha1/fleet/all/proxy";

/// The front proxy's authority, as the hub names it.
async fn front_proxy(plane: &Plane) -> Authority {
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
async fn jane(plane: &Plane, front: &Authority, address: SocketAddr) -> Client {
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
async fn allow(client: &Client, rules: Value) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "jane"}, "rules": rules});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jane"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    for (kind, object) in [("ClusterRole", role), ("ClusterRoleBinding", binding)] {
        let resource = kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk(
            "rbac.authorization.k8s.io",
            "v1",
            kind,
        ));
        let api: Api<kube::api::DynamicObject> = Api::all_with(client.clone(), &resource);
        api.create(&Default::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
}

async fn get(client: &Client, path: &str) -> Result<Value, kube::Error> {
    client.request(Request::get(path).body(Vec::new()).unwrap()).await
}

/// The answer, once there is one. Until then the only errors are those that clients try again after.
async fn answered(client: &Client, path: &str) -> Value {
    let attempts = async {
        loop {
            match get(client, path).await {
                Ok(answer) => return answer,
                Err(kube::Error::Api(status)) => {
                    assert!([401, 403, 503].contains(&status.code), "{status:?}");
                }
                // The listener is not there yet.
                Err(_) => {}
            }
            tokio::task::yield_now().await;
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

/// How a watch ends.
async fn end(mut lines: impl AsyncBufRead + Unpin) -> std::io::Result<()> {
    let reading = async {
        let mut line = String::new();
        loop {
            line.clear();
            if lines.read_line(&mut line).await? == 0 {
                return Ok(());
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
        {"apiGroups": ["proxy.atoll.dev"], "resources": ["clusters/proxy"], "verbs": ["get"]},
        {"apiGroups": ["proxy.atoll.dev"], "resources": ["fleet/proxy"], "verbs": ["get"]},
    ]);
    allow(&plane.hub.client, reach).await;
    let read =
        json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]);
    allow(&plane.members[0].server.client, read).await;

    // The leader and both others answer alike.
    let nodes = format!("{MEMBER}/api/v1/nodes");
    let mut clients = Vec::new();
    let mut answers = Vec::new();
    for number in 0..3 {
        let client = jane(&plane, &front, plane.api(number)).await;
        let list = answered(&client, &nodes).await;
        let all = answered(&client, &format!("{FLEET}/api/v1/nodes")).await;
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
    let process = plane.controllers[first].take().unwrap();
    let leaving = tokio::task::spawn_blocking(move || process.signal("-TERM"));
    for stream in streams {
        assert!(end(stream).await.is_err(), "a stream that broke off must not look complete");
    }
    for number in &others {
        let list = answered(&clients[*number], &nodes).await;
        assert_eq!(names(&list).join(" "), answers[0]);
    }
    let (took, code) = leaving.await.unwrap();
    assert!(code == Some(0) && took < Duration::from_secs(10), "{took:?}");
}
