//! Interpreters that users write: rules of `ResourceInterpreterCustomization` in Lua and CEL.
//!
//! Rules are not trusted. A run has limits of time, steps, memory and result ([`limits`]), sees only the objects that it
//! is given, and leaves nothing behind. A rule that fails or runs away gives a [`Failure`], and the caller asks the next
//! layer. [`context`] has the messages of webhooks, which answer the same questions.

mod budget;
mod case;
mod cel;
pub mod context;
mod error;
pub mod limits;
mod lua;
mod paths;
mod pod;
mod pool;
mod request;
mod results;
mod rules;
mod script;

pub use error::{Limit, NotRun, RuleError};
pub use pool::Pool;
pub use request::{Component, Dependency, Replicas, Request, Response};
pub use rules::{Customizations, Failure, compile_problems};
