//! Circles in a graph of imports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::imports::{Imports, Site};
use super::{Finding, Rule};

/// A finding for every module of a circle; all of one circle have the same text.
pub(super) fn find(krate: &str, imports: &Imports) -> Vec<Finding> {
    let mut findings = Vec::new();
    for circle in circles(imports) {
        let name = |module: &str| match module {
            "" => krate.to_owned(),
            module => format!("{krate}::{module}"),
        };
        let steps: Vec<String> = shortest(imports, &circle)
            .into_iter()
            .map(|(from, site, to)| format!("{} -> {} ({site})", name(from), name(to)))
            .collect();
        let text = format!(
            "{} modules of {krate} import each other: {}; for example {}",
            circle.len(),
            circle.iter().map(|module| name(module)).collect::<Vec<_>>().join(", "),
            steps.join(", ")
        );
        findings.extend(circle.iter().map(|module| Finding {
            rule: Rule::Circle,
            subject: name(module),
            text: text.clone(),
        }));
    }
    findings
}

/// Sets of more than one module in which each reaches every other.
fn circles(imports: &Imports) -> Vec<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (module.as_str(), reachable(imports, module))).collect();
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for (module, beyond) in &reached {
        if circles.iter().any(|circle| circle.contains(module)) || !beyond.contains(module) {
            continue;
        }
        let back = |other: &&&str| reached.get(**other).is_some_and(|far| far.contains(module));
        circles.push(beyond.iter().filter(back).copied().collect());
    }
    circles
}

/// What one reaches from a module in one step or more.
fn reachable<'a>(imports: &'a Imports, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for to in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(to.as_str()) {
                open.push(to);
            }
        }
    }
    reached
}

/// The steps of a shortest way from the first module of a circle back to it.
fn shortest<'a>(
    imports: &'a Imports,
    circle: &BTreeSet<&'a str>,
) -> Vec<(&'a str, &'a Site, &'a str)> {
    let Some(start) = circle.first().copied() else { return Vec::new() };
    let mut before: BTreeMap<&str, (&str, &Site)> = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(module) = open.pop_front() {
        for (to, site) in imports.get(module).into_iter().flatten() {
            if circle.contains(to.as_str()) && !before.contains_key(to.as_str()) {
                before.insert(to, (module, site));
                open.push_back(to);
            }
        }
    }
    let (mut steps, mut at) = (Vec::new(), start);
    while let Some((from, site)) = before.get(at).copied() {
        steps.push((from, site, at));
        at = from;
        if at == start {
            break;
        }
    }
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(edges: &[(&str, &str)]) -> Imports {
        let mut imports = Imports::default();
        for (from, to) in edges {
            let site = Site { file: format!("{from}.rs"), line: 1 };
            imports.entry((*from).to_owned()).or_default().insert((*to).to_owned(), site);
            imports.entry((*to).to_owned()).or_default();
        }
        imports
    }

    #[test]
    fn circles_are_found_with_a_shortest_way_and_chains_are_none() {
        assert_eq!(find("k", &imports(&[("a", "b"), ("b", "c"), ("a", "c")])), []);
        let edges =
            [("a", "b"), ("b", "c"), ("c", "a"), ("b", "a"), ("c", "d"), ("e", "f"), ("f", "e")];
        let found = find("k", &imports(&edges));
        let subjects: Vec<_> = found.iter().map(|finding| finding.subject.as_str()).collect();
        assert_eq!(subjects, ["k::a", "k::b", "k::c", "k::e", "k::f"]);
        let way = "3 modules of k import each other: k::a, k::b, k::c; \
                   for example k::a -> k::b (a.rs:1), k::b -> k::a (b.rs:1)";
        assert_eq!(found[0].text, way);
    }
}
