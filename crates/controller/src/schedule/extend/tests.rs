//! The order of the extension points, with plugins that record their calls.

use atoll_scheduler::Profile;
use serde_json::json;

use super::*;
use crate::commit::Action;
use crate::index::binding_object::BindingObject;
use crate::testing::hub::Hub;

type Log = Arc<Mutex<Vec<String>>>;

/// A plugin with scripted results.
#[derive(Default)]
struct Scripted {
    name: &'static str,
    log: Log,
    reserve: Option<&'static str>,
    permit: Option<Permit>,
    /// Answer given while others are waited for.
    later: Option<Result<(), String>>,
    pre_bind: Option<&'static str>,
    skips: bool,
    loses: bool,
}

impl Scripted {
    fn note(&self, what: &str) {
        self.log.lock().unwrap().push(format!("{what} {}", self.name));
    }
}

impl Extension for Scripted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pre_enqueue(&self, _: &Gate<'_>) -> Result<(), String> {
        self.reserve.map_or(Ok(()), |why| Err(why.to_owned()))
    }

    fn reserve(&self, _: &Passage) -> Result<(), String> {
        self.note("reserve");
        self.reserve.map_or(Ok(()), |why| Err(why.to_owned()))
    }

    fn unreserve(&self, _: &Passage) {
        self.note("unreserve");
    }

    fn permit(&self, _: &Passage, answer: Answer) -> Permit {
        self.note("permit");
        match self.later.clone() {
            Some(Ok(())) => answer.allow(),
            Some(Err(why)) => answer.deny(why),
            None => {}
        }
        self.permit.clone().unwrap_or(Permit::Allow)
    }

    fn pre_bind<'a>(&'a self, _: &'a Passage) -> Later<'a, Result<(), String>> {
        self.note("preBind");
        let answer = self.pre_bind.map_or(Ok(()), |why| Err(why.to_owned()));
        Box::pin(std::future::ready(answer))
    }

    fn bind<'a>(&'a self, _: &'a Passage) -> Later<'a, Option<Ended>> {
        self.note("bind");
        let written = Ended::Written(stored_by(self.name));
        let ended = if self.loses { Ended::Conflict } else { written };
        Box::pin(std::future::ready((!self.skips).then_some(ended)))
    }

    fn post_bind(&self, _: &Passage) {
        self.note("postBind");
    }
}

/// The binding that a plugin wrote.
fn stored_by(plugin: &str) -> BindingObject {
    serde_json::from_value(json!({"metadata": {"name": plugin}})).unwrap()
}

const POINTS: [Point; 6] = [
    Point::PreEnqueue,
    Point::Reserve,
    Point::Permit,
    Point::PreBind,
    Point::Bind,
    Point::PostBind,
];

/// Passes a decision through plugins that are enabled at every point, without the built-in ones.
async fn carried(plugins: impl IntoIterator<Item = Scripted>) -> (Ended, Vec<String>) {
    let log = Log::default();
    let mut profile = Profile::default();
    profile.name = "scripted".to_owned();
    profile.enable(Point::QueueSort, "PrioritySort");
    let mut further: Vec<Arc<dyn Extension>> = Vec::new();
    for plugin in plugins {
        POINTS.iter().for_each(|point| profile.enable(*point, plugin.name));
        further.push(Arc::new(Scripted { log: log.clone(), ..plugin }));
    }
    let mut profiles = Profiles::default();
    profiles.insert(profile);
    let extensions = Extensions::new(&profiles, &further).unwrap();
    let ended = extensions.carry("scripted", &passage().await).await;
    let lines = log.lock().unwrap().clone();
    (ended, lines)
}

async fn passage() -> Passage {
    let hub = Hub::open().await;
    let key = BindingKey::new("shop", "web-deployment");
    let write = Write { key, action: Action::Patch(json!({})), decision: None };
    Passage { client: hub.spied().0, write }
}

fn plugin(name: &'static str) -> Scripted {
    Scripted { name, ..Scripted::default() }
}

fn why(ended: &Ended) -> &str {
    match ended {
        Ended::Held(why) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn all_points_run_in_order_and_the_first_bind_that_does_not_skip_wins() {
    let first = Scripted { skips: true, ..plugin("a") };
    let (ended, log) = carried([first, plugin("b"), plugin("c")]).await;
    assert_eq!(ended, Ended::Written(stored_by("b")));
    let expected = [
        "reserve a",
        "reserve b",
        "reserve c",
        "permit a",
        "permit b",
        "permit c",
        "preBind a",
        "preBind b",
        "preBind c",
        "bind a",
        "bind b",
        "postBind a",
        "postBind b",
        "postBind c",
    ];
    assert_eq!(log, expected, "nothing is unreserved, c does not bind");
}

#[tokio::test(start_paused = true)]
async fn a_failed_reserve_unreserves_all_in_reverse_also_who_has_not_reserved() {
    let (ended, log) =
        carried([plugin("a"), Scripted { reserve: Some("full"), ..plugin("b") }, plugin("c")])
            .await;
    assert_eq!(why(&ended), "b: full");
    assert_eq!(log, ["reserve a", "reserve b", "unreserve c", "unreserve b", "unreserve a"]);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_denied_unreserves_in_reverse() {
    let denies = Scripted { permit: Some(Permit::Deny("not on Fridays".into())), ..plugin("b") };
    let (ended, log) = carried([plugin("a"), denies]).await;
    assert_eq!(why(&ended), "b: not on Fridays");
    assert_eq!(log[2..], ["permit a", "permit b", "unreserve b", "unreserve a"]);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_waits_goes_on_once_all_have_allowed() {
    let waits = |name, later| Scripted {
        permit: Some(Permit::Wait(Duration::from_secs(60))),
        later: Some(later),
        ..plugin(name)
    };
    let (ended, _) = carried([waits("a", Ok(())), waits("b", Ok(()))]).await;
    assert!(matches!(ended, Ended::Written(_)), "{ended:?}");
    let (ended, log) = carried([waits("a", Ok(())), waits("b", Err("no".into()))]).await;
    assert_eq!(why(&ended), "b: no");
    assert_eq!(log[4..], ["unreserve b", "unreserve a"]);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_nobody_gives_is_denied_after_its_time_and_after_15_minutes_at_most() {
    for (asked, waited) in [(30, 30), (100_000, 15 * 60)] {
        let begun = Instant::now();
        let waits =
            Scripted { permit: Some(Permit::Wait(Duration::from_secs(asked))), ..plugin("a") };
        let (ended, log) = carried([waits]).await;
        assert_eq!(why(&ended), "a: no permit was given in time");
        let passed = begun.elapsed().as_secs();
        assert!((waited..waited + 30).contains(&passed), "{passed} s for {waited} s");
        assert_eq!(log, ["reserve a", "permit a", "unreserve a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_pre_bind_and_a_write_that_does_not_arrive_unreserve() {
    let (ended, log) =
        carried([plugin("a"), Scripted { pre_bind: Some("no volume"), ..plugin("b") }]).await;
    assert_eq!(why(&ended), "b: no volume");
    assert_eq!(log[6..], ["unreserve b", "unreserve a"]);
    let (ended, log) = carried([Scripted { loses: true, ..plugin("a") }]).await;
    assert_eq!(ended, Ended::Conflict);
    assert_eq!(log[3..], ["bind a", "unreserve a"], "PostBind is not for what is not there");
    let (ended, _) = carried([Scripted { skips: true, ..plugin("a") }]).await;
    assert_eq!(why(&ended), "no plugin at extension point bind writes");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_passage_is_unreserved() {
    let waits = Scripted { permit: Some(Permit::Wait(LONGEST_PERMIT)), ..plugin("a") };
    let log = waits.log.clone();
    let mut profile = Profile::default();
    profile.name = "scripted".to_owned();
    profile.enable(Point::QueueSort, "PrioritySort");
    [Point::Reserve, Point::Permit].iter().for_each(|point| profile.enable(*point, "a"));
    let mut profiles = Profiles::default();
    profiles.insert(profile);
    let extensions = Extensions::new(&profiles, &[Arc::new(waits)]).unwrap();
    let passage = passage().await;
    let carry =
        tokio::time::timeout(Duration::from_secs(1), extensions.carry("scripted", &passage));
    assert!(carry.await.is_err(), "leadership is lost while it waits");
    assert_eq!(*log.lock().unwrap(), ["reserve a", "permit a", "unreserve a"]);
}

#[test]
fn profiles_say_which_plugins_run() {
    let key = BindingKey::new("shop", "web-deployment");
    let template = json!({});
    let gate = |suspended| Gate {
        key: &key,
        template: atoll_scheduler::detect::Whole::Here(&template),
        decided: false,
        suspended,
        no_priority: None,
        missing_overrides: &[],
    };
    let config = atoll_scheduler::SchedulerConfiguration::read(
        "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n- schedulerName: open\n  plugins:\n    preEnqueue: {disabled: [{name: SchedulingGates}]}\n    bind: {disabled: [{name: '*'}]}\n",
    )
    .unwrap();
    let extensions = Extensions::new(&Profiles::read(&config).unwrap(), &[]).unwrap();
    for profile in ["", "default", "karmada"] {
        assert!(extensions.gate(profile, &gate(true)).is_err(), "{profile}");
        assert_eq!(extensions.gate(profile, &gate(false)), Ok(()));
        assert_eq!(extensions.at(profile, Point::Bind)[0].name(), "DefaultBinder");
    }
    assert_eq!(extensions.gate("open", &gate(true)), Ok(()));
    assert!(extensions.at("open", Point::Bind).is_empty());
}

#[test]
fn there_is_one_queue_and_so_one_order_in_all_profiles() {
    let named = |name| Arc::new(plugin(name)) as Arc<dyn Extension>;
    let with = |sorts: &[&'static str]| {
        let mut profiles = Profiles::default();
        let mut profile = (**profiles.get("karmada").unwrap()).clone();
        profile.clear(Point::QueueSort);
        sorts.iter().for_each(|sort| profile.enable(Point::QueueSort, sort));
        profiles.insert(profile);
        Extensions::new(&profiles, &[named("a")]).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(with(&["PrioritySort"]), Ok(()));
    for (sorts, theirs) in [
        (&["a"][..], "karmada\": plugins.queueSort: a where profile \"default\" has PrioritySort"),
        (&["a", "PrioritySort"], "plugins.queueSort: a, PrioritySort"),
        (&[], "plugins.queueSort: no plugin"),
        (&["nobody"], "plugins.queueSort: no plugin"),
    ] {
        let error = with(sorts).unwrap_err();
        assert!(error.contains(theirs), "{error}");
    }
}
