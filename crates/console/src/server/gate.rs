//! What every request must pass: the right host, the right origin, a session. And the headers of every answer.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, ORIGIN, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::Console;
use crate::query::Fields;
use crate::view;

/// Scripts, styles and images are files of the console; nothing is inline, nothing comes from elsewhere, and no other page
/// may show it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// Headers of every answer. Pages contain what a user may see, so nothing stores them. The referrer policy is not
/// `no-referrer`: with that, browsers send `Origin: null` with forms.
const HEADERS: [(HeaderName, &str); 8] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "same-origin"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];
/// Where a request of a browser comes from, in relation to us.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The CSRF token of the session of a request.
#[derive(Debug, Clone)]
pub(super) struct Csrf(pub(super) String);

/// Checks host and origin.
pub(super) async fn request(
    State(console): State<Arc<Console>>,
    request: Request,
    next: Next,
) -> Response {
    let mut answer = match refused(&console, request.method(), request.headers()) {
        Some((status, why)) => (status, why).into_response(),
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn refused(
    console: &Console,
    method: &Method,
    headers: &HeaderMap,
) -> Option<(StatusCode, &'static str)> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // A page of another site whose name resolves to this address sends its own name.
    let host = match text(&HOST).filter(|host| console.hosts.iter().any(|own| own == host)) {
        Some(host) if headers.get_all(HOST).iter().count() == 1 => host,
        _ => return Some((StatusCode::MISDIRECTED_REQUEST, "this console has another host name")),
    };
    let reads = matches!(*method, Method::GET | Method::HEAD);
    if !reads && *method != Method::POST {
        return Some((StatusCode::METHOD_NOT_ALLOWED, "only GET, HEAD and POST"));
    }
    let own = format!("http://{host}");
    let foreign = match text(&ORIGIN) {
        Some(origin) => origin != own,
        // Browsers send it with every POST.
        None => !reads || headers.contains_key(ORIGIN),
    };
    let foreign_site = text(&FETCH_SITE).is_some_and(|site| site != "same-origin");
    if foreign || (!reads && foreign_site) {
        return Some((StatusCode::FORBIDDEN, "the request comes from another site"));
    }
    None
}

/// Finds the session, or opens one with a token.
pub(super) async fn session(
    State(console): State<Arc<Console>>,
    mut request: Request,
    next: Next,
) -> Response {
    if request.method() == Method::GET && request.uri().path() == "/" {
        let fields = Fields::read(request.uri().query().unwrap_or_default().as_bytes());
        if let Some(token) = fields.given("token") {
            return enter(&console, &token);
        }
    }
    let found =
        cookies(request.headers()).find_map(|(name, value)| console.sessions.find(name, value));
    match found {
        Some(csrf) => {
            request.extensions_mut().insert(Csrf(csrf));
            next.run(request).await
        }
        None => no_session(),
    }
}

fn no_session() -> Response {
    let kind = [(CONTENT_TYPE, "text/html; charset=utf-8")];
    (StatusCode::UNAUTHORIZED, kind, view::no_session()).into_response()
}

/// Exchanges the token for a cookie. The redirect takes the token out of the address bar and the history.
fn enter(console: &Console, token: &str) -> Response {
    match console.sessions.enter(token) {
        Some((cookie, next)) => {
            if let Some(next) = next {
                (console.settings.announce)(&next);
            }
            ([(SET_COOKIE, cookie)], Redirect::to("/")).into_response()
        }
        None => no_session(),
    }
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
}
