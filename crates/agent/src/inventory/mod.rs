//! What the member holds with Atoll's marks. The objects themselves are the inventory; there is no list of them anywhere.

pub(crate) mod agreement;
pub(crate) mod index;
