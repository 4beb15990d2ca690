//! The plugin in decisions, and its args in a configuration.
#![allow(clippy::unwrap_used)]

use atoll_scheduler::{
    LiveCluster, Profiles, Request, Scheduler, SchedulerConfiguration, Tables, Template,
};
use example_scheduler_plugin::REGISTRATION;
use serde_json::json;

fn profiles(args: &str) -> Result<Profiles, String> {
    let text = format!(
        "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n- schedulerName: cheap\n  \
         plugins: {{filter: {{enabled: [{{name: Price}}]}}, score: {{enabled: [{{name: Price, weight: 10}}]}}}}\n  \
         pluginConfig: [{{name: Price, args: {args}}}]\n"
    );
    let config = SchedulerConfiguration::read(&text).unwrap();
    Profiles::read_with(&config, &[REGISTRATION]).map_err(|error| error.to_string())
}

/// Where one replica goes, with three clusters that cost 10, 30 and 90 cents.
fn placed(profile: &str) -> Vec<String> {
    let mut tables = Tables::default();
    for (name, cents) in [("a", "90"), ("b", "30"), ("c", "10")] {
        let cluster = json!({
            "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name, "labels": {"example.io/cents": cents}}, "spec": {},
            "status": {"apiEnablements": [{"groupVersion": "apps/v1",
                "resources": [{"name": "deployments", "kind": "Deployment"}]}]},
        });
        tables.upsert_cluster(&serde_json::from_value(cluster).unwrap(), LiveCluster::default());
    }
    let one = json!({"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}], "replicaScheduling": {}});
    let request = Request {
        template: Template {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "web".into(),
            replicas: Some(1),
            ..Template::default()
        },
        placement: serde_json::from_value(one).unwrap(),
        scheduler_name: profile.into(),
        ..Request::default()
    };
    let mut scheduler = Scheduler::new(profiles("{mostCents: 50}").unwrap());
    let decision = scheduler.decide(&tables.snapshot(), &request);
    decision.clusters().iter().map(|share| share.name.clone()).collect()
}

#[test]
fn a_profile_with_the_plugin_places_on_the_cheapest_cluster_and_one_without_does_not_know_prices() {
    assert_eq!(placed("cheap"), ["c"]);
    assert_eq!(placed("default"), ["a"], "without the plugin, the name decides");
}

#[test]
fn mistakes_in_the_args_name_their_path() {
    for (args, expected) in [
        (
            "{mostCents: -1}",
            "profiles[0].pluginConfig[0].args.mostCents: -1 must be a whole number within",
        ),
        ("{label: ''}", "profiles[0].pluginConfig[0].args.label: \"\" must be a text"),
        (
            "{cents: 1}",
            "profiles[0].pluginConfig[0].args.cents: unknown; known args: label, mostCents",
        ),
    ] {
        let problem = profiles(args).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }
}

#[test]
fn a_name_is_registered_once() {
    let twice =
        Profiles::read_with(&SchedulerConfiguration::default(), &[REGISTRATION, REGISTRATION]);
    assert_eq!(
        twice.unwrap_err().to_string(),
        "Price: a plugin of this name is already registered"
    );
}
