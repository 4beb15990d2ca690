//! The migrations are compiled in: a new one must rebuild this crate.

fn main() {
    // cargo reads build script output from stdout.
    #[allow(clippy::print_stdout)]
    {
        println!("cargo::rerun-if-changed=../../migrations");
    }
}
