//! The objects on the member that carry Atoll's marks. The objects themselves are the inventory; no list of them is
//! stored.

pub(crate) mod agreement;
pub(crate) mod index;
