//! A timeline as lines of a terminal.
//!
//! ```text
//!            F       S       X
//! member1    2▂▂▂▂▂▂ 6██████         -
//! member2    1▁▁▁▁▁▁ 3▄▄▄▄▄▄ 9██     9
//!            10:00:00        10:05:00
//! ```

use std::collections::BTreeMap;

use atoll_history::api::text;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::spans::{Mark, Member, Timeline};
use crate::print::{self, Text, Tone};
use crate::read::item::{SHORT_ID, tone};

/// Longest member name that is not truncated.
const MAX_NAME: usize = 24;
/// Maximum number of rows; members with the fewest replicas are left out.
const MAX_MEMBERS: usize = 20;
/// Decisions listed below the picture; the newest are used.
const MAX_LISTED: usize = 20;
/// Minimum columns between two decisions if there is room: enough for a mark and a number.
const MIN_STEP: usize = 5;
/// Minimum width of the picture on any terminal.
const MIN_PICTURE: usize = 20;
/// Bars by height: eighths of a line.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One line, in coloured parts.
pub(super) type Line = Vec<Text>;

/// Draws the timeline.
pub(super) fn lines(timeline: &Timeline) -> Vec<Line> {
    let members = shown(timeline);
    let name = members.iter().map(|m| m.name.chars().count()).max().unwrap_or(0).clamp(8, MAX_NAME);
    let now = members.iter().map(|m| last(m, timeline.until).chars().count()).max().unwrap_or(1);
    // Name, two blanks, picture, two blanks, replicas at the end.
    let width = usize::from(print::width()).saturating_sub(name + 4 + now).max(MIN_PICTURE);
    let scale = Scale::new(timeline, width);
    let most = members.iter().flat_map(|m| &m.spans).filter_map(|s| s.replicas).max().unwrap_or(0);
    let mut lines: Vec<Line> = vec![vec![head(timeline).into()]];
    let pad = " ".repeat(name + 2);
    lines.push([vec![pad.clone().into()], marks(timeline, &scale)].concat());
    for member in &members {
        let mut line: Line = vec![format!("{:name$.name$}  ", member.name).into()];
        line.extend(bar(member, &scale, most, timeline.until));
        line.push(format!("  {:>now$}", last(member, timeline.until)).into());
        lines.push(line);
    }
    lines.push(vec![format!("{pad}{}", axis(timeline, &scale)).into()]);
    let left_out = timeline.members.len() - members.len();
    if left_out > 0 {
        let more = print::counted(left_out, "more member", "more members");
        lines.push(vec![format!("and {more}: -o json").into()]);
    }
    lines.push(vec![]);
    lines.extend(legend(timeline));
    for line in &mut lines {
        trim(line);
    }
    lines
}

/// The members shown, by name.
fn shown(timeline: &Timeline) -> Vec<&Member> {
    let most = |member: &Member| member.spans.iter().filter_map(|s| s.replicas).max().unwrap_or(0);
    let mut members: Vec<&Member> = timeline.members.iter().collect();
    members.sort_by(|a, b| most(b).cmp(&most(a)).then_with(|| a.name.cmp(&b.name)));
    members.truncate(MAX_MEMBERS);
    members.sort_by(|a, b| a.name.cmp(&b.name));
    members
}

fn head(timeline: &Timeline) -> String {
    let Timeline { workload, from, until, .. } = timeline;
    let span = text::span(until.duration_since(*from));
    let older = if timeline.truncated { ", older decisions left out: --since" } else { "" };
    format!("{workload}, {} to {} ({span}{older})", whole(*from), whole(*until))
}

fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Replicas at the end.
fn last(member: &Member, until: Timestamp) -> String {
    match member.spans.last().filter(|span| span.until == until) {
        Some(span) => span.replicas.map_or("?".to_owned(), |replicas| replicas.to_string()),
        None => "-".to_owned(),
    }
}

/// Maps times to columns. Proportional, but every decision gets a few columns: a busy minute within a week is what
/// users look for.
struct Scale {
    /// Column of each time.
    steps: BTreeMap<Timestamp, usize>,
    width: usize,
}

impl Scale {
    fn new(timeline: &Timeline, width: usize) -> Self {
        let inner =
            timeline.decisions.iter().map(|mark| mark.at.clamp(timeline.from, timeline.until));
        let mut times: Vec<Timestamp> =
            [timeline.from, timeline.until].into_iter().chain(inner).collect();
        times.sort();
        times.dedup();
        let segments = times.len() - 1;
        let least = if segments * MIN_STEP <= width { MIN_STEP } else { 0 };
        let stretch = width - least * segments;
        let total = millis(timeline.from, timeline.until).max(1);
        let column = |(index, at): (usize, &Timestamp)| {
            let share = millis(timeline.from, *at) * stretch as i128 / total;
            (*at, index * least + usize::try_from(share).unwrap_or(0))
        };
        Self { steps: times.iter().enumerate().map(column).collect(), width }
    }

    fn column(&self, at: Timestamp) -> usize {
        self.steps.range(..=at).next_back().map_or(0, |(_, column)| *column)
    }
}

fn millis(from: Timestamp, until: Timestamp) -> i128 {
    i128::from(until.as_millisecond()) - i128::from(from.as_millisecond())
}

/// The letter and tone of a trigger.
fn letter(mark: &Mark) -> (char, Tone) {
    if mark.unreadable {
        return ('?', Tone::Bad);
    }
    let letter = match mark.trigger.as_str() {
        "First" => 'F',
        "Scale" => 'S',
        "Reconcile" => 'P',
        "Failover" => 'X',
        "Rebalance" => 'B',
        "ClusterChange" => 'C',
        "Overflow" => 'O',
        "Unschedulable" => 'U',
        "Recover" => 'R',
        "Retry" => 'T',
        "EvictionDone" => 'e',
        "Preempted" => 'V',
        "Withdrawn" => 'W',
        _ => '+',
    };
    let tone = match letter {
        'X' => Tone::Bad,
        'O' | 'U' | 'V' | 'W' => Tone::Warn,
        _ => tone(&mark.outcome),
    };
    (letter, tone)
}

/// The row of triggers. Several in one column show their count; `+` from ten on.
fn marks(timeline: &Timeline, scale: &Scale) -> Line {
    let mut columns: BTreeMap<usize, Vec<&Mark>> = BTreeMap::new();
    for mark in &timeline.decisions {
        let column = scale.column(mark.at).min(scale.width.saturating_sub(1));
        columns.entry(column).or_default().push(mark);
    }
    let (mut line, mut at): (Line, usize) = (Vec::new(), 0);
    for (column, marks) in columns {
        let (letter, tone) = match marks.as_slice() {
            [one] => letter(one),
            many => (
                u32::try_from(many.len()).ok().and_then(|n| char::from_digit(n, 10)).unwrap_or('+'),
                Tone::Plain,
            ),
        };
        line.push(" ".repeat(column - at).into());
        line.push(Text::toned(letter, tone));
        at = column + 1;
    }
    line
}

/// A member's row: each span starts with its number, followed by a bar of its height.
fn bar(member: &Member, scale: &Scale, most: i64, until: Timestamp) -> Line {
    let mut cells: Vec<(char, Tone)> = vec![(' ', Tone::Plain); scale.width];
    for span in &member.spans {
        let from = scale.column(span.from);
        let end = if span.until == until { scale.width } else { scale.column(span.until) };
        let (block, tone) = match span.replicas {
            None => ('?', Tone::Bad),
            // A kind without replicas is either present or absent.
            Some(_) if most == 0 => (BARS[7], Tone::Good),
            Some(0) => ('_', Tone::Plain),
            Some(replicas) => {
                let eighths = (replicas.saturating_mul(8) + most - 1) / most;
                let index = usize::try_from(eighths - 1).unwrap_or(0).min(BARS.len() - 1);
                (BARS[index], Tone::Good)
            }
        };
        let Some(cells) = cells.get_mut(from..end) else { continue };
        cells.fill((block, tone));
        let number = span.replicas.filter(|_| most > 0).map(|n| n.to_string()).unwrap_or_default();
        if number.len() < cells.len() {
            for (cell, digit) in cells.iter_mut().zip(number.chars()) {
                *cell = (digit, Tone::Plain);
            }
        }
    }
    let mut line: Line = Vec::new();
    for run in cells.chunk_by(|a, b| a.1 == b.1) {
        let text: String = run.iter().map(|(character, _)| character).collect();
        line.push(Text::toned(text, run[0].1));
    }
    line
}

/// Times below the decisions, as many as fit.
fn axis(timeline: &Timeline, scale: &Scale) -> String {
    let day = 86_400;
    let long = timeline.until.duration_since(timeline.from).as_secs() >= day;
    let format = if long { "%m-%d %H:%M" } else { "%H:%M:%S" };
    let mut line = String::new();
    for (at, column) in &scale.steps {
        let text = at.to_zoned(TimeZone::UTC).strftime(format).to_string();
        let at = line.chars().count();
        let gap = usize::from(at > 0);
        if *column < at + gap || *column + text.chars().count() > scale.width + 4 {
            continue;
        }
        line.push_str(&" ".repeat(*column - at));
        line.push_str(&text);
    }
    line
}

/// The list of decisions below the picture.
fn legend(timeline: &Timeline) -> Vec<Line> {
    let left_out = timeline.decisions.len().saturating_sub(MAX_LISTED);
    let mut lines = Vec::new();
    if left_out > 0 {
        lines.push(vec![
            format!("... and {left_out} earlier: see `atoll history`, or use --since and --until")
                .into(),
        ]);
    }
    for mark in &timeline.decisions[left_out..] {
        let (letter, tone) = letter(mark);
        let id: String = mark.id.chars().take(SHORT_ID).collect();
        let healthy = match mark.healthy.as_str() {
            "-" => String::new(),
            took => format!(", healthy after {took}"),
        };
        let text = format!(
            " {} {id} {}{healthy}: {}; {}",
            whole(mark.at),
            mark.trigger,
            mark.change,
            mark.reason
        );
        let room = usize::from(print::width()) - 1;
        let text = match text.chars().count() > room {
            true => text.chars().take(room - 1).chain(['…']).collect(),
            false => text,
        };
        lines.push(vec![Text::toned(letter, tone), text.into()]);
    }
    lines
}

/// Removes trailing blanks.
fn trim(line: &mut Line) {
    while let Some(last) = line.pop() {
        let last = last.trimmed();
        if !last.is_empty() {
            line.push(last);
            break;
        }
    }
}
