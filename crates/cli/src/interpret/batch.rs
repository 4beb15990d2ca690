//! One case a line in, one answer a line out.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::print::Printer;

/// Bytes of the longest line: an object of etcd's limit of 1.5 MiB with the statuses of many members.
const LONGEST_LINE: u64 = 64 << 20;

/// Answers every case of a file.
///
/// # Errors
/// A line that is too long or is no case; the error has its number. The lines before it are answered.
pub(crate) fn run<E: Display>(
    path: &Path,
    answer: impl Fn(&Value) -> Result<Value, E>,
    out: &Printer,
) -> anyhow::Result<()> {
    let name = path.display();
    let reader: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| format!("cannot open {name}"))?)
    };
    let mut reader = BufReader::new(reader);
    let (mut line, mut number) = (Vec::new(), 0_u64);
    loop {
        line.clear();
        number += 1;
        let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
        let read = read.with_context(|| format!("cannot read {name}"))?;
        if read == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == LONGEST_LINE {
            bail!("{name} line {number} is longer than {LONGEST_LINE} bytes");
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let case: Value = serde_json::from_slice(&line)
            .with_context(|| format!("{name} line {number} is no JSON: give one case a line"))?;
        let answer = answered(&case, &answer).with_context(|| format!("{name} line {number}"))?;
        out.json(&answer.to_string())?;
    }
}

/// The answer to one case.
fn answered<E: Display>(
    case: &Value,
    answer: impl Fn(&Value) -> Result<Value, E>,
) -> anyhow::Result<Value> {
    let (Some(id), Some(input)) = (case.get("id"), case.get("input")) else {
        bail!("a case needs the fields id and input");
    };
    let result = match answer(input) {
        Ok(result) => result,
        Err(error) => json!({ "error": error.to_string() }),
    };
    Ok(json!({ "id": id, "result": result }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_id_of_its_case_and_an_error_is_a_result() {
        let double = |input: &Value| input.as_i64().map(|n| json!(2 * n)).ok_or("no number");
        let answer = |case: Value| answered(&case, double);
        assert_eq!(
            answer(json!({"id": "a", "input": 2})).unwrap(),
            json!({"id": "a", "result": 4})
        );
        let wrong = answer(json!({"id": 7, "input": "x"})).unwrap();
        assert_eq!(wrong, json!({"id": 7, "result": {"error": "no number"}}));
        let error = answer(json!({"id": 7})).unwrap_err().to_string();
        assert!(error.contains("id and input"), "{error}");
    }
}
