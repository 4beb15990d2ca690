use super::*;

#[test]
fn differences_name_their_place_and_both_values() {
    let was = json!({"outcome": "Placed", "after": [{"name": "a", "replicas": 3}], "notes": ["x"]});
    let is = json!({"outcome": "Placed", "after": [{"name": "a", "replicas": 2}], "mode": "Fresh"});
    let Fate::Different(differences) = compared(&was, &is) else { panic!("they differ") };
    assert_eq!(
        differences,
        ["after[0].replicas: 3 -> 2", "mode: null -> \"Fresh\"", "notes: [\"x\"] -> null"]
    );
    assert!(matches!(compared(&was, &was.clone()), Fate::Same));
}
