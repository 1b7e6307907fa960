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

// A record counts as kept once its block's name is durable. Here the folder cannot be
// synced, while the server writes on to the block that it has open.
func TestAnAcknowledgementWaitsForTheNameOfABlock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, testConfig)
	defer j.shut(t)
	j.push(t, relaytest.Events(1))
	folder := filepath.Join(datadir.StreamDir(dir, j.names.events), natsserver.MessagesDir)
	j.conn.Shrunk(j.names.events) // so that it is looked at
	require.NoError(t, os.Rename(folder, folder+".away"))
	err := j.Append(t.Context(), batchOf(relaytest.Events(1, relaytest.From(7))))
	require.NoError(t, os.Rename(folder+".away", folder))
	require.ErrorContains(t, err, "newest block")
	j.push(t, relaytest.Events(1, relaytest.From(7)))
}
