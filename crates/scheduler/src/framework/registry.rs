//! Every plugin that a profile can name.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::Value;

use super::plugin::{Plugin, Point};
use crate::plugins as p;

/// The registration of a plugin.
#[derive(Clone, Copy)]
pub struct Registration {
    /// Name in configuration.
    pub name: &'static str,
    /// Extension points that the plugin implements.
    pub points: &'static [Point],
    /// Creates the plugin from its args. Errors name the arg.
    pub build: Build,
}

/// How a plugin is created.
#[derive(Clone, Copy)]
pub enum Build {
    /// The plugin runs in the core.
    Core(Make),
    /// The plugin runs in the controller, which finds it by name.
    Controller,
}

/// Creates a plugin from its args.
pub type Make = fn(Option<&Value>) -> Result<Arc<dyn Plugin>, ArgError>;

/// A mistake in a plugin's args.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgError {
    /// Path below `args`, for example `.strategy`.
    pub path: String,
    /// The problem.
    pub problem: String,
}

macro_rules! core {
    ($plugin:path) => {
        Build::Core(|args| Ok(Arc::new(<$plugin>::new(args)?)))
    };
}

use Point::{
    Assign, Bind, Filter, PostFilter, PreEnqueue, PreFilter, QueueSort, Reserve, Score, Select,
};

/// Built-in plugins that run only where a profile enables them.
pub const OPTIONAL: &[&str] = &["Preemption"];

/// The registry, in the default execution order.
#[rustfmt::skip]
pub const REGISTRY: &[Registration] = &[
    Registration { name: "SchedulingGates", points: &[PreEnqueue], build: Build::Controller },
    Registration { name: "PrioritySort", points: &[QueueSort], build: Build::Controller },
    Registration { name: "ClusterSets", points: &[Filter], build: core!(p::cluster_sets::ClusterSets) },
    Registration { name: "ClusterAffinity", points: &[PreFilter, Filter], build: core!(p::cluster_affinity::ClusterAffinity) },
    Registration { name: "TaintToleration", points: &[PreFilter, Filter, Score], build: core!(p::taint_toleration::TaintToleration) },
    Registration { name: "APIEnablement", points: &[Filter], build: core!(p::api_enablement::ApiEnablement) },
    Registration { name: "ClusterEviction", points: &[Filter], build: core!(p::cluster_eviction::ClusterEviction) },
    Registration { name: "ApplicationHealth", points: &[Filter], build: core!(p::application_health::ApplicationHealth) },
    Registration { name: "WorkloadAffinity", points: &[PreFilter, Filter, Score], build: core!(p::workload_affinity::WorkloadAffinity) },
    Registration { name: "SpreadConstraint", points: &[PreFilter, Filter, Select], build: core!(p::spread_constraint::SpreadConstraint) },
    Registration { name: "TopologySpread", points: &[PreFilter, Filter, Score, Assign], build: core!(p::topology_spread::TopologySpread) },
    Registration { name: "WorkloadPolicy", points: &[PreFilter, Filter, Score, Reserve, Assign], build: core!(p::workload_policy::WorkloadPolicy) },
    Registration { name: "WorkloadSpread", points: &[PreFilter, Filter, Assign], build: core!(p::workload_spread::WorkloadSpread) },
    Registration { name: "ResourceFit", points: &[PreFilter, Filter, Score, Reserve], build: core!(p::resource_fit::ResourceFit) },
    Registration { name: "AutoMigration", points: &[Filter], build: core!(p::auto_migration::AutoMigration) },
    Registration { name: "ClusterLocality", points: &[Score], build: core!(p::cluster_locality::ClusterLocality) },
    Registration { name: "Sticky", points: &[PreFilter, Filter], build: core!(p::sticky::Sticky) },
    Registration { name: "ReplicaDivision", points: &[Filter, Assign], build: core!(p::replica_division::ReplicaDivision) },
    Registration { name: "Preemption", points: &[PostFilter], build: core!(p::preemption::Preemption) },
    Registration { name: "DefaultBinder", points: &[Bind], build: Build::Controller },
];

/// Checks the args of a plugin that takes none.
///
/// # Errors
/// The path of the first arg.
pub fn no_args(args: Option<&Value>) -> Result<(), ArgError> {
    known_args(args, &[])
}

/// Checks the names of args.
///
/// # Errors
/// The path of the first unknown arg.
pub fn known_args(args: Option<&Value>, known: &[&str]) -> Result<(), ArgError> {
    let Some(args) = args else { return Ok(()) };
    let Some(args) = args.as_object() else {
        return Err(ArgError { path: String::new(), problem: "must be an object".to_owned() });
    };
    match args.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let problem = if known.is_empty() {
                "unknown: this plugin takes no args".to_owned()
            } else {
                format!("unknown; known args: {}", known.join(", "))
            };
            Err(ArgError { path: format!(".{name}"), problem })
        }
    }
}

/// Reads an arg with a fixed set of allowed words.
///
/// # Errors
/// The path of the arg and the allowed words.
pub fn word_arg<T: Copy>(
    args: Option<&Value>,
    name: &str,
    words: &[(&str, T)],
) -> Result<Option<T>, ArgError> {
    let Some(value) = args.and_then(|args| args.get(name)) else { return Ok(None) };
    let found = value.as_str().and_then(|text| words.iter().find(|(word, _)| *word == text));
    found.map(|(_, value)| Some(*value)).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        ArgError {
            path: format!(".{name}"),
            problem: format!("{value} must be one of {}", words.join(", ")),
        }
    })
}

/// Reads an arg that is a text, not empty.
///
/// # Errors
/// The path of the arg.
pub fn text_arg<'a>(args: Option<&'a Value>, name: &str) -> Result<Option<&'a str>, ArgError> {
    let Some(value) = args.and_then(|args| args.get(name)) else { return Ok(None) };
    match value.as_str().filter(|text| !text.is_empty()) {
        Some(text) => Ok(Some(text)),
        None => {
            let problem = format!("{value} must be a text that is not empty");
            Err(ArgError { path: format!(".{name}"), problem })
        }
    }
}

/// Reads an arg that is a whole number within a range.
///
/// # Errors
/// The path of the arg and the range.
pub fn number_arg(
    args: Option<&Value>,
    name: &str,
    range: RangeInclusive<i64>,
) -> Result<Option<i64>, ArgError> {
    let Some(value) = args.and_then(|args| args.get(name)) else { return Ok(None) };
    match value.as_i64().filter(|number| range.contains(number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let (least, most) = (range.start(), range.end());
            let problem = format!("{value} must be a whole number within {least}..={most}");
            Err(ArgError { path: format!(".{name}"), problem })
        }
    }
}
