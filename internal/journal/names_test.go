package journal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// A message counts as kept once its block's name is durable. Here the folder cannot be
// synced, while the server writes on to the block that it has open.
func TestAnAcknowledgementWaitsForTheNameOfABlock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	defer j.shut(t)
	aside := func(seq uint64) error {
		return j.Losses.Name(t.Context(), datadir.Quarantined{Stream: "another", From: seq, To: seq}, nil)
	}
	j.push(t, relaytest.Events(1))
	require.NoError(t, j.register.Add(t.Context(), "one"))
	require.NoError(t, aside(1))
	for stream, keep := range map[string]func() error{
		j.names.events:    func() error { return j.Append(t.Context(), batchOf(relaytest.Events(1, relaytest.From(7)))) },
		"TEST_QUARANTINE": func() error { return aside(2) },
		"TEST_SINKS":      func() error { return j.register.Add(t.Context(), "two") },
	} {
		folder := filepath.Join(datadir.StreamDir(dir, stream), natsserver.MessagesDir)
		j.conn.Shrunk(stream) // so that it is looked at
		require.NoError(t, os.Rename(folder, folder+".away"))
		err := keep()
		require.NoError(t, os.Rename(folder+".away", folder))
		require.ErrorContains(t, err, "newest block", stream)
		require.NoError(t, keep(), stream)
	}
}
