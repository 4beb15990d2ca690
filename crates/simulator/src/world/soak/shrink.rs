//! Finds a minimal failing history: delta debugging (Zeller and Hildebrandt 2002) over the steps of its script.

use super::action::Step;

/// The shortest script found that still fails, with as many tries as `may_go_on` allows. It may fail for a different
/// reason than the original; that is a bug all the same.
pub fn shrink(
    script: &[Step],
    mut fails: impl FnMut(&[Step]) -> bool,
    mut may_go_on: impl FnMut() -> bool,
) -> Vec<Step> {
    let mut rest = script.to_vec();
    let mut parts = 2;
    while rest.len() >= 2 {
        let size = rest.len().div_ceil(parts);
        let mut smaller = None;
        for start in (0..rest.len()).step_by(size) {
            if !may_go_on() {
                return rest;
            }
            let end = (start + size).min(rest.len());
            let without: Vec<Step> = rest[..start].iter().chain(&rest[end..]).cloned().collect();
            if fails(&without) {
                smaller = Some(without);
                break;
            }
        }
        match smaller {
            Some(without) => {
                rest = without;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(rest.len()),
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::action::Action;
    use super::*;

    #[test]
    fn what_matters_is_left_and_nothing_else() {
        let step = |app| Step { at: Duration::from_secs(app), action: Action::Delete { app } };
        let script: Vec<Step> = (0..23).map(step).collect();
        let has = |script: &[Step], app| script.contains(&step(app));
        let mut tries = 0;
        let fails = |script: &[Step]| {
            tries += 1;
            has(script, 4) && has(script, 17) && has(script, 18)
        };
        assert_eq!(shrink(&script, fails, || true), [step(4), step(17), step(18)]);
        assert!(tries < 80, "{tries} tries");
        let mut left = 3;
        let budget = || {
            left -= 1;
            left >= 0
        };
        assert!(shrink(&script, |script| has(script, 4), budget).len() > 1);
    }
}
