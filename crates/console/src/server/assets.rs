//! The files that pages refer to. They are part of the program.

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;

const FILES: [(&str, &str, &str); 3] = [
    ("style.css", "text/css; charset=utf-8", include_str!("../../assets/style.css")),
    ("live.js", "text/javascript; charset=utf-8", include_str!("../../assets/live.js")),
    ("icon.svg", "image/svg+xml", include_str!("../../assets/icon.svg")),
];

pub(super) async fn asset(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(file, ..)| *file == name) {
        Some((_, kind, text)) => ([(CONTENT_TYPE, *kind)], *text).into_response(),
        None => (StatusCode::NOT_FOUND, "no such file").into_response(),
    }
}
