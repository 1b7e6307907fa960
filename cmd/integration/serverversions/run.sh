#!/usr/bin/env bash
# Tries an upgrade and a roll-back of the nats-server inside the relay: the pinned
# version fills a data directory, another one checks every record and goes on, and
# the pinned one checks all of it; with clean stops, and with kills. It needs a Go
# module proxy, and says SKIPPED where that does not give a version.
set -euo pipefail
cd "$(dirname "$0")"

module=github.com/nats-io/nats-server/v2
pinned=$(cd ../../.. && go list -m -f '{{.Version}}' "$module")
older=v2.14.9 # the newest of the minor version before the pinned one
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build VERSION: makes $work/VERSION. The module's own go.mod names no versions: it
# takes the relay's, except for the server's.
build() {
  cp go.mod "$work/$1.mod"
  cp ../../../go.sum "$work/$1.sum"
  if [ "$1" != "$pinned" ]; then
    go mod edit -replace="$module=$module@$1" "$work/$1.mod"
  fi
  go build -mod=mod -modfile="$work/$1.mod" -o "$work/$1" .
}

# try OTHER kill|: the pinned version fills, OTHER goes on, the pinned one goes on.
try() {
  local dir="$work/data-$1-$2"
  "$work/$pinned" fill "$dir" 60 $2
  "$work/$1" check "$dir" 60
  "$work/$1" fill "$dir" 90 $2
  "$work/$pinned" check "$dir" 90
  "$work/$pinned" fill "$dir" 120 $2
  "$work/$pinned" check "$dir" 120
}

newest=$(cd ../../.. && go list -m -versions "$module" 2>/dev/null | tr ' ' '\n' | grep -E '^v[0-9]+\.[0-9]+\.[0-9]+$' | sort -V | tail -1 || true)
others="$older"
if [ -z "$newest" ] || [ "$newest" = "$pinned" ]; then
  echo "SKIPPED a version after the pinned $pinned: the module proxy has none; the one before is tried"
else
  others="$others $newest"
fi
build "$pinned"
for other in $others; do
  if ! build "$other" 2>"$work/log"; then
    if grep -qE 'dial tcp|no such host|i/o timeout|unknown revision|not found|Forbidden' "$work/log"; then
      echo "SKIPPED nats-server $other: it cannot be fetched: $(tail -1 "$work/log")"
      continue
    fi
    cat "$work/log" >&2
    exit 1
  fi
  try "$other" ""
  try "$other" kill
  echo "OK: $pinned, then $other, then $pinned again: every event, dead letter and position is there"
done
