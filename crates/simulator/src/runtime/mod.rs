//! What kubelets answer about running containers: logs, use of resources, commands and ports, and the protocol of sessions. All are functions of the Pod and
//! the time, so an answer survives a restart of the simulation. Only the files that users write are stored, in memory.

mod files;
mod log;
mod port;
mod shell;
mod spdy;
mod tar;
mod usage;

pub use files::{Disks, OF_A_CONTAINER, WriteError};
pub use log::{Line, Log, LogError, MAX_LINES, Window};
pub use port::{answer_http, check_port};
pub use shell::{ExecError, Output, Shell, Started, exec};
pub use spdy::{SpdyConnection, SpdyError, SpdyEvent, StreamId};
pub use tar::{TarError, is_complete};
pub use usage::{Usage, of_node, of_pod};

use serde_json::Value;

use crate::index::fields::{list, text};

/// The names of a Pod's containers, main ones first.
fn container_names(pod: &Value) -> impl Iterator<Item = &str> {
    let all = list(pod, "/spec/containers").iter().chain(list(pod, "/spec/initContainers"));
    all.filter_map(|container| text(container, "/name"))
}

/// The status of a container; `None` before the Pod is on a node.
fn container_status<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    let main = list(pod, "/status/containerStatuses").iter();
    let mut all = main.chain(list(pod, "/status/initContainerStatuses"));
    all.find(|status| text(status, "/name") == Some(name))
}

/// A number below `bound` that differs from Pod to Pod and stays the same.
fn spread(seed: &str, bound: u64) -> u64 {
    // FNV-1a: a hash of few bytes that is the same in all versions.
    let hash = seed.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The high bits are mixed best.
    (hash >> 32) % bound.max(1)
}
