use proptest::prelude::*;

use super::*;

type Objects = BTreeMap<String, Vec<u8>>;

#[derive(Debug, Clone)]
struct Given(Objects);

impl Inputs for Given {
    fn differences(&self, _: Option<&dyn Inputs>) -> Vec<(String, Option<Vec<u8>>)> {
        let mut all: Vec<_> =
            self.0.iter().map(|(name, content)| (name.clone(), Some(content.clone()))).collect();
        let gone = ["a", "b", "c"].iter().filter(|name| !self.0.contains_key(**name));
        all.extend(gone.map(|name| ((*name).to_owned(), None)));
        all
    }
}

fn id(number: usize) -> String {
    format!("{number:032x}")
}

fn objects(state: &State) -> Objects {
    state.objects().map(|(name, content)| (name.to_owned(), content.to_vec())).collect()
}

#[test]
fn a_changed_number_takes_a_few_bytes() {
    let text = |free: i64| {
        let node = |n: i64| {
            format!("{{\"nodes\":1,\"milli\":{{\"cpu\":{},\"memory\":{}}}}}", n * 7, n * 999_983)
        };
        let nodes: Vec<String> =
            (1..40).map(|n| node(if n == 20 { free } else { n * 1000 })).collect();
        nodes.join(",").into_bytes()
    };
    let (old, new) = (text(20_000), text(19_500));
    let mut bytes = Vec::new();
    diff::write(&old, &new, &mut bytes);
    assert!(bytes.len() < 40, "{} bytes", bytes.len());
    assert_eq!(diff::read(&old, &mut bytes.as_slice(), 1 << 20), Some(new));
}

#[test]
fn a_frame_that_is_damaged_or_follows_another_is_refused() {
    let mut encoder = Encoder::default();
    let mut encode = |n: usize, content: &str| {
        let given = Given(Objects::from([("a".to_owned(), content.as_bytes().to_vec())]));
        encoder.encode(&id(n), 0, Box::new(given)).unwrap()
    };
    let frames =
        [encode(1, "one and more"), encode(2, "two and more"), encode(3, "three and more")];
    let mut state = State::default();
    state.apply(&frames[0]).unwrap();
    assert!(matches!(state.clone().apply(&frames[2]), Err(FrameError::Damaged)));
    for at in 0..frames[1].as_bytes().len() {
        let mut bytes = frames[1].as_bytes().to_vec();
        bytes[at] ^= 4;
        let damaged = Frame::from_bytes(bytes);
        let base = damaged.base().ok().flatten();
        // The place of the base is checked by looking the base up.
        assert!(state.clone().apply(&damaged).is_err() || base != Some(id(1)), "byte {at}");
    }
    state.apply(&frames[1]).unwrap();
    state.apply(&frames[2]).unwrap();
    assert_eq!(objects(&state)["a"], b"three and more");
    assert_eq!(frames[2].base().unwrap(), Some(id(2)));
}

#[test]
fn weeks_begin_with_whole_inputs_and_runs_are_bounded() {
    let mut encoder = Encoder::default();
    let week = 7 * 24 * 3600;
    let mut whole = Vec::new();
    for n in 0..2_000 {
        let given =
            Given(Objects::from([("a".to_owned(), format!("{n} {}", n * 7919).into_bytes())]));
        let seconds = if n < 300 { 0 } else { week };
        let frame = encoder.encode(&id(n), seconds, Box::new(given)).unwrap();
        if frame.base().unwrap().is_none() {
            whole.push(n);
        }
    }
    assert!(whole.starts_with(&[0, 257, 300]), "{whole:?}");
    assert!(whole.windows(2).all(|pair| pair[1] - pair[0] <= 257), "{whole:?}");
    encoder.reset();
    let frame = encoder.encode(&id(1), week, Box::new(Given(Objects::new()))).unwrap();
    assert_eq!(frame.base().unwrap(), None);
}

proptest! {
    #[test]
    fn texts_come_back(old in "[ab0-9]{0,80}", new in "[ab0-9]{0,80}", cut in 0_usize..80) {
        let mixed = format!("{}{}{}", &old[cut.min(old.len())..], new, &old[..cut.min(old.len())]);
        for new in [new, mixed] {
            let mut bytes = Vec::new();
            diff::write(old.as_bytes(), new.as_bytes(), &mut bytes);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(diff::read(old.as_bytes(), &mut rest, 1 << 20), Some(new.into_bytes()));
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn frames_give_back_the_objects_of_every_decision(
        history in prop::collection::vec(
            prop::collection::btree_map("[abc]", prop::collection::vec(any::<u8>(), 0..40), 0..3), 1..20,
        ),
    ) {
        let mut encoder = Encoder::default();
        let mut state = State::default();
        for (n, given) in history.into_iter().enumerate() {
            let frame = encoder.encode(&id(n), 0, Box::new(Given(given.clone()))).unwrap();
            state.apply(&Frame::from_bytes(frame.as_bytes().to_vec())).unwrap();
            prop_assert_eq!(objects(&state), given);
        }
    }

    #[test]
    fn any_bytes_are_no_more_than_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut state = State::default();
        let mut given = bytes.as_slice();
        let _ = diff::read(b"some old text", &mut given, 1000);
        let _ = state.apply(&Frame::from_bytes([vec![FORMAT, WHOLE | PLAIN], bytes].concat()));
    }
}
