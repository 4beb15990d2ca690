//! Commands in a container: a few that show that a session works. There are no processes and no disk behind them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::files::{Disks, Files};
use super::{container_names, container_status};
use crate::index::fields::{list, text};

/// Exit code of a command that does not exist, as shells have it.
const NOT_FOUND: u8 = 127;
/// Exit code of a command with wrong arguments.
const WRONG: u8 = 2;
/// Limit of what one line of input may print, in bytes.
const OUTPUT: usize = 1 << 20;
/// Stands in a word for the exit code of the last command, which is known only when the word's command runs. It cannot be
/// part of a command line.
const LAST: char = '\0';
/// Limit of the commands of one line of input, also in `sh -c`.
const STEPS: u32 = 1_000;
/// Depth of `sh -c "sh -c ..."`.
const DEPTH: u8 = 8;

/// Why a command cannot start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecError {
    /// There is no such container.
    #[error("container {container} is not valid for pod {pod}")]
    Unknown {
        /// The Pod.
        pod: String,
        /// The container.
        container: String,
    },
    /// The container does not run.
    #[error("container {container} of pod {pod} does not run")]
    NotRunning {
        /// The Pod.
        pod: String,
        /// The container.
        container: String,
    },
    /// No command was given.
    #[error("you must specify at least 1 command")]
    NoCommand,
}

/// What a command has written, and its exit code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// 0 for success.
    pub code: u8,
}

impl Output {
    fn failed(code: u8, stderr: String) -> Self {
        Self { stderr, code, ..Self::default() }
    }

    /// Whether it has reached its limit.
    fn is_full(&self) -> bool {
        self.stdout.len() + self.stderr.len() >= OUTPUT
    }

    /// Appends the output of another command, up to the limit.
    fn append(&mut self, other: Self) {
        self.stdout.push_str(&other.stdout);
        self.stderr.push_str(&other.stderr);
        *self = std::mem::take(self).bounded();
    }

    /// Cuts what is above the limit.
    fn bounded(mut self) -> Self {
        self.stdout.truncate(self.stdout.floor_char_boundary(OUTPUT));
        let room = OUTPUT - self.stdout.len();
        self.stderr.truncate(self.stderr.floor_char_boundary(room));
        self
    }
}

/// A command after its start.
#[derive(Debug, PartialEq, Eq)]
pub enum Started {
    /// It has ended.
    Ended(Output),
    /// `cat`: it writes what it reads.
    Copies,
    /// `sh`: it carries out the lines that it reads.
    Reads(Shell),
    /// `tar c`: it writes an archive.
    Sends(Vec<u8>),
    /// `tar x`: it writes the files of the archive that it reads below a folder.
    Unpacks {
        /// The container.
        container: String,
        /// The folder.
        folder: String,
    },
}

/// The environment of a container, and the files that it sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell {
    variables: BTreeMap<String, String>,
    files: Files,
    last: u8,
    ended: bool,
    depth: u8,
    /// Commands of this line of input until now.
    steps: u32,
}

/// Starts a command in a container.
///
/// # Errors
/// When there is no such container, or it does not run.
pub fn exec(
    pod: &Value,
    disks: &Disks,
    container: Option<&str>,
    command: &[String],
) -> Result<Started, ExecError> {
    let name = text(pod, "/metadata/name").unwrap_or_default();
    let first = container_names(pod).next().unwrap_or_default();
    let container = container.filter(|container| !container.is_empty()).unwrap_or(first);
    let of = || (name.to_owned(), container.to_owned());
    if container_names(pod).all(|known| known != container) {
        let (pod, container) = of();
        return Err(ExecError::Unknown { pod, container });
    }
    let status = container_status(pod, container);
    if status.and_then(|status| status.pointer("/state/running")).is_none() {
        let (pod, container) = of();
        return Err(ExecError::NotRunning { pod, container });
    }
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut shell = Shell::of(pod, container);
    shell.files.add(&disks.of(text(pod, "/metadata/uid").unwrap_or_default(), container));
    let base = words.first().map(|word| word.rsplit('/').next().unwrap_or_default());
    match (base, words.get(1..).unwrap_or_default()) {
        (None, _) => Err(ExecError::NoCommand),
        (Some("cat"), [] | ["-"]) => Ok(Started::Copies),
        (Some("sh" | "bash" | "ash"), [] | ["-i" | "-l" | "-"]) => Ok(Started::Reads(shell)),
        (Some("tar"), arguments) => Ok(shell.tar(arguments, container)),
        _ => Ok(Started::Ended(shell.command(&words).bounded())),
    }
}

impl Shell {
    fn of(pod: &Value, container: &str) -> Self {
        let at = |pointer: &str| text(pod, pointer).unwrap_or_default().to_owned();
        let name = at("/metadata/name");
        let mut variables: BTreeMap<String, String> = BTreeMap::new();
        for (key, value) in [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", "/root"),
            ("HOSTNAME", &name),
            ("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc"),
            ("KUBERNETES_SERVICE_PORT", "443"),
        ] {
            variables.insert(key.to_owned(), value.to_owned());
        }
        let all = list(pod, "/spec/containers").iter().chain(list(pod, "/spec/initContainers"));
        let spec = all.into_iter().find(|spec| text(spec, "/name") == Some(container));
        for variable in spec.map(|spec| list(spec, "/env")).unwrap_or_default() {
            let Some(key) = text(variable, "/name") else { continue };
            let field = text(variable, "/valueFrom/fieldRef/fieldPath");
            let value = match field {
                Some(path) => text(pod, &format!("/{}", path.replace('.', "/"))),
                None => text(variable, "/value"),
            };
            variables.insert(key.to_owned(), value.unwrap_or_default().to_owned());
        }
        let address = at("/status/podIP");
        let image = spec.and_then(|spec| text(spec, "/image")).unwrap_or_default();
        let mut files = Files::default();
        for (path, content) in [
            ("/etc/hostname", format!("{name}\n")),
            ("/etc/hosts", format!("127.0.0.1\tlocalhost\n{address}\t{name}\n")),
            ("/etc/os-release", format!("NAME=\"Atoll Simulator\"\nIMAGE=\"{image}\"\n")),
            ("/var/run/secrets/kubernetes.io/serviceaccount/namespace", at("/metadata/namespace")),
        ] {
            files.insert(path, content.as_bytes());
        }
        Self { variables, files, last: 0, ended: false, depth: 0, steps: 0 }
    }

    /// Whether `exit` was called.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The exit code of the last command.
    #[must_use]
    pub fn last_code(&self) -> u8 {
        self.last
    }

    /// Carries out a line: commands between `;`, `&&` and `||`.
    pub fn line(&mut self, line: &str) -> Output {
        let mut output = Output::default();
        if self.depth == 0 {
            self.steps = 0;
        }
        let tokens = match tokens(line, self) {
            Ok(tokens) => tokens,
            Err(why) => {
                self.last = WRONG;
                return Output::failed(WRONG, format!("sh: {why}\n"));
            }
        };
        let mut words: Vec<String> = Vec::new();
        let mut skip = false;
        for token in tokens.into_iter().chain([Token::Then(Then::Always)]) {
            let then = match token {
                Token::Word(word) => {
                    words.push(word);
                    continue;
                }
                Token::Then(then) => then,
            };
            let taken = std::mem::take(&mut words);
            if !taken.is_empty() && !skip {
                let last = self.last.to_string();
                let taken: Vec<String> =
                    taken.iter().map(|word| word.replace(LAST, &last)).collect();
                let taken: Vec<&str> = taken.iter().map(String::as_str).collect();
                let part = self.command(&taken);
                self.last = part.code;
                output.append(part);
            }
            skip = match then {
                Then::Always => false,
                Then::IfGood => self.last != 0,
                Then::IfBad => self.last == 0,
            };
            if self.stops(&output) {
                break;
            }
        }
        output.code = self.last;
        output.bounded()
    }

    /// Whether no further command runs.
    fn stops(&self, output: &Output) -> bool {
        self.ended || output.is_full() || self.steps > STEPS
    }

    fn command(&mut self, words: &[&str]) -> Output {
        let good = |stdout: String| Output { stdout, ..Output::default() };
        let bad = Output::failed;
        let is = |yes: bool| Output { code: u8::from(!yes), ..Output::default() };
        self.steps += 1;
        if self.steps > STEPS {
            return bad(WRONG, format!("sh: a line runs at most {STEPS} commands\n"));
        }
        let Some((name, arguments)) = words.split_first() else { return Output::default() };
        match (name.rsplit('/').next().unwrap_or_default(), arguments) {
            ("true" | ":", _) => Output::default(),
            ("false", _) => bad(1, String::new()),
            ("echo", ["-n", rest @ ..]) => good(rest.join(" ")),
            ("echo", rest) => good(format!("{}\n", rest.join(" "))),
            ("env" | "printenv", []) => {
                let lines = self.variables.iter().map(|(key, value)| format!("{key}={value}\n"));
                good(lines.collect())
            }
            ("printenv", [key]) => match self.variables.get(*key) {
                Some(value) => good(format!("{value}\n")),
                None => bad(1, String::new()),
            },
            ("hostname", []) => good(self.files.text("/etc/hostname").unwrap_or_default()),
            ("test", ["-d", path]) => is(self.files.is_folder(path)),
            ("test", ["-f", path]) => is(self.files.is_file(path)),
            ("test", ["-e", path]) => is(self.files.is_file(path) || self.files.is_folder(path)),
            ("pwd", []) => good("/\n".to_owned()),
            ("cat", paths) => self.each(paths, |shell, path| shell.files.text(path)),
            ("ls", paths) => {
                let paths: Vec<&str> =
                    paths.iter().copied().filter(|path| !path.starts_with('-')).collect();
                let paths = if paths.is_empty() { &["/"][..] } else { &paths };
                self.each(paths, |shell, path| shell.files.listed(path))
            }
            ("sh" | "bash" | "ash", ["-c", script, ..]) if self.depth < DEPTH => {
                let mut inner = Self { depth: self.depth + 1, ended: false, ..self.clone() };
                let mut output = Output::default();
                for line in script.lines() {
                    output.append(inner.line(line));
                    if inner.stops(&output) {
                        break;
                    }
                }
                self.steps = inner.steps;
                output.code = inner.last;
                output
            }
            ("sh" | "bash" | "ash", ["-c", ..]) if self.depth >= DEPTH => {
                bad(WRONG, "sh: nested too deeply\n".to_owned())
            }
            ("exit", rest) => {
                self.ended = true;
                let code = rest.first().map_or(Some(self.last), |code| code.parse().ok());
                Output { code: code.unwrap_or(WRONG), ..Output::default() }
            }
            (name, _) => bad(
                NOT_FOUND,
                format!(
                    "{name}: not found; simulated containers have cat, echo, env, exit, hostname, ls, printenv, pwd, sh, tar, test\n"
                ),
            ),
        }
    }

    /// The results for several paths; a failed one does not stop the others.
    fn each(
        &self,
        paths: &[&str],
        of: impl Fn(&Self, &str) -> Result<String, &'static str>,
    ) -> Output {
        let mut output = Output::default();
        for path in paths {
            match of(self, path) {
                Ok(text) => output.stdout.push_str(&text),
                Err(why) => {
                    output.stderr.push_str(&format!("{path}: {why}\n"));
                    output.code = 1;
                }
            }
            if output.is_full() {
                break;
            }
        }
        output.bounded()
    }

    /// `tar`, as `kubectl cp` calls it: `tar cf - PATH`, and `tar -xmf - -C FOLDER` with options about owners.
    fn tar(&self, arguments: &[&str], container: &str) -> Started {
        let failed = |why: String| Started::Ended(Output::failed(WRONG, format!("tar: {why}\n")));
        let given = arguments.iter().filter(|argument| !argument.starts_with("--"));
        let given: Vec<&str> = given.copied().collect();
        let (letters, rest) = match given.split_first() {
            Some((letters, rest)) => (letters.trim_start_matches('-'), rest),
            None => ("", &[][..]),
        };
        match (letters.chars().next(), rest) {
            (Some('c'), ["-", path]) if letters.ends_with('f') => match self.files.packed(path) {
                Some(archive) => Started::Sends(archive),
                None => failed(format!("{path}: Cannot stat: No such file or directory")),
            },
            (Some('x'), ["-", rest @ ..]) if letters.ends_with('f') => {
                let folder = match rest {
                    [] => "/",
                    ["-C", folder] => folder,
                    _ => return failed("only -C FOLDER is possible here".to_owned()),
                };
                if !self.files.is_folder(folder) {
                    return failed(format!("{folder}: Cannot open: No such file or directory"));
                }
                let (container, folder) = (container.to_owned(), folder.to_owned());
                Started::Unpacks { container, folder }
            }
            _ => failed(
                "simulated containers have `tar cf - PATH` and `tar xf - -C FOLDER`".to_owned(),
            ),
        }
    }
}

enum Token {
    Word(String),
    Then(Then),
}

/// When the next command runs.
enum Then {
    Always,
    IfGood,
    IfBad,
}

/// Splits a line into words and separators. Quotes, backslashes and variables are read as shells do.
fn tokens(line: &str, shell: &Shell) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars().peekable();
    let mut quote = None;
    // What the words before this one have.
    let mut before = 0;
    while let Some(c) = rest.next() {
        let inside = word.get_or_insert_default();
        if before + inside.len() > OUTPUT {
            return Err(format!("the line has more than {OUTPUT} bytes with its variables"));
        }
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (c, Some('\'')) => inside.push(c),
            ('\\', _) => inside.extend(rest.next()),
            ('$', _) => inside.push_str(&variable(&mut rest, shell)),
            (c, Some(_)) => inside.push(c),
            ('#', None) if inside.is_empty() => {
                word = None;
                break;
            }
            ('>' | '<' | '`' | '(' | ')', None) => {
                return Err(format!("{c:?} is not possible in simulated containers"));
            }
            (' ' | '\t' | ';' | '&' | '|', None) => {
                let done = word.take().filter(|word| !word.is_empty());
                before += done.as_ref().map_or(0, String::len);
                tokens.extend(done.map(Token::Word));
                let twice = rest.peek() == Some(&c);
                match (c, twice) {
                    (';', _) => tokens.push(Token::Then(Then::Always)),
                    ('&', true) => tokens.push(Token::Then(Then::IfGood)),
                    ('|', true) => tokens.push(Token::Then(Then::IfBad)),
                    ('&' | '|', false) => {
                        return Err(format!("{c:?} is not possible in simulated containers"));
                    }
                    _ => continue,
                }
                if c != ';' {
                    rest.next();
                }
            }
            (c, None) => inside.push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    tokens.extend(word.map(Token::Word));
    Ok(tokens)
}

/// The value of the variable whose name follows.
fn variable(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, shell: &Shell) -> String {
    if rest.next_if_eq(&'?').is_some() {
        return LAST.to_string();
    }
    let braces = rest.next_if_eq(&'{').is_some();
    let mut name = String::new();
    while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
        name.push(c);
    }
    if braces {
        rest.next_if_eq(&'}');
    }
    if name.is_empty() {
        return "$".to_owned();
    }
    shell.variables.get(&name).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {"name": "web-0", "namespace": "shop"},
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "env": [
                {"name": "GREETING", "value": "hello you"},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ]}]},
            "status": {"containerStatuses": [{"name": "main", "state": {"running": {}}}]},
        })
    }

    fn run(command: &[&str]) -> Output {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        match exec(&pod(), &Disks::default(), None, &command).unwrap() {
            Started::Ended(output) => output,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn built_in_commands_see_the_pod() {
        assert_eq!(run(&["echo", "a", "b  c"]).stdout, "a b  c\n");
        assert!(run(&["/usr/bin/env"]).stdout.contains("GREETING=hello you\n"));
        assert_eq!(run(&["cat", "/etc/hostname"]).stdout, "web-0\n");
        assert_eq!(run(&["ls", "-la", "/etc"]).stdout, "hostname\nhosts\nos-release\n");
        assert_eq!(run(&["ls"]).stdout, "etc\ntmp\nvar\n");
        let missing = run(&["cat", "/etc/hostname", "/nothing"]);
        assert_eq!((missing.stdout.as_str(), missing.code), ("web-0\n", 1));
        assert!(missing.stderr.contains("/nothing: No such file"), "{}", missing.stderr);
        let unknown = run(&["nginx", "-t"]);
        assert_eq!(unknown.code, NOT_FOUND);
        assert!(unknown.stderr.contains("nginx: not found"));
    }

    #[test]
    fn a_script_has_quotes_variables_and_conditions() {
        let sh = |script: &str| run(&["sh", "-c", script]);
        assert_eq!(
            sh("echo \"$GREETING on ${NODE}\" '$NODE' \\$").stdout,
            "hello you on n1 $NODE $\n"
        );
        assert_eq!(sh("false; echo $?; true && echo yes || echo no").stdout, "1\nyes\n");
        assert_eq!(sh("false && echo a || echo b\n# comment\necho c").stdout, "b\nc\n");
        assert_eq!(
            sh("echo a; exit 7; echo b"),
            Output { stdout: "a\n".to_owned(), code: 7, ..Output::default() }
        );
        for script in ["echo a > b", "a | b", "echo 'a", "$(a)"] {
            let output = sh(script);
            assert_eq!(output.code, WRONG, "{script}: {output:?}");
            assert!(output.stderr.starts_with("sh: "), "{script}");
        }
        // Neither depth nor output grows without limit.
        let mut nested = "echo deep".to_owned();
        for _ in 0..3 {
            nested = format!("sh -c \"{}\"", nested.replace('\\', "\\\\").replace('"', "\\\""));
        }
        assert_eq!(sh(&nested).stdout, "deep\n");
        assert!(sh(&format!("{}true", "env;".repeat(100_000))).stdout.len() <= OUTPUT);
        for _ in 0..8 {
            nested = format!("sh -c '{}'", nested.replace('\'', r"'\''"));
        }
        assert!(sh(&nested).stderr.contains("sh: nested too deeply"));
        let steps = sh(&"true\n".repeat(1_001));
        assert!(steps.stderr.contains("at most 1000 commands") && steps.code == WRONG, "{steps:?}");
        let inside = sh(&"sh -c 'true; true; true';".repeat(300));
        assert!(inside.stderr.contains("at most 1000 commands"), "{inside:?}");
        assert_eq!(sh(&"true\n".repeat(900)).code, 0);
    }

    #[test]
    fn neither_variables_nor_errors_nor_many_paths_grow_without_limit() {
        let mut pod = pod();
        pod["spec"]["containers"][0]["env"] =
            json!([{"name": "BIG", "value": "x".repeat(200_000)}]);
        let run = |command: &[&str]| {
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            let Ok(Started::Ended(output)) = exec(&pod, &Disks::default(), None, &command) else {
                panic!("an end")
            };
            assert!(output.stdout.len() + output.stderr.len() <= OUTPUT, "{}", output.stdout.len());
            output
        };
        for line in [format!("echo {}", "$BIG".repeat(50)), format!("echo {}", "$BIG ".repeat(50))]
        {
            let output = run(&["sh", "-c", &line]);
            assert!(output.stderr.contains("bytes with its variables"), "{}", output.stderr);
        }
        let wrong = "$BIG;".repeat(50);
        assert_eq!(run(&["sh", "-c", &wrong]).code, WRONG);
        let missing = "x".repeat(300_000);
        assert_eq!(run(&["cat", &missing, &missing, &missing, &missing, &missing]).code, 1);
        assert!(!run(&["printenv", "BIG"]).stdout.is_empty());
    }

    #[test]
    fn only_containers_that_run_take_commands() {
        let error = |pod: &Value, container, command: &[String]| {
            exec(pod, &Disks::default(), container, command).unwrap_err().to_string()
        };
        let ls = ["ls".to_owned()];
        assert!(error(&pod(), Some("other"), &ls).contains("other is not valid"));
        assert!(error(&pod(), None, &[]).contains("at least 1 command"));
        let mut waiting = pod();
        waiting["status"] = json!({});
        assert!(error(&waiting, None, &ls).contains("does not run"));
        assert_eq!(
            exec(&pod(), &Disks::default(), None, &["cat".to_owned()]).unwrap(),
            Started::Copies
        );
        let Started::Reads(mut shell) =
            exec(&pod(), &Disks::default(), None, &["sh".to_owned()]).unwrap()
        else {
            panic!("a shell")
        };
        assert_eq!(shell.line("echo $NODE").stdout, "n1\n");
        assert!(!shell.has_ended());
        assert_eq!(shell.line("exit 3").code, 3);
        assert!(shell.has_ended() && shell.last_code() == 3);
    }
}
