//! One handler for each page: reads the address, asks the source, and calls the view.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::header::CONTENT_TYPE;
use http::{StatusCode, Uri};

use super::Console;
use super::gate::Csrf;
use crate::data::{Action, DecisionFilter, NO_NAMESPACE, PlacementFilter, WhatIf, WorkloadId};
use crate::query::{Fields, pairs};
use crate::source::Fault;
use crate::view::{self, Chrome};

type App = State<Arc<Console>>;
type Session = Extension<Csrf>;

/// What surrounds the page of a request.
struct Around<'a> {
    console: &'a Console,
    chrome: Chrome,
    fields: Fields,
}

impl<'a> Around<'a> {
    fn new(console: &'a Console, csrf: Csrf, path: impl Into<String>, query: Option<&str>) -> Self {
        let fields = Fields::read(query.unwrap_or_default().as_bytes());
        let chrome = Chrome {
            hub: console.settings.hub.clone(),
            read_only: console.settings.read_only,
            csrf: csrf.0,
            path: path.into(),
            done: view::done(fields.text("done")).map(str::to_owned),
            live: None,
        };
        Self { console, chrome, fields }
    }

    fn live(mut self, address: impl Into<String>) -> Self {
        self.chrome.live = Some(address.into());
        self
    }

    /// The page, or the page that says why there is none.
    fn show<T>(
        &self,
        answer: Result<T, Fault>,
        view: impl FnOnce(&Chrome, &T) -> String,
    ) -> Response {
        match answer {
            Ok(found) => html(StatusCode::OK, view(&self.chrome, &found)),
            Err(fault) => self.fault(&fault),
        }
    }

    fn fault(&self, fault: &Fault) -> Response {
        let (status, title) = match fault {
            Fault::NotFound(_) => (StatusCode::NOT_FOUND, "Not found"),
            Fault::Forbidden(_) => (StatusCode::FORBIDDEN, "Not allowed"),
            Fault::Invalid(_) => (StatusCode::BAD_REQUEST, "Cannot be read"),
            Fault::Failed(_) => (StatusCode::BAD_GATEWAY, "No answer"),
        };
        html(status, view::fault(&self.chrome, title, &fault.to_string()))
    }
}

fn html(status: StatusCode, text: String) -> Response {
    (status, [(CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

const FLEET: &str = "/events?topic=fleet";

pub(super) async fn overview(
    State(console): App,
    Extension(csrf): Session,
    RawQuery(query): RawQuery,
) -> Response {
    let around = Around::new(&console, csrf, "/", query.as_deref()).live(FLEET);
    let (members, concerns) = (around.fields.page("members"), around.fields.page("concerns"));
    let answer = console.read(console.source.overview(members, concerns)).await;
    around.show(answer, view::overview)
}

pub(super) async fn placement(
    State(console): App,
    Extension(csrf): Session,
    RawQuery(query): RawQuery,
) -> Response {
    let around = Around::new(&console, csrf, "/placement", query.as_deref()).live(FLEET);
    let fields = &around.fields;
    let filter = PlacementFilter {
        namespace: fields.given("namespace"),
        name: fields.given("name"),
        kind: fields.given("kind"),
        policy: fields.given("policy"),
        state: fields.given("state"),
        label: fields.given("label"),
        page: fields.page("page"),
        columns: fields.page("columns"),
    };
    let answer = console.read(console.source.placement(&filter)).await;
    around.show(answer, |chrome, found| view::placement(chrome, &filter, found))
}

pub(super) async fn workload(
    State(console): App,
    Extension(csrf): Session,
    Path((namespace, type_, name)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let of = WorkloadId::of_path(&namespace, &type_, &name);
    let around = Around::new(&console, csrf, of.path(), query.as_deref()).live(FLEET);
    let (shares, verdicts) = (around.fields.page("shares"), around.fields.page("verdicts"));
    let answer = console.read(console.source.workload(&of, shares, verdicts)).await;
    around.show(answer, view::workload)
}

pub(super) async fn copy(
    State(console): App,
    Extension(csrf): Session,
    Path((namespace, type_, name, member)): Path<(String, String, String, String)>,
) -> Response {
    let of = WorkloadId::of_path(&namespace, &type_, &name);
    let around = Around::new(&console, csrf, of.path(), None);
    let answer = console.read(console.source.copy(&of, &member)).await;
    around.show(answer, view::copy)
}

pub(super) async fn member(
    State(console): App,
    Extension(csrf): Session,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let path = crate::data::member_path(&name);
    let around = Around::new(&console, csrf, path, query.as_deref()).live(FLEET);
    let answer = console.read(console.source.member(&name, around.fields.page("page"))).await;
    around.show(answer, view::member)
}

/// The filter of an address.
pub(super) fn filter(fields: &Fields) -> DecisionFilter {
    DecisionFilter {
        namespace: fields.given("namespace"),
        kind: fields.given("kind"),
        name: fields.given("name"),
        trigger: fields.given("trigger"),
        outcome: fields.given("outcome"),
        member: fields.given("member"),
        since: fields.given("since"),
        until: fields.given("until"),
    }
}

pub(super) async fn decisions(
    State(console): App,
    Extension(csrf): Session,
    RawQuery(query): RawQuery,
) -> Response {
    let around = Around::new(&console, csrf, "/decisions", query.as_deref());
    let filter = filter(&around.fields);
    // New decisions are on the first page only.
    let around = match filter.until {
        Some(_) => around,
        None => {
            let names = ["namespace", "kind", "name", "trigger", "outcome", "member"];
            let given = names.map(|name| (name, around.fields.text(name).to_owned()));
            let mut all = vec![("topic", "decisions")];
            all.extend(given.iter().map(|(name, value)| (*name, value.as_str())));
            around.live(format!("/events{}", pairs(&all)))
        }
    };
    let answer = console.read(console.source.decisions(&filter)).await;
    around.show(answer, |chrome, found| view::decisions(chrome, &filter, found))
}

pub(super) async fn decision(
    State(console): App,
    Extension(csrf): Session,
    Path((namespace, id)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let around = Around::new(&console, csrf, "/decisions/", query.as_deref());
    let namespace = Some(namespace.as_str()).filter(|namespace| *namespace != NO_NAMESPACE);
    let page = around.fields.page("page");
    let answer = console.read(console.source.decision(namespace, &id, page)).await;
    around.show(answer, view::decision)
}

pub(super) async fn diff(
    State(console): App,
    Extension(csrf): Session,
    RawQuery(query): RawQuery,
) -> Response {
    let around = Around::new(&console, csrf, "/decisions/", query.as_deref());
    let (Some(from), Some(to)) = (around.fields.given("from"), around.fields.given("to")) else {
        let why = "give the ids of two decisions, or the beginning of them: from and to";
        return around.fault(&Fault::Invalid(why.to_owned()));
    };
    let answer = console.read(console.source.diff(&from, &to)).await;
    around.show(answer, view::diff)
}

pub(super) async fn policies(
    State(console): App,
    Extension(csrf): Session,
    RawQuery(query): RawQuery,
) -> Response {
    let around = Around::new(&console, csrf, "/policies", query.as_deref()).live(FLEET);
    let (page, findings) = (around.fields.page("page"), around.fields.page("findings"));
    let answer = console.read(console.source.policies(page, findings)).await;
    around.show(answer, view::policies)
}

fn asked(fields: &Fields) -> WhatIf {
    let text = |name: &str| fields.given(name).unwrap_or_default();
    WhatIf {
        without: text("without"),
        drain: text("drain"),
        taint: text("taint"),
        scale: text("scale"),
        objects: fields.text("objects").to_owned(),
    }
}

/// The form; with fields in its address, also the plan.
pub(super) async fn what_if(
    State(console): App,
    Extension(csrf): Session,
    RawQuery(query): RawQuery,
) -> Response {
    let around = Around::new(&console, csrf, "/what-if", query.as_deref());
    let ask = asked(&around.fields);
    answer_what_if(&around, &ask).await
}

pub(super) async fn plan(State(console): App, Extension(csrf): Session, body: Bytes) -> Response {
    let (around, fields) = match posted(&console, csrf, "/what-if", &body) {
        Ok(read) => read,
        Err(refused) => return *refused,
    };
    answer_what_if(&around, &asked(&fields)).await
}

async fn answer_what_if(around: &Around<'_>, ask: &WhatIf) -> Response {
    if ask.is_empty() {
        return html(StatusCode::OK, view::what_if(&around.chrome, ask, None));
    }
    let console = around.console;
    match console.planned(console.source.plan(ask)).await {
        Ok(plan) => html(StatusCode::OK, view::what_if(&around.chrome, ask, Some(Ok(&plan)))),
        // The form stays, so that nothing typed is lost.
        Err(Fault::Invalid(why) | Fault::NotFound(why) | Fault::Forbidden(why)) => {
            let text = view::what_if(&around.chrome, ask, Some(Err(&why)));
            html(StatusCode::UNPROCESSABLE_ENTITY, text)
        }
        Err(fault) => around.fault(&fault),
    }
}

/// The fields of a form that a page of this session sent.
fn posted<'a>(
    console: &'a Console,
    csrf: Csrf,
    path: &str,
    body: &Bytes,
) -> Result<(Around<'a>, Fields), Box<Response>> {
    let fields = Fields::read(body);
    let right = fields.text("csrf") == csrf.0;
    let around = Around::new(console, csrf, path, None);
    if !right {
        let why = "the form is not of this session: go back, load the page again and repeat it";
        return Err(Box::new(around.fault(&Fault::Forbidden(why.to_owned()))));
    }
    Ok((around, fields))
}

/// The action of an address or form.
fn action(verb: &str, fields: &Fields) -> Result<Action, Fault> {
    let needed = |name: &str| {
        let missing = || Fault::Invalid(format!("the field {name} is missing"));
        fields.given(name).ok_or_else(missing)
    };
    Ok(match verb {
        "cordon" => Action::Cordon(needed("member")?),
        "uncordon" => Action::Uncordon(needed("member")?),
        "drain" => Action::Drain(needed("member")?),
        "rebalance" => Action::Rebalance(WorkloadId::of_path(
            &needed("namespace")?,
            &needed("type")?,
            &needed("name")?,
        )),
        "confirm-lost" => Action::ConfirmLost,
        "approve" => Action::Approve(needed("plan")?),
        _ => return Err(Fault::NotFound("there is no such action".to_owned())),
    })
}

fn allowed(console: &Console) -> Result<(), Fault> {
    match console.settings.read_only {
        true => Err(Fault::Forbidden("this console is read-only".to_owned())),
        false => Ok(()),
    }
}

pub(super) async fn preview(
    State(console): App,
    Extension(csrf): Session,
    Path(verb): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let around = Around::new(&console, csrf, "/act/", query.as_deref());
    let action = match allowed(&console).and_then(|()| action(&verb, &around.fields)) {
        Ok(action) => action,
        Err(fault) => return around.fault(&fault),
    };
    let answer = console.planned(console.source.preview(&action)).await;
    around.show(answer, |chrome, plan| view::preview(chrome, &action, plan, None))
}

pub(super) async fn act(
    State(console): App,
    Extension(csrf): Session,
    Path(verb): Path<String>,
    body: Bytes,
) -> Response {
    let (around, fields) = match posted(&console, csrf, "/act/", &body) {
        Ok(read) => read,
        Err(refused) => return *refused,
    };
    let action = match allowed(&console).and_then(|()| action(&verb, &fields)) {
        Ok(action) => action,
        Err(fault) => return around.fault(&fault),
    };
    if fields.text("confirm").trim() != action.confirmation() {
        let answer = console.planned(console.source.preview(&action)).await;
        let why = format!("Nothing was done: type {} to confirm.", action.confirmation());
        return match answer {
            Ok(plan) => {
                let text = view::preview(&around.chrome, &action, &plan, Some(&why));
                html(StatusCode::UNPROCESSABLE_ENTITY, text)
            }
            Err(fault) => around.fault(&fault),
        };
    }
    match console.read(console.source.act(&action)).await {
        Ok(said) => {
            tracing::info!(verb, said, "done from the console");
            Redirect::to(&format!("{}?done={}", action.back(), action.verb())).into_response()
        }
        Err(fault) => around.fault(&fault),
    }
}

pub(super) async fn unknown(State(console): App, Extension(csrf): Session, uri: Uri) -> Response {
    let around = Around::new(&console, csrf, uri.path(), None);
    around.fault(&Fault::NotFound("there is no such page".to_owned()))
}
