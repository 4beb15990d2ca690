//! What broke the rules when they came.

use super::Exception;
use super::Rule::{Circle, LongFunction};

const fn except(rule: super::Rule, subject: &'static str, why: &'static str) -> Exception {
    Exception { rule, subject, why }
}

const ENGINE: &str = "the rebuild of the controller takes it apart";

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
    except(Circle, "controller::run", ENGINE),
    except(LongFunction, "crates/controller/src/status/binding.rs status", ENGINE),
];
