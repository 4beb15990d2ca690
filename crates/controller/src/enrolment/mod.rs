//! How a member joins, renews its certificate, loses it and leaves: the certificate authority, bootstrap tokens,
//! enrolment, renewal, revocation and departure.

pub(crate) mod attempts;
pub(crate) mod authority;
pub(crate) mod create_token;
pub(crate) mod departure;
pub(crate) mod departure_progress;
pub(crate) mod enrol;
mod error;
pub(crate) mod identity;
pub(crate) mod renewals;
pub(crate) mod revocation;
pub(crate) mod revoke;
pub(crate) mod rotation;
pub(crate) mod token_secret;
pub(crate) mod tokens;
