//! Amounts of resources.

use std::collections::BTreeMap;

/// Thousandths of a unit by resource.
pub(crate) type Amounts = BTreeMap<String, i64>;
