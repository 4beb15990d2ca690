//! The input of an operation from files and flags.

use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use atoll_interpreter::Operation;
use serde_json::{Value, json};

use super::InterpretArgs;

/// Bytes of the largest file.
const LARGEST_FILE: u64 = 64 << 20;

/// The input of one operation.
///
/// # Errors
/// A file cannot be read, or a flag does not fit the operation.
pub(crate) fn input(args: &InterpretArgs, operation: Operation) -> anyhow::Result<Value> {
    for (flag, given, fitting) in [
        ("--observed", args.observed.is_some(), Operation::Retain),
        ("--items", args.items.is_some(), Operation::Aggregate),
        ("--replicas", args.replicas.is_some(), Operation::Replicas),
    ] {
        ensure!(!given || operation == fitting, "{flag} is for operation {fitting} only");
    }
    let Some(path) = &args.object else { bail!("give an object with --object FILE") };
    let object = read(path)?;
    Ok(match operation {
        Operation::Retain => {
            let Some(observed) = &args.observed else {
                bail!("operation retain needs the object of the member: --observed FILE");
            };
            json!({ "desired": object, "observed": read(observed)? })
        }
        Operation::Aggregate => {
            let items = args.items.as_deref().map(read).transpose()?;
            json!({ "template": object, "items": items })
        }
        Operation::Replicas => match args.replicas {
            Some(n) => json!({ "operation": "ReviseReplica", "object": object, "replicas": n }),
            None => json!({ "operation": "GetReplicas", "object": object }),
        },
        // The object of `attached` is its whole input: a binding with all that it is planned from.
        Operation::Attached => object,
        _ => json!({ "object": object }),
    })
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let name = path.display();
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(LARGEST_FILE + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(path)
            .and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text))
    };
    let bytes = read.with_context(|| format!("cannot read {name}"))?;
    ensure!(bytes as u64 <= LARGEST_FILE, "{name} is larger than {LARGEST_FILE} bytes");
    serde_saphyr::from_str(&text).with_context(|| format!("{name} is neither YAML nor JSON"))
}
