//! Compiles the protocol without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../../proto");
    let files = protox::compile(
        ["atoll/agent/v1/agent.proto", "atoll/agent/v1/tunnel.proto"],
        ["../../proto"],
    )?;
    tonic_prost_build::configure()
        .bytes(".atoll.agent.v1.Upsert.manifest_json")
        .bytes(".atoll.agent.v1.Status.status_json")
        .bytes(".atoll.agent.v1.RuleText.spec_json")
        .bytes(".atoll.agent.v1.TunnelRequest.body")
        .bytes(".atoll.agent.v1.TunnelResponse.body")
        .bytes(".atoll.agent.v1.ProxyHeader.value")
        .btree_map(".")
        .type_attribute(".atoll.agent.v1.ObjectKey", "#[derive(PartialOrd, Ord)]")
        .compile_fds(files)?;
    Ok(())
}
