# Two static-enough binaries on an image without a shell: `atoll`, and the small `atoll-agent` for members. Build at the repository's root.
#
# Tags may change under us. A build that is to be repeatable names both images by digest (NAME@sha256:...).
ARG BUILD_IMAGE=rust:1.94-slim-bookworm
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:nonroot
FROM ${BUILD_IMAGE} AS build
# SQLite is compiled in.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --release --locked -p atoll-cli -p atoll-program

FROM ${RUNTIME_IMAGE}
COPY --from=build /src/target/release/atoll /src/target/release/atoll-agent /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/atoll"]
