# syntax=docker/dockerfile:1
# The scheduler: one static program, no shell, no library, not root.
#
#   docker buildx build -f charts/images/scheduler.Dockerfile --platform linux/amd64,linux/arm64 -t REGISTRY/muster:TAG --push .
#
# Each platform is built on its own machine or under emulation (`docker buildx create --use --platform …` with a native
# builder for each is much faster); nothing is cross-compiled, because one dependency has C and assembly in it.
ARG RUST=1.95
FROM rust:${RUST}-alpine AS build
ARG TARGETARCH
RUN apk add --no-cache musl-dev ca-certificates
WORKDIR /build
COPY . .
# On Alpine the default target is static. The path of the sources stays out of the program.
ENV RUSTFLAGS="--remap-path-prefix=/build=muster" CARGO_INCREMENTAL=0
RUN --mount=type=cache,target=/usr/local/cargo/registry,id=cargo-registry \
    --mount=type=cache,target=/build/target,id=target-scheduler-${TARGETARCH} \
    cargo build --release --locked --package muster --bin muster \
    && cp target/release/muster /muster \
    && ! ldd /muster 2>/dev/null | grep -q '=>'

FROM scratch
COPY --from=build /muster /muster
# For extenders and approval servers with a certificate of a public authority.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY LICENSE /LICENSE
USER 65532:65532
EXPOSE 10259
ENTRYPOINT ["/muster"]
CMD ["run"]
