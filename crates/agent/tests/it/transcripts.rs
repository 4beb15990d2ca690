//! Controllers of every released version, played from their transcripts, to this agent.

use std::collections::BTreeMap;

use atoll_protocol::v1::agent_message::Message as Said;
use atoll_protocol::v1::controller_message::Message as Told;
use atoll_stub_agent::transcript::{self, Line, RESULT, Step};

use crate::setup::Setup;

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/shop/configmaps/{name}")
}

#[tokio::test(start_paused = true)]
async fn controllers_of_every_released_version_are_obeyed() {
    for (name, lines) in transcript::all() {
        play(&name, &lines).await;
    }
}

/// Plays the controller of a transcript. The uids of its orders are those of its member.
async fn play(name: &str, lines: &[Line]) {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.arrival(0).await;
    // From the recorded uid of an object to its uid here.
    let mut uids: BTreeMap<String, String> = BTreeMap::new();
    for line in lines {
        match line {
            Line::Step(Step::DeleteOnMember(object)) => setup.member.delete(&path(object)).await,
            Line::Step(_) => {}
            Line::Controller(message) => {
                let mut message = message.clone();
                if let Some(Told::Remove(remove)) = &mut message.message
                    && let Some(here) = uids.get(&remove.object_uid)
                {
                    remove.object_uid.clone_from(here);
                }
                session.pass(message).await;
            }
            Line::Agent(message) => {
                let recorded = message.message.as_ref().unwrap();
                let Some(wanted) = transcript::said(recorded) else { continue };
                let answer =
                    session.hear(|said| transcript::said(said).as_ref() == Some(&wanted)).await;
                if let (Said::Applied(recorded), Said::Applied(here)) = (recorded, answer) {
                    uids.insert(recorded.object_uid.clone(), here.object_uid);
                }
            }
        }
    }
    for (object, wanted) in RESULT {
        let held = setup.member.get(&path(object)).await.unwrap();
        assert_eq!(held["data"]["v"], wanted, "{name}: {object}");
    }
    assert_eq!(setup.member.get(&path("b")).await, None, "{name}");
    agent.stop().await;
}
