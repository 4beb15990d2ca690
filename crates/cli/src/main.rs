//! The `atoll` binary. All of it is in the library: cargo compiles a library beside the crates that it uses, a binary after them.

use std::process::ExitCode;

fn main() -> ExitCode {
    atoll_cli::main()
}
