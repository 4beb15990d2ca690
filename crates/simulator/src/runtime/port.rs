//! The ports of a simulated pod: each answers HTTP requests with a page about the pod.

use std::fmt::Write;

use serde_json::Value;

use crate::index::fields::{int, list, text};

/// Longest head of a request in bytes.
const HEAD: usize = 16 << 10;

/// What listens on a port of a pod: its container, and the name of the port.
struct Listener<'a> {
    container: &'a str,
    name: Option<&'a str>,
}

/// The TCP ports that the containers of a pod declare, in order.
fn declared(pod: &Value) -> impl Iterator<Item = (i64, Listener<'_>)> {
    // Init containers that keep running are sidecars.
    let sidecars = list(pod, "/spec/initContainers").iter();
    let sidecars = sidecars.filter(|one| text(one, "/restartPolicy") == Some("Always"));
    list(pod, "/spec/containers").iter().chain(sidecars).flat_map(|one| {
        let container = text(one, "/name").unwrap_or_default();
        let ports = list(one, "/ports").iter();
        let ports = ports.filter(|port| text(port, "/protocol").unwrap_or("TCP") == "TCP");
        ports.filter_map(move |port| {
            let listener = Listener { container, name: text(port, "/name") };
            Some((int(port, "/containerPort")?, listener))
        })
    })
}

/// Whether something listens on a port of the pod; otherwise the reason.
///
/// # Errors
/// When no container declares the port.
pub fn check_port(pod: &Value, port: u16) -> Result<(), String> {
    let all: Vec<i64> = declared(pod).map(|(number, _)| number).collect();
    if all.contains(&i64::from(port)) {
        return Ok(());
    }
    let known: Vec<String> = all.iter().map(ToString::to_string).collect();
    Err(format!(
        "connection refused: no container of the simulated pod declares TCP port {port} in spec.containers[].ports; declared: {}",
        if known.is_empty() { "none".to_owned() } else { known.join(", ") }
    ))
}

/// The answer of a port to an HTTP request; `None` while its head is not complete.
#[must_use]
pub fn answer_http(pod: &Value, port: u16, request: &[u8]) -> Option<Vec<u8>> {
    let end = request.windows(4).take(HEAD).position(|bytes| bytes == b"\r\n\r\n");
    let Some(end) = end else {
        let why = "the head of the request has more than 16 KiB\n";
        return (request.len() > HEAD)
            .then(|| response("431 Request Header Fields Too Large", why, true));
    };
    let head = String::from_utf8_lossy(&request[..end]);
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, path, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(path), Some("HTTP/1.1" | "HTTP/1.0")) = (method, path, version) else {
        return Some(response("400 Bad Request", "a simulated pod answers HTTP/1.1\n", true));
    };
    let with_body = match method {
        "HEAD" => false,
        "GET" => true,
        _ => {
            let why = "a simulated pod answers GET and HEAD\n";
            return Some(response("405 Method Not Allowed", why, true));
        }
    };
    Some(response("200 OK", &page(pod, port, path), with_body))
}

fn page(pod: &Value, port: u16, path: &str) -> String {
    let of = |pointer| text(pod, pointer).unwrap_or_default();
    let mut page = String::from("A simulated pod answers.\n\n");
    let mut line = |name: &str, value: &str| {
        // Writing into a text does not fail.
        let _ = writeln!(page, "{name:<10} {value}");
    };
    line("namespace", of("/metadata/namespace"));
    line("pod", of("/metadata/name"));
    line("node", of("/spec/nodeName"));
    line("address", of("/status/podIP"));
    let here = declared(pod).find(|(number, _)| *number == i64::from(port));
    if let Some((_, Listener { container, name })) = here {
        line("container", container);
        let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
        line("port", &format!("{port}{name}"));
    }
    let path: String = path.chars().filter(|c| !c.is_control()).collect();
    line("path", &path);
    page
}

fn response(status: &str, body: &str, with_body: bool) -> Vec<u8> {
    let size = body.len();
    let body = if with_body { body } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {size}\r\n\
         Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": "web-0"},
            "spec": {
                "nodeName": "node-1",
                "containers": [{"name": "main", "ports": [
                    {"containerPort": 8080, "name": "http", "protocol": "TCP"},
                    {"containerPort": 53, "protocol": "UDP"},
                ]}],
                "initContainers": [
                    {"name": "once", "ports": [{"containerPort": 1}]},
                    {"name": "mesh", "restartPolicy": "Always", "ports": [{"containerPort": 9090}]},
                ],
            },
            "status": {"podIP": "10.0.0.7"},
        })
    }

    #[test]
    fn ports_that_containers_declare_answer_with_a_page_about_the_pod() {
        let pod = pod();
        let answer = |request: &str| {
            let answer = answer_http(&pod, 8080, request.as_bytes());
            answer.map(|answer| String::from_utf8(answer).unwrap())
        };
        assert_eq!(answer("GET / HTTP/1.1\r\nHost: x\r\n"), None, "the head is not complete");
        let page = answer("GET /shop?x=1 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let (head, body) = page.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        for line in ["pod        web-0", "port       8080 (http)", "path       /shop?x=1"] {
            assert!(body.lines().any(|found| found == line), "{body}");
        }
        assert!(answer("HEAD / HTTP/1.1\r\n\r\n").unwrap().ends_with("\r\n\r\n"));
        for (request, status) in [
            ("POST / HTTP/1.1\r\n\r\n", "405"),
            ("GET /\r\n\r\n", "400"),
            ("\x16\x03\x01\r\n\r\n", "400"),
            (&"x".repeat(HEAD + 1), "431"),
        ] {
            let found = answer(request).unwrap();
            assert!(found.starts_with(&format!("HTTP/1.1 {status} ")), "{found}");
        }
    }

    #[test]
    fn other_ports_refuse_and_name_those_that_are_declared() {
        assert_eq!(check_port(&pod(), 8080), Ok(()));
        assert_eq!(check_port(&pod(), 9090), Ok(()));
        for port in [1, 53, 81] {
            let why = check_port(&pod(), port).unwrap_err();
            assert!(why.contains(&format!("TCP port {port}")), "{why}");
            assert!(why.ends_with("declared: 8080, 9090"), "{why}");
        }
        assert!(check_port(&json!({}), 80).unwrap_err().ends_with("declared: none"));
    }
}
