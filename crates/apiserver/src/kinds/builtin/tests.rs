use super::*;

#[test]
fn every_stored_kind_has_a_merge_schema() {
    let missing: Vec<_> = ALL
        .iter()
        .filter(|b| !b.review)
        .filter(|b| atoll_merge::schema::Schema::builtin(b.group, b.version, b.kind).is_none())
        .map(|b| b.kind)
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}
