#!/bin/sh
# Builds Loki from its Go module, for the tests that deliver to a real one:
#   build-loki.sh [FOLDER]
# prints the path of FOLDER/loki, and builds it only where it is not there yet.
# FOLDER is by default auditrelay/integration/loki-VERSION under
# $XDG_CACHE_HOME, or ~/.cache. Needs Go, and a module proxy that can be reached;
# it takes some four minutes on two cores, and 4 GB of Go's caches.
set -eu

version=v3.7.8
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/auditrelay/integration/loki-$version}
if [ -x "$folder/loki" ]; then
  echo "$folder/loki"
  exit 0
fi

mkdir -p "$folder"
# Beside the binary, so that the last step is a rename: a build that was cut off
# leaves no binary that looks whole.
work=$(mktemp -d "$folder/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# Outside of any module, lest its go.mod be touched.
source=$(cd "$work" && go mod download -json "github.com/grafana/loki/v3@$version" |
  sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')
[ -d "$source" ] || { echo "build-loki: go mod download told no folder for loki $version" >&2; exit 1; }
cp -R "$source" "$work/loki"
chmod -R u+w "$work/loki"
cd "$work/loki"

# The module's archive has no pkg/push, which is a module of its own there.
go mod edit -dropreplace github.com/grafana/loki/pkg/push
echo "build-loki: building Loki $version, some minutes" >&2
GOFLAGS=-mod=mod CGO_ENABLED=0 go build -trimpath \
  -ldflags "-s -w -X github.com/grafana/loki/v3/pkg/util/build.Version=$version" \
  -o "$work/binary" ./cmd/loki
mv "$work/binary" "$folder/loki"
echo "$folder/loki"
