//! Addresses of nodes and Pods: always the lowest free one, so the same objects get the same addresses.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crate::index::Index;
use crate::index::kind::Kind;
use crate::index::object::Object;

/// Start of the nodes' Pod ranges: 10.128.0.0, room for 8192 nodes.
const PODS: u32 = 0x0a80_0000;
/// Start of the nodes' own addresses: 172.16.0.0.
const NODES: u32 = 0xac10_0000;
/// Bits of one node's range: 1024 addresses, so that a node of 250 Pods has room during a rollout.
const RANGE_BITS: u32 = 10;

fn range_of(node: &Object) -> Option<(u32, u32)> {
    let (base, bits) = node.text("/spec/podCIDR")?.split_once('/')?;
    let base = u32::from(base.parse::<Ipv4Addr>().ok()?);
    let size = 1_u32.checked_shl(32_u32.checked_sub(bits.parse().ok()?)?)?;
    Some((base, size))
}

/// The lowest free range, as CIDR.
pub(super) fn free_range(index: &Index) -> String {
    let taken: BTreeSet<u32> =
        index.all(Kind::Node).filter_map(|node| range_of(node)).map(|(base, _)| base).collect();
    let mut base = PODS;
    while taken.contains(&base) {
        base += 1 << RANGE_BITS;
    }
    format!("{}/{}", Ipv4Addr::from(base), 32 - RANGE_BITS)
}

/// The node's own address, derived from its range.
pub(super) fn of_node(node: &Object) -> Ipv4Addr {
    let number = range_of(node).map_or(0, |(base, _)| base.wrapping_sub(PODS) >> RANGE_BITS);
    // The first two addresses are the network and the gateway.
    Ipv4Addr::from(NODES + 2 + (number & 0xf_ffff))
}

/// The lowest free address of a node's range.
pub(super) fn free(index: &Index, node: &Object) -> Option<Ipv4Addr> {
    let (base, size) = range_of(node)?;
    let taken: BTreeSet<Ipv4Addr> = index
        .on_node(&node.key.name)
        .filter(|pod| !pod.pod().is_finished())
        .filter_map(|pod| pod.pod().ip.as_deref()?.parse().ok())
        .collect();
    // The first address is the network, the second the node, the last broadcast.
    (2..size.saturating_sub(1))
        .map(|offset| Ipv4Addr::from(base + offset))
        .find(|address| !taken.contains(address))
}
