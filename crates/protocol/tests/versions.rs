//! Ends of different versions: what the newer one adds is passed over by the older one, and what the older one leaves out
//! has its default. Field numbers are never used for something else.

use atoll_protocol::v1;
use prost::Message;

/// Field 99 with these bytes, as a later version could have it.
fn later(bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![0x9a, 0x06, u8::try_from(bytes.len()).unwrap()];
    field.extend(bytes);
    field
}

#[test]
fn a_message_of_a_later_version_is_no_message_and_its_fields_are_passed_over() {
    let unknown = later(&[1, 2, 3]);
    assert_eq!(v1::AgentMessage::decode(&*unknown).unwrap().message, None);
    let mut ordered = v1::ControllerMessage { term: 7, message: None }.encode_to_vec();
    ordered.extend(&unknown);
    let read = v1::ControllerMessage::decode(&*ordered).unwrap();
    assert_eq!((read.term, read.message), (7, None), "the term counts all the same");
    let hello = v1::Hello { epoch: 3, highest_term: 7, ..v1::Hello::default() };
    let mut longer = hello.encode_to_vec();
    longer.extend(&unknown);
    assert_eq!(v1::Hello::decode(&*longer).unwrap(), hello);
    // And an earlier one said less.
    assert_eq!(v1::Hello::decode(&[][..]).unwrap(), v1::Hello::default());
}
