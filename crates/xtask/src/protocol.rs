//! `cargo xtask protocol`: Rust code for `proto/`. It is generated ahead, so that a build of
//! Atoll does not need its compiler, which has 30 dependencies.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::run::{say, target};

const PROTO: &str = "proto";
const FILES: [&str; 2] = ["atoll/agent/v1/agent.proto", "atoll/agent/v1/tunnel.proto"];
const GENERATED: &str = "crates/protocol/src/generated/atoll.agent.v1.rs";
const HEADER: &str =
    "// Generated from proto/atoll/agent/v1 by `cargo xtask protocol`. Do not edit.\n";
/// Fields that hold whole objects or bodies: shared, not copied.
const SHARED: [&str; 6] = [
    ".atoll.agent.v1.Upsert.manifest_json",
    ".atoll.agent.v1.Status.status_json",
    ".atoll.agent.v1.RuleText.spec_json",
    ".atoll.agent.v1.TunnelRequest.body",
    ".atoll.agent.v1.TunnelResponse.body",
    ".atoll.agent.v1.ProxyHeader.value",
];

/// The code that `proto/` gives.
fn code(root: &Path) -> anyhow::Result<String> {
    let files = protox::compile(FILES, [root.join(PROTO)]).context("compile proto/")?;
    let folder: PathBuf = target(root).join("protocol");
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let mut builder = tonic_prost_build::configure()
        .out_dir(&folder)
        .emit_rerun_if_changed(false)
        .btree_map(".")
        .type_attribute(".atoll.agent.v1.ObjectKey", "#[derive(PartialOrd, Ord)]");
    for field in SHARED {
        builder = builder.bytes(field);
    }
    builder.compile_fds(files).context("write code for proto/")?;
    let file = folder.join("atoll.agent.v1.rs");
    let code =
        std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    Ok(format!("{HEADER}{code}"))
}

/// Writes the file.
pub(crate) fn write(root: &Path) -> anyhow::Result<()> {
    let file = root.join(GENERATED);
    let folder = file.parent().context("the file is in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    std::fs::write(&file, code(root)?).with_context(|| format!("write {GENERATED}"))?;
    say(format!("{GENERATED} is up to date"));
    Ok(())
}

/// Fails when the file differs from the output of `write`.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    if std::fs::read_to_string(root.join(GENERATED)).unwrap_or_default() != code(root)? {
        bail!("{GENERATED} is not up to date, run `cargo xtask protocol`");
    }
    say(format!("{GENERATED} is up to date"));
    Ok(())
}
