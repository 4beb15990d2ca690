# One static-enough binary on an image without a shell. Build at the repository's root.
FROM rust:1.94-slim-bookworm AS build
# SQLite is compiled in.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --release --locked -p atoll-cli

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/atoll /usr/local/bin/atoll
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/atoll"]
