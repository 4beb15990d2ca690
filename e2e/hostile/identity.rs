//! Certificates and tokens: who may open what.

use atoll_protocol::v1::controller_message::Message as Hear;
use tonic::Code;

use crate::client::{self, Session, hello};
use crate::target::Target;

#[tokio::test(flavor = "multi_thread")]
async fn only_the_federations_own_certificate_opens_a_session() {
    let target = Target::start().await;
    let member = target.join("member1").await;

    let mut own = Session::open(target.agents, &member.identity, hello(&member)).await.unwrap();
    assert!(matches!(own.next().await, Ok(Hear::Welcome(_))));

    let foreign = target.foreign(member.identity.cluster_uid());
    let refused = Session::open(target.agents, &foreign, hello(&member)).await;
    let refused = refused.err().expect("a certificate of another authority is refused");
    assert!(matches!(refused.code(), Code::Unavailable | Code::Unknown), "{refused:?}");

    let mut nobody = client::grpc(target.agents, None).await.unwrap();
    let refused = nobody.session(tokio_stream::empty()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");
}
