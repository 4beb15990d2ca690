//! Peers of different versions: the older one ignores fields added by the newer, and fields that the older one omits
//! have defaults. Field numbers are never reused.

use atoll_protocol::v1;
use prost::Message;

/// Field 99 with three bytes, like a field of a later version.
const LATER: [u8; 6] = [0x9a, 0x06, 3, 1, 2, 3];

#[test]
fn a_message_of_a_later_version_is_no_message_and_its_fields_are_passed_over() {
    assert_eq!(v1::AgentMessage::decode(&LATER[..]).unwrap().message, None);
    let mut ordered = v1::ControllerMessage { term: 7, message: None }.encode_to_vec();
    ordered.extend(LATER);
    let read = v1::ControllerMessage::decode(&*ordered).unwrap();
    assert_eq!((read.term, read.message), (7, None), "the term counts all the same");
    let hello = v1::Hello { epoch: 3, highest_term: 7, ..v1::Hello::default() };
    let mut longer = hello.encode_to_vec();
    longer.extend(LATER);
    assert_eq!(v1::Hello::decode(&*longer).unwrap(), hello);
    // An earlier version sent fewer fields.
    assert_eq!(v1::Hello::decode(&[][..]).unwrap(), v1::Hello::default());
}
