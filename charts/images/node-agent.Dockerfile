# syntax=docker/dockerfile:1
# The node agent: one program and the C library, no shell.
#
#   docker buildx build -f charts/images/node-agent.Dockerfile --platform linux/amd64,linux/arm64 -t REGISTRY/muster-node-agent:TAG --push .
#
# It cannot be static: NVIDIA's management library, which the container runtime brings in, is loaded at run time and is made for
# the GNU C library. So the loader and the libraries that the two need are copied, and nothing else.
ARG RUST=1.95
FROM rust:${RUST}-slim-trixie AS build
ARG TARGETARCH
WORKDIR /build
COPY . .
ENV RUSTFLAGS="--remap-path-prefix=/build=muster" CARGO_INCREMENTAL=0
RUN --mount=type=cache,target=/usr/local/cargo/registry,id=cargo-registry \
    --mount=type=cache,target=/build/target,id=target-node-agent-${TARGETARCH} \
    cargo build --release --locked --package muster-node-agent --bin muster-node-agent \
    && cp target/release/muster-node-agent /muster-node-agent
# What the program needs, and what NVIDIA's library needs: its names are in no program that could be asked here.
RUN set -eu; mkdir -p /root-fs/etc; \
    { ldd /muster-node-agent | grep -o '/[^ ]*'; \
      for name in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libgcc_s.so.1; do \
        ldconfig -p | grep -o "/[^ ]*/$name\$" | head -n 1; done; } | sort -u \
    | while read -r file; do cp --parents --dereference "$file" /root-fs; done; \
    touch /root-fs/etc/ld.so.cache

FROM scratch
COPY --from=build /root-fs/ /
COPY --from=build /muster-node-agent /muster-node-agent
COPY LICENSE /LICENSE
# The chart runs it as root without any capability, because the kubelet's socket belongs to root; by itself it is nobody.
USER 65532:65532
EXPOSE 10262
ENTRYPOINT ["/muster-node-agent"]
CMD ["run"]
