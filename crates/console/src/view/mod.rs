//! The pages as HTML. Pure: from [`crate::data`] to text, without clock, I/O or randomness. The templates escape every
//! string. No element has inline styles or scripts: the Content-Security-Policy forbids both.

mod act;
mod decisions;
mod member;
mod overview;
mod parts;
mod placement;
mod plan;
mod policies;
mod timeline;
mod workload;

use maud::{DOCTYPE, Markup, html};

pub use act::{done, preview};
pub use decisions::{decision, decisions, diff};
pub use member::member;
pub use overview::overview;
pub use placement::placement;
pub use plan::what_if;
pub use policies::policies;
pub use workload::{copy, workload};

/// What surrounds every page.
#[derive(Debug, Clone, Default)]
pub struct Chrome {
    /// Which hub is shown, for example its context.
    pub hub: String,
    /// No actions are offered.
    pub read_only: bool,
    /// What forms send back; empty without a session.
    pub csrf: String,
    /// The address of this page, for the navigation.
    pub path: String,
    /// What was done just now.
    pub done: Option<String>,
    /// Where changes of this page are announced.
    pub live: Option<String>,
}

/// The pages of the navigation.
const PAGES: [(&str, &str); 5] = [
    ("/", "Overview"),
    ("/placement", "Placement"),
    ("/decisions", "Decisions"),
    ("/policies", "Policies"),
    ("/what-if", "What if"),
];

/// What the head of each document has.
fn meta(title: &str) -> Markup {
    html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta name="color-scheme" content="light dark";
        title { (title) }
        link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
        link rel="stylesheet" href="/assets/style.css";
    }
}

/// A whole document.
#[must_use]
pub fn page(chrome: &Chrome, title: &str, body: Markup) -> String {
    let here = |path: &str| match path {
        "/" => chrome.path == "/",
        path => chrome.path.starts_with(path),
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (meta(&format!("{title} · Atoll")))
                script src="/assets/live.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to content" }
                header {
                    a.brand href="/" { "Atoll" }
                    nav aria-label="Pages" {
                        ul {
                            @for (path, name) in PAGES {
                                li { a href=(path) aria-current=[here(path).then_some("page")] { (name) } }
                            }
                        }
                    }
                    p.hub {
                        span.dim { "hub " } (chrome.hub)
                        @if chrome.read_only { " " span.tag { "read-only" } }
                        @if chrome.live.is_some() {
                            " " span #live-state.tag role="status" data-off="not live" data-on="live" data-late="reconnecting" { "not live" }
                        }
                    }
                }
                main #main tabindex="-1" data-live=[chrome.live.as_deref()] {
                    h1 { (title) }
                    @if let Some(done) = &chrome.done { p.done role="status" { (done) } }
                    (body)
                }
                footer { p { "Times are UTC. Every page shows what the hub lets its user see." } }
            }
        }
    }
    .into_string()
}

/// A page that says why another cannot be shown.
#[must_use]
pub fn fault(chrome: &Chrome, title: &str, why: &str) -> String {
    page(
        chrome,
        title,
        html! { p.fault role="alert" { (why) } p { a href="/" { "To the overview" } } },
    )
}

/// The page for visitors without a session.
#[must_use]
pub fn no_session() -> String {
    let how = "Open the address that `atoll console` or `atoll up` printed last. Each address opens one browser; after it \
               was used, the next one is printed.";
    html! {
        (DOCTYPE)
        html lang="en" {
            head { (meta("Atoll")) }
            body { main #main { h1 { "No session" } p { (how) } } }
        }
    }
    .into_string()
}
