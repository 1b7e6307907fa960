package deadletters

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
)

// A letter that is appended again while a cursor stands at the end of the log, at the very
// position that the cursor would read next, is read.
func TestACursorReadsWhatWasAppendedAfterItsReader(t *testing.T) {
	t.Parallel()
	s, err := disk.Open(disk.Config{Dir: t.TempDir(), Salvage: t.TempDir(), Writer: "test", Logger: slog.New(slog.DiscardHandler)})
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
