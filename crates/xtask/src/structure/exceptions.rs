//! What broke the rules when they came.

use super::Exception;
use super::Rule::{Circle, LongFunction, WideStruct};

const fn except(rule: super::Rule, subject: &'static str, why: &'static str) -> Exception {
    Exception { rule, subject, why }
}

const ENGINE: &str = "the rebuild of the controller takes it apart";
const MEMBERS: &str = "the rebuild of members takes it apart";

/// Only remove entries here.
pub(super) const EXCEPTIONS: &[Exception] = &[
    except(Circle, "controller::queue", ENGINE),
    except(Circle, "controller::queue::ready", ENGINE),
    except(Circle, "controller::queue::waiting", ENGINE),
    except(Circle, "controller::event_loop", ENGINE),
    except(Circle, "controller::reconcile", ENGINE),
    except(Circle, "controller::reconcile::read", ENGINE),
    except(Circle, "controller::audit", ENGINE),
    except(Circle, "controller::hub_state", ENGINE),
    except(Circle, "controller::placements::dispatch", ENGINE),
    except(Circle, "controller::watch", ENGINE),
    except(Circle, "controller::detect", ENGINE),
    except(Circle, "controller::events", ENGINE),
    except(Circle, "controller::events::outbox", ENGINE),
    except(Circle, "controller::index", ENGINE),
    except(Circle, "controller::index::secondary", ENGINE),
    except(Circle, "controller::leader", ENGINE),
    except(Circle, "controller::leader::record", ENGINE),
    except(Circle, "controller::members::authority", MEMBERS),
    except(Circle, "controller::members::context", MEMBERS),
    except(Circle, "controller::members::departure", MEMBERS),
    except(Circle, "controller::members::desired", MEMBERS),
    except(Circle, "controller::members::desired::persons", MEMBERS),
    except(Circle, "controller::members::enrol", MEMBERS),
    except(Circle, "controller::members::events", MEMBERS),
    except(Circle, "controller::members::health::draft", MEMBERS),
    except(Circle, "controller::members::registry", MEMBERS),
    except(Circle, "controller::members::revocation", MEMBERS),
    except(Circle, "controller::members::terms", MEMBERS),
    except(Circle, "controller::members::writes", MEMBERS),
    except(Circle, "controller::run", ENGINE),
    except(LongFunction, "crates/controller/src/members/health/draft.rs status", MEMBERS),
    except(LongFunction, "crates/controller/src/members/session.rs write", MEMBERS),
    except(LongFunction, "crates/controller/src/members/watchman.rs look", MEMBERS),
    except(LongFunction, "crates/controller/src/status/binding.rs status", ENGINE),
    except(WideStruct, "crates/controller/src/members/context.rs Context", MEMBERS),
    except(WideStruct, "crates/controller/src/members/registry.rs State", MEMBERS),
    except(WideStruct, "crates/controller/src/members/types.rs Report", MEMBERS),
];
