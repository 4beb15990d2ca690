//! The timeline of a workload as SVG: one lane a member, one mark a decision. A table with the same content is below it
//! on the page.

use jiff::Timestamp;
use maud::{Markup, html};

use super::parts;
use crate::data::{Course, Timeline};

/// Width of the names, in pixels.
const NAMES: i64 = 150;
/// Width of the lanes, in pixels.
const WIDTH: i64 = 850;
/// Height of a lane, in pixels.
const LANE: i64 = 26;
/// Height of the row of marks, in pixels.
const MARKS: i64 = 30;
/// Most lanes; further members are only counted.
const MOST: usize = 40;
/// Characters of a name that fit.
const NAME: usize = 20;
/// Narrowest lane that has its number in it, in pixels.
const NUMBER: i64 = 22;

/// Draws it.
pub(super) fn draw(timeline: &Timeline) -> Markup {
    let x = |at: Timestamp| {
        let all = timeline.until.as_millisecond().saturating_sub(timeline.from.as_millisecond());
        let part = at.as_millisecond().saturating_sub(timeline.from.as_millisecond());
        NAMES + part.clamp(0, all.max(1)).saturating_mul(WIDTH) / all.max(1)
    };
    let lanes = &timeline.lanes[..timeline.lanes.len().min(MOST)];
    let most = lanes.iter().flat_map(|lane| &lane.spans).filter_map(|s| s.replicas).max();
    let height = i64::try_from(lanes.len()).unwrap_or(0) * LANE + MARKS + 20;
    html! {
        div.scroll tabindex="0" role="region" aria-label="Timeline" {
            svg.timeline viewBox={"0 0 " (NAMES + WIDTH + 10) " " (height)} width=(NAMES + WIDTH + 10) height=(height) {
                title { "Replicas on each member over time, and the decisions" }
                @for (lane, y) in lanes.iter().zip((0..).step_by(LANE as usize)) {
                    text.name x="0" y=(y + 17) { (lane.member.chars().take(NAME).collect::<String>()) }
                    @for span in &lane.spans {
                        rect class={"span heat" (heat(span.replicas, most))}
                            x=(x(span.from)) y=(y + 3) width=((x(span.until) - x(span.from)).max(1)) height=(LANE - 6) {
                            title { (lane.member) ": " (parts::count(span.replicas)) ", " (span.from) " to " (span.until) }
                        }
                        @if x(span.until) - x(span.from) >= NUMBER {
                            text.number x=(x(span.from) + 5) y=(y + 17) { (parts::count(span.replicas)) }
                        }
                    }
                }
                @let bottom = height - MARKS - 8;
                line.axis x1=(NAMES) x2=(NAMES + WIDTH) y1=(bottom) y2=(bottom) {}
                @for mark in &timeline.marks {
                    @let dot = html! {
                        circle class={"mark " (parts::class(mark.tone))} cx=(x(mark.at)) cy=(bottom) r="5" {
                            title { (mark.at) ": " (mark.label) }
                        }
                    };
                    @match &mark.path {
                        Some(path) => { a href=(path) aria-label={(mark.at) ": " (mark.label)} { (dot) } }
                        None => { (dot) }
                    }
                }
                text.axis x=(NAMES) y=(height - 6) { (timeline.from.strftime("%Y-%m-%d %H:%M:%S")) }
                text.axis.end x=(NAMES + WIDTH) y=(height - 6) { (timeline.until.strftime("%Y-%m-%d %H:%M:%S")) }
            }
        }
        @if timeline.lanes.len() > MOST { p.dim { (timeline.lanes.len() - MOST) " more members are not drawn." } }
    }
}

/// Height of the drawing of a number over time, in pixels.
const COURSE: i64 = 120;

/// Draws a number over time as a line with steps. `what` is its name; `full` is at least the top.
pub(super) fn course(course: &Course, what: &str, full: Option<i64>) -> Markup {
    let (first, last) = match (course.steps.first(), course.steps.last()) {
        (Some(first), Some(last)) => (first.0, last.1),
        _ => return html! {},
    };
    let most = course.steps.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let (highest, most) = (most, most.max(full.unwrap_or(0)));
    let least = course.steps.iter().map(|(_, count)| *count).min().unwrap_or(0);
    let span = course.until.as_millisecond().saturating_sub(first.as_millisecond()).max(1);
    let x = |at: Timestamp| {
        let part = at.as_millisecond().saturating_sub(first.as_millisecond());
        NAMES + part.clamp(0, span).saturating_mul(WIDTH) / span
    };
    let y = |count: i64| 10 + (most - count.max(0)).saturating_mul(COURSE - 10) / most;
    let mut path = String::new();
    for (at, count) in &course.steps {
        path.push_str(&match path.is_empty() {
            true => format!("M{} {}", x(*at), y(*count)),
            false => format!("H{}V{}", x(*at), y(*count)),
        });
    }
    path.push_str(&format!("H{}", x(course.until)));
    html! {
        div.scroll tabindex="0" role="region" aria-label=(what) {
            svg.timeline viewBox={"0 0 " (NAMES + WIDTH + 10) " " (COURSE + 24)} width=(NAMES + WIDTH + 10) height=(COURSE + 24) {
                title { (what) ": " (least) " to " (highest) ", now " (last) }
                text.name x="0" y="17" { (most) }
                text.name x="0" y=(COURSE) { "0" }
                line.axis x1=(NAMES) x2=(NAMES + WIDTH) y1=(COURSE) y2=(COURSE) {}
                path.course d=(path) {}
                text.axis x=(NAMES) y=(COURSE + 18) { (first.strftime("%Y-%m-%d %H:%M:%S")) }
                text.axis.end x=(NAMES + WIDTH) y=(COURSE + 18) { (course.until.strftime("%Y-%m-%d %H:%M:%S")) }
            }
        }
    }
}

/// Steps of colour.
pub(super) const STEPS: i64 = 5;

/// The step of colour of a share: 0 for none and unknown, else 1 to 5.
pub(super) fn heat(replicas: Option<i64>, most: Option<i64>) -> i64 {
    match (replicas, most.unwrap_or(0).max(1)) {
        (Some(replicas), most) if replicas > 0 => {
            (replicas.min(most).saturating_mul(STEPS) + most - 1) / most
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_share_has_the_darkest_step_and_none_has_no_colour() {
        let steps = [0, 1, 20, 21, 100, 500].map(|replicas| heat(Some(replicas), Some(100)));
        assert_eq!(steps, [0, 1, 1, 2, 5, 5]);
        assert_eq!((heat(None, Some(3)), heat(Some(1), Some(1)), heat(Some(0), None)), (0, 5, 0));
    }
}
