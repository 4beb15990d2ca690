//! An application that is unhealthy on its members, as the hub shows it.

use std::time::Duration;

use atoll_simulator::world::World;
use atoll_simulator::world::kinds::{DEPLOYMENT, EVENT, RESOURCE_BINDING};
use serde_json::{Value, json};

use crate::rights;
use crate::scenario::{self, BINDING, LIMIT, NGINX};

/// Reason of the binding's condition `Healthy`.
fn health(binding: &Value) -> &str {
    let conditions = binding["status"]["conditions"].as_array();
    let healthy = conditions.into_iter().flatten().find(|found| found["type"] == "Healthy");
    healthy.and_then(|found| found["reason"].as_str()).unwrap_or_default()
}

fn image(tag: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "nginx", "image": format!("nginx:{tag}")}]}}}})
}

async fn until_health(world: &World, reason: &str) -> Value {
    let what = format!("Healthy is {reason}");
    world
        .until_object("hub", &RESOURCE_BINDING, BINDING, &what, LIMIT, |binding| {
            health(binding) == reason
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn an_image_that_does_not_exist_shows_on_the_hub_with_the_pods_reason() {
    let world = World::builder().seed(7).members(2).build().await;
    scenario::first(&world).await;
    until_health(&world, "Healthy").await;

    world.hub().merge(&DEPLOYMENT, NGINX, image("nosuch")).await;
    let binding = until_health(&world, "ImagePullBackOff").await;
    let items = binding["status"]["aggregatedStatus"].as_array().unwrap();
    let sick = items.iter().find(|item| item["healthReason"] == "ImagePullBackOff").unwrap();
    assert_eq!(sick["health"], "Unhealthy");
    assert!(sick["healthMessage"].as_str().unwrap().contains("nginx:nosuch"), "{sick}");
    world.rest(Duration::from_secs(10)).await;
    let told = world.read(|view| {
        let events = view.all("hub", &EVENT).map(|(_, event)| event);
        let sick = events.filter(|event| event["reason"] == "ImagePullBackOff");
        sick.map(|event| event["involvedObject"]["name"].clone()).collect::<Vec<_>>()
    });
    assert_eq!(told, ["nginx"], "one Event, on the template");

    world.hub().merge(&DEPLOYMENT, NGINX, image("1.28")).await;
    until_health(&world, "Healthy").await;
    rights::assert_allowed(&world);
    world.end().await;
}
