# syntax=docker/dockerfile:1
# Build:  docker build --build-arg VERSION=$(git describe --tags --always) -t auditrelay .
# Run:    docker run -v auditrelay:/var/lib/auditrelay -v ./relay.yaml:/etc/auditrelay/relay.yaml:ro auditrelay
#
# A tag may name another image tomorrow. Pin the two base images by digest, as in
#   --build-arg BUILD_IMAGE=golang:1.26@sha256:DIGEST --build-arg RUN_IMAGE=gcr.io/distroless/static-debian12:nonroot@sha256:DIGEST
# where DIGEST is what this prints, after a look at what it names:
#   docker buildx imagetools inspect --format '{{.Manifest.Digest}}' golang:1.26
ARG BUILD_IMAGE=golang:1.26
ARG RUN_IMAGE=gcr.io/distroless/static-debian12:nonroot
FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -pgo=cmd/auditrelay/load.pgo -ldflags "-s -w -X main.version=${VERSION}" -o /out/auditrelay ./cmd/auditrelay \
 && mkdir -p -m 700 /out/data

# Static, without a shell, as an unprivileged user.
FROM ${RUN_IMAGE}
COPY --from=build /out/auditrelay /usr/local/bin/auditrelay
COPY --from=build --chown=nonroot:nonroot /out/data /var/lib/auditrelay
USER nonroot:nonroot
VOLUME /var/lib/auditrelay
EXPOSE 3100 9100
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s \
    CMD ["/usr/local/bin/auditrelay", "healthcheck", "--url", "http://127.0.0.1:9100/healthz"]
ENV AUDITRELAY_CONFIG=/etc/auditrelay/relay.yaml
ENTRYPOINT ["/usr/local/bin/auditrelay"]
CMD ["run"]
