package app

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
)

// A sink that cannot be opened is an error that names it, and what was opened for it before is
// closed.
func TestASinkThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir(), config.Sink{Name: "bad", Webhook: &config.Webhook{URL: secret.New("http://127.0.0.1:1/")}, Format: "unheard-of"})
	err := Run(t.Context(), cfg, Options{Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "unheard-of")
}
