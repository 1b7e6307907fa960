package cluster

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// A server that refuses the credentials does so at the next attempt, too: nobody waits for that, and the
// error says it, though another server of the list is down.
func TestRefusedCredentialsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), func(o *server.Options) { o.Authorization = "a-token-of-trust" })
	for _, url := range []string{srv.ClientURL(), srv.ClientURL() + ",nats://127.0.0.1:1", "nats://127.0.0.1:1," + srv.ClientURL()} {
		_, err := dial(t.Context(), config.Journal{URL: url}, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "Authorization Violation", url)
	}
}
