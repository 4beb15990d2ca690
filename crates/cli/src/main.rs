//! The `atoll` binary.
fn main() {}
