package datadir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
)

// A crash between the two files of the shortened description is no damage.
func TestAShortenedWindowOutlivesACrash(t *testing.T) {
	t.Parallel()
	d := New(t.TempDir(), Layout{Events: "E"}, nil)
	dir := d.streamDir("E")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	text := []byte(`{"name":"E","duplicate_window":30000000000,"max_msgs":-1}`)
	sum := blockfile.DescriptionSum("E", text)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "meta.inf"), text, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "meta.sum"), sum, 0o600))
	for range 2 {
		require.NoError(t, d.forgetMessageIDs("E"))
		got, err := os.ReadFile(filepath.Join(dir, "meta.inf"))
		require.NoError(t, err)
		assert.JSONEq(t, `{"name":"E","duplicate_window":100000000,"max_msgs":-1}`, string(got))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "meta.sum"), sum, 0o600)) // as before the crash
		mended, err := d.mendDescription("E", "E", dir, false)
		require.NoError(t, err)
		assert.Empty(t, mended)
		sound, err := blockfile.Described("E", dir)
		require.NoError(t, err)
		assert.True(t, sound)
	}
}
