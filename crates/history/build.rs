//! Compiles the migrations in. sqlx has a macro for that, but with it the database drivers, SQLite's C among them, are
//! compiled a second time, for the compiler's own use.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

/// Folder with a folder of migrations for each database.
const FOLDER: &str = "../../migrations";

fn main() -> Result<(), Box<dyn Error>> {
    let mut code = String::new();
    for (name, database) in [("POSTGRES", "postgres"), ("SQLITE", "sqlite")] {
        let folder = Path::new(FOLDER).join(database).canonicalize()?;
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let file = path.file_name().and_then(|file| file.to_str()).ok_or("a name of a file")?;
            let parts = file.strip_suffix(".sql").and_then(|file| file.split_once('_'));
            let (version, description) = parts.ok_or_else(|| format!("{file}: NNNN_NAME.sql"))?;
            files.push((version.parse::<i64>()?, description.replace('_', " "), path.clone()));
        }
        files.sort();
        writeln!(code, "const {name}: [(i64, &str, &str); {}] = [", files.len())?;
        for (version, description, path) in files {
            writeln!(code, "    ({version}, {description:?}, include_str!({path:?})),")?;
        }
        writeln!(code, "];")?;
    }
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(Path::new(&out).join("migrations.rs"), code)?;
    // cargo reads build script output from stdout.
    #[allow(clippy::print_stdout)]
    {
        println!("cargo::rerun-if-changed={FOLDER}");
    }
    Ok(())
}
