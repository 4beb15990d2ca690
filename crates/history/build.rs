//! The migrations are compiled in: a new file among them must rebuild this crate.

fn main() {
    // `print!` to cargo is what a build script is for.
    #[allow(clippy::print_stdout)]
    {
        println!("cargo::rerun-if-changed=../../migrations");
    }
}
