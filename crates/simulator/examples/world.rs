//! Runs thousands of random histories of whole federations: `cargo xtask world`.

#![allow(clippy::print_stdout, reason = "a developer command reports to its user")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use atoll_simulator::world::soak::{Fault, Outcome, Step, guarded, parted, play, script, shrink};
use clap::Parser;

/// Interval of progress reports.
const PROGRESS: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask world",
    about = "Random histories of whole federations",
    max_term_width = 100
)]
struct Args {
    /// How many seeds
    #[arg(long, default_value_t = 200, value_name = "N")]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    from: u64,
    /// Kinds of faults, by name; without it all. `none` leaves the users alone
    #[arg(long, value_delimiter = ',', value_parser = fault, value_name = "NAMES")]
    faults: Vec<Option<Fault>>,
    /// How many run at once; one for each processor without it
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// How long a failing script is narrowed down; 0 leaves it as it is
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    shrink: u64,
    /// Go on after a failure
    #[arg(long)]
    keep_going: bool,
    /// Print what happens in each seed
    #[arg(long, short)]
    verbose: bool,
    /// Play only these lines of the scripts, from 0 on: what a failure was narrowed down to
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    steps: Vec<usize>,
    /// With a ChangeGuard, and people who edit policies and approve plans
    #[arg(long)]
    guarded: bool,
    /// Play each seed twice and fail where two runs differ
    #[arg(long)]
    twice: bool,
    /// Print the log of controllers and agents, for example `info` or `atoll_controller=debug`
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

fn fault(name: &str) -> Result<Option<Fault>, String> {
    if name == "none" {
        return Ok(None);
    }
    Fault::ALL.into_iter().find(|fault| fault.name() == name).map(Some).ok_or_else(|| {
        let names: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        format!("{name} is no kind of fault: none, {}", names.join(", "))
    })
}

#[derive(Default)]
struct Tally {
    done: u64,
    failed: Vec<u64>,
    simulated: Duration,
    slowest: Duration,
    faults: BTreeMap<Fault, u64>,
    told: Option<Instant>,
}

struct Soak<'a> {
    args: &'a Args,
    kinds: Vec<Fault>,
    began: Instant,
    next: AtomicU64,
    tally: Mutex<Tally>,
}

impl Soak<'_> {
    fn work(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.args.seeds {
                return;
            }
            let seed = self.args.from + number;
            let mut script = match self.args.guarded {
                true => guarded(seed, &self.kinds),
                false => script(seed, &self.kinds),
            };
            if !self.args.steps.is_empty() {
                let chosen = |(number, step)| self.args.steps.contains(&number).then_some(step);
                script = script.into_iter().enumerate().filter_map(chosen).collect();
            }
            if self.args.verbose {
                println!("seed {seed}\n{}", lines(&script));
            }
            match self.play(seed, &script) {
                Ok(outcome) => self.well(seed, &outcome),
                Err(error) => {
                    self.failed(seed, &script, &error);
                    if !self.args.keep_going {
                        self.next.store(self.args.seeds, Ordering::Relaxed);
                        return;
                    }
                }
            }
        }
    }

    fn play(&self, seed: u64, script: &[Step]) -> Result<Outcome, String> {
        let outcome = play(seed, script)?;
        if self.args.twice {
            let again = play(seed, script)?;
            if let Some((at, one, other)) = parted(&outcome.account, &again.account) {
                return Err(format!("two runs differ in line {at}:\n  {one}\n  {other}"));
            }
        }
        Ok(outcome)
    }

    fn well(&self, seed: u64, outcome: &Outcome) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.done += 1;
        tally.simulated += outcome.simulated;
        tally.slowest = tally.slowest.max(outcome.recovery);
        for (fault, count) in &outcome.faults {
            *tally.faults.entry(*fault).or_default() += u64::from(*count);
        }
        if self.args.verbose {
            println!("seed {seed}: well {:?} after the last fault", outcome.recovery);
        }
        if tally.told.unwrap_or(self.began).elapsed() >= PROGRESS {
            tally.told = Some(Instant::now());
            println!("{} of {} seeds, {}", tally.done, self.args.seeds, self.pace(&tally));
        }
    }

    fn failed(&self, seed: u64, script: &[Step], error: &str) {
        println!("seed {seed} failed:\n{error}\nits script:\n{}", lines(script));
        let until = Instant::now() + Duration::from_secs(self.args.shrink);
        let mut last = None;
        let fails = |script: &[Step]| match self.play(seed, script) {
            Ok(_) => false,
            Err(error) => {
                last = Some(error);
                true
            }
        };
        let least = shrink(script, fails, || Instant::now() < until);
        if let Some(last) = last {
            let numbers = script.iter().enumerate().filter(|(_, step)| least.contains(step));
            let numbers: Vec<String> = numbers.map(|(number, _)| number.to_string()).collect();
            println!(
                "seed {seed}, narrowed down to {} of {} steps (--from {seed} --seeds 1 --steps {}):\n{}\nwhich fails with:\n{last}",
                least.len(),
                script.len(),
                numbers.join(","),
                lines(&least)
            );
        }
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).failed.push(seed);
    }

    fn pace(&self, tally: &Tally) -> String {
        let real = self.began.elapsed().as_secs_f64();
        format!(
            "{:.0} seeds per minute, {:.0} s of simulated time per second",
            tally.done as f64 * 60.0 / real,
            tally.simulated.as_secs_f64() / real
        )
    }
}

fn lines(script: &[Step]) -> String {
    script.iter().map(|step| format!("  {step}\n")).collect()
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(filter) = &args.log {
        // Wall time is meaningless for simulated time.
        let log = tracing_subscriber::fmt().with_env_filter(filter).without_time();
        log.init();
    }
    let mut kinds: Vec<Fault> = args.faults.iter().copied().flatten().collect();
    if args.faults.is_empty() {
        kinds = Fault::ALL.to_vec();
    }
    let jobs = args
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    let soak = Soak {
        args: &args,
        kinds,
        began: Instant::now(),
        next: AtomicU64::new(0),
        tally: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| soak.work());
        }
    });
    let tally = soak.tally.lock().unwrap_or_else(PoisonError::into_inner);
    println!("{} seeds from {} on are well: {}", tally.done, args.from, soak.pace(&tally));
    println!("slowest to be well after the last fault: {:?} of simulated time", tally.slowest);
    let faults: Vec<String> =
        tally.faults.iter().map(|(fault, count)| format!("{} {count}", fault.name())).collect();
    println!("faults: {}", faults.join(", "));
    match tally.failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => {
            println!("failed: {:?}", tally.failed);
            ExitCode::FAILURE
        }
    }
}
