package deadletters

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/cluster"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// A letter that is appended again while a cursor stands at the end of the log, at the very
// position that the cursor would read next, is read. A cluster's reader ends where the log did
// when it was made.
func TestACursorReadsWhatWasAppendedAfterItsReader(t *testing.T) {
	t.Parallel()
	s, err := cluster.Open(t.Context(), cluster.Config{
		Journal: config.Journal{URL: natstest.Run(t, t.TempDir()).ClientURL(), Replicas: 1, StreamPrefix: "TEST", MaxBytes: 64 << 20},
		Dir:     t.TempDir(), Version: "test", Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	log, err := s.Log(t.Context(), LogName, store.Options{})
	require.NoError(t, err)
	c := &cursor{s: &Store{letters: log}, ctx: t.Context()}
	t.Cleanup(func() { c.close() })
	for _, text := range []string{"one", "two", "three"} {
		pos, err := log.Append(t.Context(), store.Draft{Data: []byte(text)})
		require.NoError(t, err)
		item, err := c.read(pos)
		require.NoError(t, err)
		assert.Equal(t, text, string(item.Record.Data))
	}
	_, err = c.read(4)
	require.ErrorContains(t, err, "the log ends before position 4")
}
