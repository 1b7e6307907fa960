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
// synced, while the server writes on to its open block.
func TestAnAcknowledgementWaitsForTheNameOfABlock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	defer j.shut(t)
	aside := func(seq uint64) error {
		return j.Losses.Name(t.Context(), datadir.Quarantined{Stream: "another", From: seq, To: seq}, nil)
	}
	register := func(sink string) error {
		_, _, err := j.Positions.Rewind(t.Context(), sink, 0, false)
		return err
	}
	j.push(t, relaytest.Events(1))
	require.NoError(t, register("one"))
	require.NoError(t, aside(1))
	for stream, keep := range map[string]func() error{
		j.names.events:    func() error { return j.Append(t.Context(), batchOf(relaytest.Events(1, relaytest.From(7)))) },
		"TEST_QUARANTINE": func() error { return aside(2) },
		"TEST_SINKS":      func() error { return register("two") },
	} {
		folder := filepath.Join(datadir.StreamDir(dir, stream), natsserver.MessagesDir)
		j.conn.Shrunk(stream) // for another look at it
		require.NoError(t, os.Rename(folder, folder+".away"))
		err := keep()
		require.NoError(t, os.Rename(folder+".away", folder))
		require.ErrorContains(t, err, "newest block", stream)
		require.NoError(t, keep(), stream)
	}
}
