//! Profiles: which plugins run at which extension point, in which order, with which weights and args.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::config::{ConfigError, ProfileSpec, SchedulerConfiguration};
use super::plugin::{Plugin, Point};
use super::registry::{Build, OPTIONAL, REGISTRY, Registration};

/// The profile that reproduces Karmada >= 1.16.
pub const KARMADA: &str = "karmada";
/// The profile for policies that name none.
pub const DEFAULT: &str = atoll_api::policy::DEFAULT_PROFILE;

/// The rule set of a profile, where profiles differ in more than their plugins: triggers, modes, estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Semantics {
    /// Atoll's rules.
    #[default]
    Atoll,
    /// Karmada's rules.
    Karmada,
}

/// A plugin enabled at an extension point.
#[derive(Clone)]
pub struct Enabled {
    /// Its name.
    pub name: &'static str,
    /// Weight of its scores.
    pub weight: i64,
    /// The plugin; `None` for plugins that run in the controller.
    pub plugin: Option<Arc<dyn Plugin>>,
}

impl std::fmt::Debug for Enabled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}*{}", self.name, self.weight)
    }
}

/// One profile.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// The rule set.
    pub semantics: Semantics,
    points: BTreeMap<Point, Vec<Enabled>>,
}

impl Profile {
    /// The plugins at an extension point, in order.
    #[must_use]
    pub fn at(&self, point: Point) -> &[Enabled] {
        self.points.get(&point).map_or(&[], Vec::as_slice)
    }

    /// The plugins at an extension point that run in the core.
    pub fn core(&self, point: Point) -> impl Iterator<Item = (&Enabled, &Arc<dyn Plugin>)> {
        self.at(point).iter().filter_map(|enabled| Some((enabled, enabled.plugin.as_ref()?)))
    }

    /// Whether workloads without topologySpreadConstraints have hard ones from the profile's configuration.
    #[must_use]
    pub fn limits_skew_by_default(&self) -> bool {
        self.core(Point::Filter).any(|(_, plugin)| plugin.limits_skew_by_default())
    }

    /// Appends a custom plugin to an extension point.
    pub fn add(&mut self, point: Point, plugin: Arc<dyn Plugin>, weight: i64) {
        let name = plugin.name();
        let enabled = Enabled { name, weight, plugin: Some(plugin) };
        self.points.entry(point).or_default().push(enabled);
    }

    /// Removes all plugins from an extension point.
    pub fn clear(&mut self, point: Point) {
        self.points.remove(&point);
    }

    /// Appends a controller plugin, given by name, to an extension point.
    pub fn enable(&mut self, point: Point, name: &'static str) {
        let enabled = Enabled { name, weight: DEFAULT_WEIGHT, plugin: None };
        self.points.entry(point).or_default().push(enabled);
    }
}

/// All profiles, by name.
#[derive(Debug, Clone)]
pub struct Profiles {
    by_name: BTreeMap<String, Arc<Profile>>,
    /// The profiles of the configuration as JSON, for replays; empty if only the built-in ones are there.
    configured: Arc<str>,
    /// A profile of the configuration may have topologySpreadConstraints of its own.
    spreads: bool,
}

impl Default for Profiles {
    fn default() -> Self {
        // The built-in specs name only registered plugins and args. The test below checks this.
        Self::read(&SchedulerConfiguration::default()).unwrap_or_else(|_| Self {
            by_name: BTreeMap::new(),
            configured: Arc::default(),
            spreads: false,
        })
    }
}

/// The plugin whose args may be constraints.
const TOPOLOGY_SPREAD: &str = "TopologySpread";
/// Weight of a score plugin without an explicit weight.
const DEFAULT_WEIGHT: i64 = 1;
/// Largest weight. With scores up to 100 the sum over all plugins cannot overflow 64 bits.
const MAX_WEIGHT: i64 = 1_000_000;

fn built_in(name: &str) -> ProfileSpec {
    let config = |name: &str, args: Value| super::config::PluginConfig {
        name: name.to_owned(),
        args: Some(args),
    };
    let mut spec = ProfileSpec { scheduler_name: name.to_owned(), ..ProfileSpec::default() };
    if name == KARMADA {
        spec.plugin_config = vec![config("ReplicaDivision", json!({"semantics": "Karmada"}))];
        // Karmada scores by locality alone.
        let disabled = [
            "TaintToleration",
            "WorkloadAffinity",
            TOPOLOGY_SPREAD,
            "WorkloadPolicy",
            "ResourceFit",
        ]
        .map(|name| super::config::PluginName { name: name.to_owned(), weight: None });
        let set = super::config::PluginSet { disabled: disabled.to_vec(), ..Default::default() };
        spec.plugins.insert("score".to_owned(), set);
    }
    spec
}

impl Profiles {
    /// The built-in profiles and those of a configuration.
    ///
    /// # Errors
    /// The path of the first mistake.
    pub fn read(config: &SchedulerConfiguration) -> Result<Self, ConfigError> {
        Self::read_with(config, &[])
    }

    /// The same, with plugins of other crates. Profiles of the configuration may enable them by name; the built-in
    /// profiles do not.
    ///
    /// # Errors
    /// The path of the first mistake, or the name of a plugin that is registered twice.
    pub fn read_with(
        config: &SchedulerConfiguration,
        plugins: &[Registration],
    ) -> Result<Self, ConfigError> {
        let known = Known::new(plugins)?;
        let mut profiles = BTreeMap::new();
        for name in [DEFAULT, KARMADA] {
            let profile = build(&known, &[(&built_in(name), "built-in")])?;
            profiles.insert(name.to_owned(), Arc::new(profile));
        }
        let mut seen = BTreeMap::new();
        for (at, spec) in config.profiles.iter().enumerate() {
            let path = format!("profiles[{at}]");
            if spec.scheduler_name.is_empty() {
                let problem = "must not be empty: policies select a profile by this name";
                return Err(ConfigError::new(format!("{path}.schedulerName"), problem));
            }
            if let Some(first) = seen.insert(spec.scheduler_name.clone(), at) {
                let problem =
                    format!("{:?} is already the name of profiles[{first}]", spec.scheduler_name);
                return Err(ConfigError::new(format!("{path}.schedulerName"), problem));
            }
            let base = built_in(&spec.scheduler_name);
            let profile = build(&known, &[(&base, "built-in"), (spec, &path)])?;
            args_have_effect(&profile, spec, &path)?;
            profiles.insert(spec.scheduler_name.clone(), Arc::new(profile));
        }
        // Parsed from a file or built from plain values, so it can be written.
        let text = serde_json::to_string(&config.profiles).unwrap_or_default();
        let configured = if config.profiles.is_empty() { Arc::default() } else { text.into() };
        let mut args = config.profiles.iter().flat_map(|spec| &spec.plugin_config);
        let spreads = args.any(|of| of.name == TOPOLOGY_SPREAD);
        Ok(Self { by_name: profiles, configured, spreads })
    }

    /// A profile by name. The empty name is the default profile.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Profile>> {
        self.by_name.get(if name.is_empty() { DEFAULT } else { name })
    }

    /// Adds or replaces a profile that was built in code.
    pub fn insert(&mut self, profile: Profile) {
        self.by_name.insert(profile.name.clone(), Arc::new(profile));
    }

    /// The names of all profiles.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Whether a profile of the configuration may have topologySpreadConstraints of its own.
    pub(crate) fn spread_by_themselves(&self) -> bool {
        self.spreads
    }

    /// The profiles of the configuration as JSON. Profiles that were built in code are not part of it.
    pub(crate) fn configured(&self) -> &Arc<str> {
        &self.configured
    }
}

/// The built-in plugins and those of other crates.
struct Known<'a> {
    others: &'a [Registration],
}

impl<'a> Known<'a> {
    fn new(others: &'a [Registration]) -> Result<Self, ConfigError> {
        let known = Self { others };
        for (at, other) in others.iter().enumerate() {
            let earlier = REGISTRY.iter().chain(&others[..at]);
            if earlier.into_iter().any(|plugin| plugin.name == other.name) {
                return Err(ConfigError::new(
                    other.name,
                    "a plugin of this name is already registered",
                ));
            }
        }
        Ok(known)
    }

    fn all(&self) -> impl Iterator<Item = &'a Registration> {
        REGISTRY.iter().chain(self.others)
    }

    fn find(&self, name: &str, path: String) -> Result<&'a Registration, ConfigError> {
        self.all().find(|known| known.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.all().map(|known| known.name).collect();
            let problem = format!("unknown plugin {name:?}; known plugins: {}", known.join(", "));
            ConfigError::new(path, problem)
        })
    }
}

/// Refuses args of a plugin that the profile enables nowhere.
fn args_have_effect(profile: &Profile, spec: &ProfileSpec, path: &str) -> Result<(), ConfigError> {
    for (at, config) in spec.plugin_config.iter().enumerate() {
        let runs = |point: &Point| profile.at(*point).iter().any(|e| e.name == config.name);
        if config.args.is_some() && !Point::ALL.iter().any(runs) {
            let problem = format!(
                "the profile enables {} at no extension point: enable it under plugins, or remove its args",
                config.name
            );
            return Err(ConfigError::new(format!("{path}.pluginConfig[{at}].args"), problem));
        }
    }
    Ok(())
}

/// The plugins of a profile by name; `None` for those that run in the controller.
type Built = BTreeMap<&'static str, Option<Arc<dyn Plugin>>>;

/// Builds a profile from layers. Each layer modifies the previous one.
fn build(plugins: &Known<'_>, layers: &[(&ProfileSpec, &str)]) -> Result<Profile, ConfigError> {
    let mut args: BTreeMap<&'static str, (&Value, String)> = BTreeMap::new();
    for (spec, path) in layers {
        for (at, config) in spec.plugin_config.iter().enumerate() {
            let here = format!("{path}.pluginConfig[{at}]");
            let known = plugins.find(&config.name, format!("{here}.name"))?;
            if let Some(value) = &config.args {
                args.insert(known.name, (value, format!("{here}.args")));
            }
        }
    }
    let mut profile = Profile::default();
    let mut built = Built::new();
    for known in plugins.all() {
        let (value, path) = args.get(known.name).map_or((None, ""), |(v, p)| (Some(*v), p));
        let plugin = match known.build {
            Build::Core(make) => Some(make(value).map_err(|error| {
                ConfigError::new(format!("{path}{}", error.path), error.problem)
            })?),
            Build::Controller if value.is_some() => {
                return Err(ConfigError::new(path, "this plugin takes no args"));
            }
            Build::Controller => None,
        };
        built.insert(known.name, plugin.clone());
        // Plugins of other crates, and some of our own, run only where a profile enables them.
        let built_in =
            REGISTRY.iter().any(|own| own.name == known.name) && !OPTIONAL.contains(&known.name);
        for point in known.points.iter().filter(|_| built_in) {
            let plugin = plugin.clone();
            let enabled = Enabled { name: known.name, weight: DEFAULT_WEIGHT, plugin };
            profile.points.entry(*point).or_default().push(enabled);
        }
    }
    for (spec, path) in layers {
        profile.name.clone_from(&spec.scheduler_name);
        for (name, set) in &spec.plugins {
            let here = format!("{path}.plugins.{name}");
            let point = Point::ALL.into_iter().find(|point| point.name() == name);
            let Some(point) = point else {
                let known: Vec<&str> = Point::ALL.iter().map(|point| point.name()).collect();
                let problem =
                    format!("unknown extension point; known points: {}", known.join(", "));
                return Err(ConfigError::new(here, problem));
            };
            change(&mut profile, point, set, &here, (plugins, &built))?;
        }
    }
    let semantics = args.get("ReplicaDivision").and_then(|(args, _)| args.get("semantics"));
    if semantics.and_then(Value::as_str) == Some("Karmada") {
        profile.semantics = Semantics::Karmada;
    }
    let sorts = profile.at(Point::QueueSort).len();
    if sorts != 1 {
        let path = layers.last().map_or("", |(_, path)| path);
        let problem = format!("exactly one plugin must be enabled, {sorts} are");
        return Err(ConfigError::new(format!("{path}.plugins.queueSort"), problem));
    }
    Ok(profile)
}

fn change(
    profile: &mut Profile,
    point: Point,
    set: &super::config::PluginSet,
    path: &str,
    (plugins, built): (&Known<'_>, &Built),
) -> Result<(), ConfigError> {
    let list = profile.points.entry(point).or_default();
    for (at, out) in set.disabled.iter().enumerate() {
        if out.weight.is_some() {
            let path = format!("{path}.disabled[{at}].weight");
            return Err(ConfigError::new(path, "a disabled plugin has no weight"));
        }
        if out.name == "*" {
            list.clear();
        } else {
            plugins.find(&out.name, format!("{path}.disabled[{at}].name"))?;
            list.retain(|enabled| enabled.name != out.name);
        }
    }
    for (at, plugin) in set.enabled.iter().enumerate() {
        let here = format!("{path}.enabled[{at}]");
        let known = plugins.find(&plugin.name, format!("{here}.name"))?;
        if !known.points.contains(&point) {
            let points: Vec<&str> = known.points.iter().map(|point| point.name()).collect();
            let problem = format!("{} runs only at {}", known.name, points.join(", "));
            return Err(ConfigError::new(format!("{here}.name"), problem));
        }
        let weight = plugin.weight.unwrap_or(DEFAULT_WEIGHT);
        if plugin.weight.is_some() && point != Point::Score {
            return Err(ConfigError::new(format!("{here}.weight"), "only score has weights"));
        }
        if !(1..=MAX_WEIGHT).contains(&weight) {
            let problem = format!("{weight} must be within 1..={MAX_WEIGHT}");
            return Err(ConfigError::new(format!("{here}.weight"), problem));
        }
        match list.iter_mut().find(|enabled| enabled.name == known.name) {
            Some(enabled) => enabled.weight = weight,
            None => {
                let plugin = built.get(known.name).cloned().flatten();
                list.push(Enabled { name: known.name, weight, plugin });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(profiles: &str) -> Result<Profiles, ConfigError> {
        let text = format!(
            "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n{profiles}"
        );
        Profiles::read(&SchedulerConfiguration::read(&text)?)
    }

    #[test]
    fn built_in_profiles_are_there() {
        let profiles = Profiles::default();
        assert_eq!(profiles.names().collect::<Vec<_>>(), ["default", "karmada"]);
        assert_eq!(profiles.get("").unwrap().name, "default");
        assert_eq!(profiles.get("karmada").unwrap().semantics, Semantics::Karmada);
        assert!(profiles.get("nobody").is_none());
    }

    #[test]
    fn profiles_enable_disable_and_weigh() {
        let profiles = read(
            "- schedulerName: stickyvm\n  plugins:\n    score:\n      disabled: [{name: '*'}]\n      enabled: [{name: ClusterLocality, weight: 7}]\n    reserve:\n      disabled: [{name: '*'}]\n",
        )
        .unwrap();
        let profile = profiles.get("stickyvm").unwrap();
        assert_eq!(format!("{:?}", profile.at(Point::Score)), "[ClusterLocality*7]");
        assert!(profile.at(Point::Reserve).is_empty());
        assert_eq!(profiles.get("default").unwrap().at(Point::Score).len(), 6);
    }

    #[test]
    fn mistakes_are_refused_with_their_path() {
        for (profiles, path) in [
            ("- schedulerName: a\n- schedulerName: a\n", "profiles[1].schedulerName"),
            ("- schedulerName: ''\n", "profiles[0].schedulerName"),
            ("- schedulerName: a\n  plugins: {filtr: {}}\n", "profiles[0].plugins.filtr"),
            (
                "- schedulerName: a\n  plugins: {filter: {enabled: [{name: Nope}]}}\n",
                "profiles[0].plugins.filter.enabled[0].name",
            ),
            (
                "- schedulerName: a\n  plugins: {filter: {enabled: [{name: ClusterLocality}]}}\n",
                "profiles[0].plugins.filter.enabled[0].name",
            ),
            (
                "- schedulerName: a\n  plugins: {filter: {enabled: [{name: Sticky, weight: 2}]}}\n",
                "profiles[0].plugins.filter.enabled[0].weight",
            ),
            (
                "- schedulerName: a\n  plugins: {score: {enabled: [{name: ResourceFit, weight: 0}]}}\n",
                "profiles[0].plugins.score.enabled[0].weight",
            ),
            (
                "- schedulerName: a\n  pluginConfig: [{name: ResourceFit, args: {strategi: X}}]\n",
                "profiles[0].pluginConfig[0].args.strategi",
            ),
            (
                "- schedulerName: a\n  pluginConfig: [{name: ResourceFit, args: {strategy: X}}]\n",
                "profiles[0].pluginConfig[0].args.strategy",
            ),
            (
                "- schedulerName: a\n  plugins: {score: {disabled: [{name: ResourceFit}]}, preFilter: {disabled: [{name: '*'}]}, filter: {disabled: [{name: '*'}]}, reserve: {disabled: [{name: '*'}]}}\n  pluginConfig: [{name: ResourceFit, args: {strategy: MostAllocated}}]\n",
                "profiles[0].pluginConfig[0].args",
            ),
            (
                "- schedulerName: a\n  plugins: {queueSort: {disabled: [{name: PrioritySort}]}}\n",
                "profiles[0].plugins.queueSort",
            ),
        ] {
            assert_eq!(read(profiles).unwrap_err().path, path, "{profiles}");
        }
        assert!(SchedulerConfiguration::read("kind: X\napiVersion: y\n").is_err());
    }
}
