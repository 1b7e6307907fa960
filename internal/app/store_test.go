package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheDataDirectoryOfAnEarlierVersionIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, refuseEarlier(dir))
	require.NoError(t, refuseEarlier(filepath.Join(dir, "not made yet")))
	streams := filepath.Join(dir, "jetstream", "jetstream", "$G", "streams")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "jetstream"), 0o700))
	require.NoError(t, refuseEarlier(dir), "an empty folder holds nothing")
	require.NoError(t, os.MkdirAll(streams, 0o700))
	err := refuseEarlier(dir)
	require.ErrorContains(t, err, "data_dir "+dir+" holds the events of an earlier version")
	require.ErrorContains(t, err, "set an empty data_dir")
	require.ErrorContains(t, err, "until its 'auditrelay sinks list' shows nothing pending")
	require.DirExists(t, streams, "nothing is touched")
}
