//! Session messages with arbitrary content: accepted within their bounds or rejected, and never a panic.

#![allow(clippy::needless_update, reason = "fields are added to messages")]

use std::collections::BTreeMap;

use atoll_protocol::v1;
use jiff::Timestamp;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::wire;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "\\PC{0,20}",
        1 => Just(String::new()),
        1 => "[é…\u{0}-\u{ff}]{3000,5000}",
        1 => select_number(),
    ]
}

fn select_number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i128>().prop_map(|number| number.to_string()),
        Just("170141183460469231731687303715884105727".to_owned()),
        Just("-0".to_owned()),
        Just("1e9".to_owned()),
    ]
}

fn key() -> impl Strategy<Value = Option<v1::ObjectKey>> {
    proptest::option::of(
        (text(), text(), text(), text()).prop_map(|(group, kind, namespace, name)| v1::ObjectKey {
            group,
            kind,
            namespace,
            name,
        }),
    )
}

prop_compose! {
    fn status()(
        numbers in (any::<i64>(), any::<i64>(), any::<i64>(), any::<i64>()),
        counts in (any::<Option<i64>>(), any::<Option<i64>>()),
        health in any::<i32>(),
        texts in (text(), text(), text(), text()),
        status_json in prop_oneof![
            vec(any::<u8>(), 0..60),
            Just(b"[".repeat(100_000)),
            Just(br#"{"replicas": 18446744073709551616}"#.to_vec()),
        ],
        gone in any::<bool>(),
        key in key(),
    ) -> v1::Status {
        v1::Status {
            key,
            hash: texts.0,
            generation: numbers.0,
            observed_generation: numbers.1,
            replicas: counts.0,
            ready: counts.1,
            unschedulable: numbers.2,
            unschedulable_since: numbers.3,
            unschedulable_reason: texts.1,
            health,
            health_reason: texts.2,
            status_json: status_json.into(),
            gone,
            object_uid: texts.3,
            ..v1::Status::default()
        }
    }
}

prop_compose! {
    fn facts()(
        taken_at_ms in any::<i64>(),
        lists in vec(btree_map(text(), select_number(), 0..4), 3),
        texts in (text(), text()),
        kinds in vec((text(), text(), text()), 0..5),
        unlisted in vec(text(), 0..4),
    ) -> v1::Facts {
        let mut lists = lists.into_iter();
        let mut list = || -> BTreeMap<String, String> { lists.next().unwrap_or_default() };
        v1::Facts {
            taken_at_ms,
            allocatable_milli: list(),
            allocated_milli: list(),
            allocating_milli: list(),
            kubernetes_version: texts.0,
            api_message: texts.1,
            apis: kinds
                .into_iter()
                .map(|(group_version, kind, plural)| v1::ApiGroupVersion {
                    group_version,
                    kinds: vec![v1::ApiKind { kind, plural, ..v1::ApiKind::default() }],
                    ..v1::ApiGroupVersion::default()
                })
                .collect(),
            unlisted_kinds: unlisted,
            ..v1::Facts::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_and_inventories_are_taken_whole_or_refused(
        wire in key(),
        texts in (text(), text()),
        claims in vec(text(), 0..6),
        preserve in any::<bool>(),
    ) {
        if let Ok(key) = wire::key(wire.clone()) {
            prop_assert!(!key.kind().is_empty() && !key.name().is_empty());
            prop_assert_eq!(wire::wire_key(&key), wire.clone().unwrap());
        }
        let entry = v1::InventoryEntry {
            key: wire, hash: texts.0, object_uid: texts.1, claims, preserve,
            ..v1::InventoryEntry::default()
        };
        if let Ok((_, held)) = wire::held(entry) {
            prop_assert!(held.mark.claims.is_sorted());
        }
    }

    #[test]
    fn reports_are_within_bounds(status in status()) {
        if let Ok(report) = wire::report(status, true) {
            prop_assert!(report.replicas.is_none_or(|count| count >= 0));
            prop_assert!(report.ready.is_none_or(|count| count >= 0));
            prop_assert!(report.unschedulable >= 0);
            prop_assert!(report.unschedulable_reason.len() <= 4096);
            prop_assert!(report.health.reason.len() <= 4096);
        }
    }

    #[test]
    fn facts_hold_quantities_that_can_be_read_or_are_refused(facts in facts()) {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        if let Ok(taken) = wire::facts(facts, now) {
            prop_assert!(taken.kubernetes_version.len() <= 4096 && taken.api_message.len() <= 4096);
            let resources = taken.counted.map(|counted| counted.resources);
            for (name, quantity) in resources.iter().flat_map(|r| r.allocatable.iter().chain(&r.allocated)) {
                prop_assert!(quantity.milli().is_ok(), "{}: {}", name, quantity);
            }
        }
    }
}
