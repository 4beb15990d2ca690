# `atoll`, and the small `atoll-agent` for members, on an image with the C library and without a shell. Build at the repository's
# root, for both platforms (each is built natively or under emulation), with a bill of materials:
#
#   docker buildx build --platform linux/amd64,linux/arm64 --sbom=true --provenance=true -t REGISTRY/atoll:VERSION --push .
#
# Tags may be moved to other images. For a build that can be repeated, pass images by digests that you have checked:
#   --build-arg BUILD_IMAGE=rust@sha256:... --build-arg RUNTIME_IMAGE=gcr.io/distroless/cc-debian12@sha256:...
ARG BUILD_IMAGE=rust:1.94-slim-bookworm
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:nonroot
FROM ${BUILD_IMAGE} AS build
# SQLite is compiled in.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked -p atoll-cli
RUN cargo build --profile agent --locked -p atoll-program

FROM ${RUNTIME_IMAGE}
COPY --from=build /src/target/dist/atoll /src/target/agent/atoll-agent /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/atoll"]
