use tokio::io::DuplexStream;

use super::headers::{dictionary, none, stored};
use super::*;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// A header block as a client sends it, uncompressed.
fn block(first: bool, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = (headers.len() as u32).to_be_bytes().to_vec();
    for (name, value) in headers {
        for part in [name, value] {
            text.extend_from_slice(&(part.len() as u32).to_be_bytes());
            text.extend_from_slice(part.as_bytes());
        }
    }
    [&none(true)[..if first { 6 } else { 0 }], &stored(&text)].concat()
}

fn control(kind: u16, flags: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, 3];
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&((u32::from(flags) << 24) | body.len() as u32).to_be_bytes());
    [frame, body.to_vec()].concat()
}

fn opens(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    control(1, flags, &[&stream.to_be_bytes()[..], &[0; 6], block].concat())
}

fn data(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    let head = (u32::from(flags) << 24) | bytes.len() as u32;
    [&stream.to_be_bytes()[..], &head.to_be_bytes(), bytes].concat()
}

fn pair() -> (SpdyConnection<DuplexStream>, DuplexStream) {
    let (here, there) = tokio::io::duplex(1 << 20);
    (SpdyConnection::new(here), there)
}

async fn next(connection: &mut SpdyConnection<DuplexStream>) -> SpdyEvent {
    connection.next().await.unwrap().expect("an event")
}

/// What the server says to these bytes of a client that then leaves.
async fn refusal(bytes: &[u8]) -> String {
    let (mut connection, mut client) = pair();
    client.write_all(bytes).await.unwrap();
    client.shutdown().await.unwrap();
    loop {
        match connection.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a bad frame was accepted"),
            Err(error) => return error.to_string(),
        }
    }
}

#[test]
fn the_dictionary_is_that_of_the_protocol() {
    let all = dictionary();
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in &all {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    // Its length, and the checksum that texts name.
    assert_eq!((all.len(), (high << 16) | low), (1_423, 0xe3c6_a7c2));
}

#[tokio::test]
async fn a_session_of_a_client() {
    let (mut connection, mut client) = pair();
    let error = [("streamType", "error"), ("port", "8080")];
    client.write_all(&opens(1, 0, &block(true, &error))).await.unwrap();
    client.write_all(&opens(3, 1, &block(false, &[("streamType", "data")]))).await.unwrap();
    let SpdyEvent::Opened { stream, headers, ended } = next(&mut connection).await else {
        panic!("a stream")
    };
    assert_eq!((stream, ended, headers["streamtype"].as_str()), (1, false, "error"));
    assert_eq!(headers["port"], "8080");
    assert!(matches!(
        next(&mut connection).await,
        SpdyEvent::Opened { stream: 3, ended: true, .. }
    ));

    // A ping is answered before anything else happens, and frames without a meaning here change nothing.
    client.write_all(&control(6, 0, &7_u32.to_be_bytes())).await.unwrap();
    client.write_all(&control(6, 0, &8_u32.to_be_bytes())).await.unwrap();
    client.write_all(&control(4, 0, &[0; 12])).await.unwrap();
    client.write_all(&control(9, 0, &[0; 8])).await.unwrap();
    client.write_all(&data(3, 0, b"after its end")).await.unwrap();
    client.write_all(&data(99, 0, b"no such stream")).await.unwrap();
    client.write_all(&data(1, 1, b"hello")).await.unwrap();
    let hello = SpdyEvent::Data { stream: 1, bytes: Bytes::from_static(b"hello"), ended: true };
    assert_eq!(next(&mut connection).await, hello);
    // Both are accepted; only the first reply begins the text.
    let mut replies = vec![0; 2 * (8 + 4 + 14) + 6];
    client.read_exact(&mut replies).await.unwrap();
    assert_eq!(replies[..12], [0x80, 3, 0, 2, 0, 0, 0, 24, 0, 0, 0, 1]);
    assert_eq!(replies[12..32], none(true));
    assert_eq!(
        replies[32..],
        [&[0x80, 3, 0, 2, 0, 0, 0, 18, 0, 0, 0, 3], &none(false)[..]].concat()
    );
    let mut pong = [0; 12];
    client.read_exact(&mut pong).await.unwrap();
    assert_eq!(pong[..], control(6, 0, &7_u32.to_be_bytes()));

    // Long answers are cut; nothing follows the end, and a stream that ended on both sides is forgotten.
    connection.send(1, &vec![b'x'; CHUNK + 1], true).await.unwrap();
    connection.send(1, b"more", false).await.unwrap();
    let mut sent = vec![0; 8 + CHUNK + 9];
    client.read_exact(&mut sent).await.unwrap();
    assert_eq!(sent[..8], [0, 0, 0, 1, 0, 0, 0x80, 0]);
    assert_eq!(sent[8 + CHUNK..], data(1, 1, b"x"));
    assert_eq!(connection.open.keys().copied().collect::<Vec<_>>(), [3]);

    // A client that leaves gets what is still sent, and then the end.
    client.write_all(&control(7, 0, &[0; 8])).await.unwrap();
    client.write_all(&control(3, 0, &[0, 0, 0, 3, 0, 0, 0, 5])).await.unwrap();
    assert_eq!(next(&mut connection).await, SpdyEvent::Reset(3));
    assert!(connection.next().await.unwrap().is_none());
    connection.close().await.unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, control(7, 0, &[0, 0, 0, 3, 0, 0, 0, 0]));
}

#[tokio::test]
async fn headers_may_be_compressed_with_the_dictionary() {
    // As zlib writes them at level 9 with the dictionary, each flushed.
    let first = hex(
        "78f9e3c6a7c202253a2c85096b2a28a821057311380f581858180069ce22484466821238a301000000ffff",
    );
    let second = hex("c2a11d54162512d60d000000ffff");
    let (mut connection, mut client) = pair();
    client.write_all(&opens(1, 0, &first)).await.unwrap();
    client.write_all(&opens(3, 0, &second)).await.unwrap();
    for (number, kind) in [(1, "error"), (3, "data")] {
        let SpdyEvent::Opened { stream, headers, .. } = next(&mut connection).await else {
            panic!("a stream")
        };
        assert_eq!(stream, number);
        let expected = [("content-type", kind), ("port", "8080"), ("requestid", "0")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(headers, BTreeMap::from(expected));
    }
}

#[tokio::test]
async fn a_client_has_a_limited_number_of_streams() {
    let (mut connection, mut client) = pair();
    for number in 0..=STREAMS as u32 {
        client.write_all(&opens(2 * number + 1, 0, &block(number == 0, &[]))).await.unwrap();
    }
    for _ in 0..STREAMS {
        assert!(matches!(next(&mut connection).await, SpdyEvent::Opened { .. }));
    }
    client.shutdown().await.unwrap();
    assert!(connection.next().await.unwrap().is_none());
    drop(connection);
    let mut answers = Vec::new();
    client.read_to_end(&mut answers).await.unwrap();
    let refused = control(3, 0, &[0, 0, 2, 1, 0, 0, 0, 3]);
    assert_eq!(answers[answers.len() - refused.len()..], refused);
}

#[tokio::test]
async fn what_breaks_the_protocol_is_refused_before_it_costs_memory() {
    // 70000 zeros.
    let bomb = [hex("ecc13101000000c2a0f54f6d094fa0"), vec![0; 67], hex("80b7010000ffff")].concat();
    for (bytes, why) in [
        (
            data(1, 0, &[])[..4].iter().copied().chain([0, 0x20, 0, 0]).collect(),
            "a frame has 2097152 bytes",
        ),
        (control(1, 0, &[0; 17 << 10]), "a frame has 17408 bytes"),
        (vec![0x80, 2, 0, 1, 0, 0, 0, 0], "a control frame is not valid"),
        (control(1, 0, &[0; 9]), "a SYN_STREAM frame is not valid"),
        (control(3, 0, &[0; 3]), "a RST_STREAM frame is not valid"),
        (control(6, 0, &[]), "a PING frame is not valid"),
        (opens(2, 0, &block(true, &[])), "stream 2 is not the next"),
        (
            [opens(3, 0, &block(true, &[])), opens(3, 0, &block(false, &[]))].concat(),
            "stream 3 is not the next",
        ),
        (opens(1, 0, &[0x78]), "too short"),
        (opens(1, 0, &[0x78, 0x9c, 0, 0, 0, 0, 0]), "dictionary"),
        (opens(1, 0, &[&none(true)[..6], &[7, 7, 7]].concat()), "cannot be decompressed"),
        (opens(1, 0, &[&none(true)[..6], &stored(&[0, 0, 0, 1])].concat()), "too short"),
        (opens(1, 0, &[&none(true)[..6], &stored(&[0, 0, 1, 0])].concat()), "too many"),
        (
            opens(1, 0, &[&none(true)[..6], &stored(&[0, 0, 0, 1, 255, 255, 255, 255])].concat()),
            "too short",
        ),
        // Few bytes that become many.
        (opens(1, 0, &[&none(true)[..6], &bomb].concat()), "too long"),
        // A text that ends: nothing could follow.
        (opens(1, 0, &[&none(true)[..6], &[1, 0, 0, 255, 255]].concat()), "their text ends"),
    ] {
        let found = refusal(&bytes).await;
        assert!(found.contains(why), "{why}: {found}");
    }
}
