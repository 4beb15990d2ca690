//! The member must serve the object's kind. A current target always passes: the running object is better evidence than
//! the list.

use crate::cycle::state::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};

/// See the module documentation.
#[derive(Debug)]
pub struct ApiEnablement;
super::without_args!(ApiEnablement);

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::API_ENABLEMENT;

impl Plugin for ApiEnablement {
    fn name(&self) -> &'static str {
        NAME
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        let template = &cycle.request.template;
        let (api_version, kind) = (&template.api_version, &template.kind);
        let column = cycle.cache.borrow_mut().api.get_by(
            cycle.snapshot,
            |key| key.0 == *api_version && key.1 == *kind,
            || (api_version.clone(), kind.clone()),
        );
        let code = Code::UnschedulableAndUnresolvable;
        let except = Some(&cycle.targets.rows);
        verdicts.reject_classes(NAME, code, &column.0, except, Hold::Always);
        Status::success()
    }
}
