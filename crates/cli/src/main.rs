//! The `atoll` binary. All of it is in the library: cargo compiles a library beside the crates that it uses, a binary after them.

use std::process::ExitCode;

// A controller allocates all the time. glibc takes more CPU for it, and keeps the memory that first lists needed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    atoll_cli::main()
}
