package readback

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay/relaytest"
	"github.com/auditrelay/auditrelay/sinks/file"
)

// A file is counted and read back whole, rotated and compressed or not.
func TestFile(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]config.File{
		"one file": {}, "rotated": {RotateBytes: 5000}, "compressed": {RotateBytes: 5000, Gzip: true},
	} {
		cfg.Path = filepath.Join(t.TempDir(), "events", "events.jsonl")
		d := &File{Path: cfg.Path}
		count := func(want int) {
			t.Helper()
			n, err := d.Count(t.Context())
			require.NoError(t, err, name)
			assert.EqualValues(t, want, n, name)
		}
		count(0)
		s := file.New(cfg, file.Options{})
		t.Cleanup(func() { _ = s.Close() })
		events := relaytest.Events(40)
		for i := range events {
			require.NoError(t, s.Deliver(t.Context(), events[i:i+1]))
			count(i + 1)
		}
		var ids []string
		require.NoError(t, d.Read(t.Context(), func(id string, _ []byte) { ids = append(ids, id) }))
		require.Len(t, ids, len(events))
		for i := range events {
			assert.Equal(t, events[i].ID, ids[i])
		}
	}
}
