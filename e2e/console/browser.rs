//! Debian's chromium, driven over its DevTools WebSocket.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::support::process::Process;

/// Limit of each step.
const LIMIT: Duration = Duration::from_secs(60);
/// Pause between two looks at a page: a browser has no event for every condition.
const LOOK: Duration = Duration::from_millis(50);
/// Largest answer: a screenshot.
const ANSWER: usize = 64 << 20;
/// Size of the window, in pixels.
const WINDOW: (u32, u32) = (1100, 760);
/// Largest screenshot, in bytes: they are kept in the repository.
const SHOT: usize = 150 * 1024;
/// The folder that screenshots are written to; without it they are only checked.
const FOLDER: &str = "ATOLL_SCREENSHOTS";

/// The browser's colours.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scheme {
    Light,
    Dark,
}

/// The answer to what was asked of a page that was left meanwhile.
const NAVIGATED: &str = "Inspected target navigated or closed";

/// A browser with one tab.
pub(crate) struct Browser {
    socket: WebSocketStream<TcpStream>,
    session: String,
    next: u64,
    /// What the browser reported: errors on the console, exceptions, refused resources.
    errors: Vec<String>,
    /// Addresses that it asked for.
    requests: Vec<String>,
    /// Id of the page that was loaded last.
    loaded: String,
    _process: Process,
    _profile: tempfile::TempDir,
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut files =
        std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
    files.find(|file| file.is_file())
}

impl Browser {
    /// Starts one; `None` if none is installed.
    pub(crate) async fn start() -> Option<Self> {
        let program = program()?;
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        command
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args([
                "--no-first-run",
                "--no-default-browser-check",
                "--disable-background-networking",
            ])
            .args(["--disable-component-update", "--disable-sync", "--disable-extensions"])
            // Nothing but loopback has a name.
            .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
            .args([
                "--hide-scrollbars",
                "--force-device-scale-factor=1",
                "--remote-debugging-port=0",
            ])
            .arg(format!("--window-size={},{}", WINDOW.0, WINDOW.1))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = Process::spawn("chromium", &mut command);
        let file = profile.path().join("DevToolsActivePort");
        let deadline = Instant::now() + LIMIT;
        let (port, path) = loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if let Some((port, path)) = text.split_once('\n')
                && path.starts_with('/')
            {
                break (port.parse::<u16>().unwrap(), path.trim().to_owned());
            }
            assert!(Instant::now() < deadline, "chromium did not start within {LIMIT:?}");
            tokio::time::sleep(LOOK).await;
        };
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let config =
            WebSocketConfig::default().max_message_size(Some(ANSWER)).max_frame_size(Some(ANSWER));
        let url = format!("ws://127.0.0.1:{port}{path}");
        let (socket, _) =
            tokio_tungstenite::client_async_with_config(url, stream, Some(config)).await.unwrap();
        let mut browser = Self {
            socket,
            session: String::new(),
            next: 0,
            errors: Vec::new(),
            requests: Vec::new(),
            loaded: String::new(),
            _process: process,
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach).await;
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        browser.call("Page.setLifecycleEventsEnabled", json!({"enabled": true})).await;
        browser.size(WINDOW.0, WINDOW.1).await;
        Some(browser)
    }

    /// One command and its result.
    async fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params).await;
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    /// One command, and its result or error.
    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        self.socket.send(Message::text(message.to_string())).await.unwrap();
        let answer = tokio::time::timeout(LIMIT, async {
            loop {
                let message = self.receive().await;
                if message["id"] == id {
                    break message;
                }
            }
        });
        answer.await.unwrap_or_else(|_| panic!("no answer to {method}"))
    }

    /// The next message; events are kept.
    async fn receive(&mut self) -> Value {
        let message = self.socket.next().await.expect("the browser runs").unwrap();
        let Message::Text(text) = message else { return Value::Null };
        let message: Value = serde_json::from_str(&text).unwrap();
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Page.lifecycleEvent") if params["name"] == "load" => {
                params["loaderId"].as_str().unwrap().clone_into(&mut self.loaded);
            }
            Some("Runtime.exceptionThrown") => {
                self.errors.push(params["exceptionDetails"].to_string())
            }
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                self.errors.push(params["entry"].to_string());
            }
            Some("Runtime.consoleAPICalled") if params["type"] == "error" => {
                self.errors.push(params.to_string());
            }
            Some("Network.requestWillBeSent") => {
                self.requests.push(params["request"]["url"].as_str().unwrap().to_owned());
            }
            _ => {}
        }
        message
    }

    /// Opens an address.
    pub(crate) async fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({"url": url})).await;
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        // A page that was opened by a click may still be loading: its event has another id.
        let loader = opened["loaderId"].as_str().unwrap();
        let loaded = async {
            while self.loaded != loader {
                self.receive().await;
            }
        };
        tokio::time::timeout(LIMIT, loaded).await.expect("the page loads");
    }

    /// The value of an expression on the page.
    pub(crate) async fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true});
        let result = self.call("Runtime.evaluate", params).await;
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Opens an address again until an expression is true there.
    pub(crate) async fn until_on(&mut self, url: &str, expression: &str, what: &str) {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.open(url).await;
            if self.evaluate(expression).await == json!(true) {
                return;
            }
            if Instant::now() > deadline {
                let text = self.evaluate("document.body.innerText").await;
                panic!("opened {url} for {LIMIT:?}, waiting for {what}; the page says: {text}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until an expression is true, also over loads of other pages.
    pub(crate) async fn until(&mut self, expression: &str, what: &str) {
        let deadline = Instant::now() + LIMIT;
        let guarded =
            format!("(() => {{ try {{ return {expression}; }} catch {{ return false; }} }})()");
        let params = json!({"expression": guarded, "returnByValue": true});
        loop {
            let answer = self.ask("Runtime.evaluate", params.clone()).await;
            // Another page was loaded meanwhile: it is asked next.
            let error = &answer["error"];
            assert!(error.is_null() || error["message"] == NAVIGATED, "{expression}: {error}");
            if answer["result"]["result"]["value"] == json!(true) {
                return;
            }
            if Instant::now() > deadline {
                let text = self.evaluate("document.body.innerText").await;
                let latest = self.requests.iter().rev().take(10).collect::<Vec<_>>();
                panic!(
                    "waited {LIMIT:?} for {what}; the page says: {text}; latest requests: {latest:?}; errors: {:?}",
                    self.errors
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Clicks where the first element is that a selector finds. It scrolls at once: pages scroll smoothly, so that the element
    /// would still move. A page that follows the hub may also put it elsewhere, until the button is down.
    pub(crate) async fn click(&mut self, selector: &str) {
        let find = format!(
            "(() => {{ const at = document.querySelector({}); if (!at) return null; at.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const box = at.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            json!(selector)
        );
        let pressed = format!("!!document.querySelector({})", json!(format!("{selector}:active")));
        let deadline = Instant::now() + LIMIT;
        loop {
            let there = format!("!!document.querySelector({})", json!(selector));
            self.until(&there, selector).await;
            let place = self.evaluate(&find).await;
            self.mouse("mousePressed", &place).await;
            if self.evaluate(&pressed).await == json!(true) {
                self.mouse("mouseReleased", &place).await;
                return;
            }
            // Released elsewhere than it was pressed, a button clicks nothing.
            self.mouse("mouseReleased", &json!([0, 0])).await;
            assert!(Instant::now() < deadline, "{selector} moves all the time");
        }
    }

    async fn mouse(&mut self, kind: &str, place: &Value) {
        let params =
            json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
        self.call("Input.dispatchMouseEvent", params).await;
    }

    async fn size(&mut self, width: u32, height: u32) {
        let params =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", params).await;
    }

    /// Takes a picture.
    pub(crate) async fn shot(&mut self, name: &str, scheme: Scheme) {
        let scheme = match scheme {
            Scheme::Light => "light",
            Scheme::Dark => "dark",
        };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features})).await;
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"})).await;
        let png = STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        assert!(png.len() > 5_000, "{name}: the picture shows something");
        assert!(png.len() < SHOT, "{name}: the picture has {} bytes", png.len());
        if let Some(folder) = std::env::var_os(FOLDER) {
            let folder = PathBuf::from(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(format!("{name}-{scheme}.png")), png).unwrap();
        }
    }

    /// What a screen reader reads has names: links, buttons, fields, and the page's regions.
    pub(crate) async fn names_everything(&mut self, page: &str) {
        let tree = self.call("Accessibility.getFullAXTree", json!({})).await;
        let mut named = 0;
        for node in tree["nodes"].as_array().unwrap() {
            let role = node["role"]["value"].as_str().unwrap_or_default();
            let wanted = [
                "link",
                "button",
                "textbox",
                "combobox",
                "region",
                "navigation",
                "table",
                "heading",
            ];
            if node["ignored"] == true || !wanted.contains(&role) {
                continue;
            }
            let name = node["name"]["value"].as_str().unwrap_or_default().trim();
            assert!(!name.is_empty(), "{page}: a {role} has no name: {node}");
            named += 1;
        }
        assert!(named > 5, "{page}: the tree was read");
    }

    /// On a narrow screen only tables and pictures scroll sideways, not the page.
    pub(crate) async fn fits_a_phone(&mut self, page: &str) {
        self.size(360, 740).await;
        let wide = self.evaluate("document.documentElement.scrollWidth").await;
        assert!(wide.as_u64().unwrap() <= 360, "{page} is {wide} pixels wide");
        self.size(WINDOW.0, WINDOW.1).await;
    }

    /// Opens a page with scripts switched off.
    pub(crate) async fn without_scripts(&mut self, url: &str) {
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
        self.open(url).await;
        let tree = self.call("Accessibility.getFullAXTree", json!({})).await;
        assert!(tree.to_string().contains("What needs attention"), "the page is readable");
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": false})).await;
    }

    /// Fails if the browser reported an error, or asked for anything elsewhere.
    pub(crate) fn complaints(&self, origin: &str) {
        assert!(self.errors.is_empty(), "{:#?}", self.errors);
        let own = |url: &&String| !url.starts_with(origin) && *url != "about:blank";
        let foreign: Vec<_> = self.requests.iter().filter(own).collect();
        assert!(foreign.is_empty(), "{foreign:?}");
        assert!(self.requests.len() > 10, "requests were seen");
    }
}
