// Package trailtest opens audit trails for tests.
package trailtest

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// Serve opens a trail on a server of its own, with all files in dir. stop closes both
// before the test's end; then dir can be served again.
func Serve(tb testing.TB, dir string, changes ...func(*server.Options)) (trail *audit.Trail, stop func()) {
	tb.Helper()
	js, stopServer := natstest.Serve(tb, dir, changes...)
	trail = open(tb, js, "TEST", dir)
	return trail, func() {
		require.NoError(tb, trail.Close(context.WithoutCancel(tb.Context())))
		stopServer()
	}
}

// New is a trail on a server of its own, until the test ends.
func New(tb testing.TB) *audit.Trail {
	tb.Helper()
	trail, stop := Serve(tb, tb.TempDir())
	tb.Cleanup(stop)
	return trail
}

// On is a trail with a prefix of its own on a server, until the test ends.
func On(tb testing.TB, js jetstream.JetStream, prefix string) *audit.Trail {
	tb.Helper()
	trail := open(tb, js, prefix, tb.TempDir())
	tb.Cleanup(func() { require.NoError(tb, trail.Close(context.WithoutCancel(tb.Context()))) })
	return trail
}

func open(tb testing.TB, js jetstream.JetStream, prefix, dir string) *audit.Trail {
	tb.Helper()
	trail, err := audit.Open(tb.Context(), js, audit.Options{
		StreamPrefix: prefix, Origin: "example.com/trail", KeyFile: filepath.Join(dir, "audit.key"),
	})
	require.NoError(tb, err)
	return trail
}
