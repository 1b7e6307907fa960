package disk

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/store"
)

// readOnly is how a filesystem fails that became read-only.
func readOnly(op, _ string) error {
	if op == "open to read" || op == "read" {
		return nil
	}
	return unix.EROFS
}

// While the filesystem is read-only, nothing is taken, and everything that was is read. Each trouble is
// logged once, however often the second comes round, and nothing is called removed or damaged. The store goes
// on as soon as the filesystem takes writes.
func TestAReadOnlyFilesystem(t *testing.T) {
	t.Parallel()
	m := newModel(t, 4)
	var said bytes.Buffer
	m.leave() // its syncing, which is done here
	m.store.log = slog.New(slog.NewTextHandler(&said, nil))
	for range 30 {
		m.append()
		m.put()
		m.putLazy()
	}
	m.fs.failWith(readOnly)
	_, err := m.log.Append(t.Context(), store.Draft{Data: []byte("refused")})
	require.ErrorIs(t, err, unix.EROFS)
	require.ErrorIs(t, m.store.table.PutLazy(t.Context(), "l1", []byte("refused"), store.If{}), unix.EROFS)
	for range 20 {
		m.store.syncLazily(t.Context())
	}
	records, gaps := read(t, m.log)
	assert.Len(t, records, len(m.acked))
	assert.Empty(t, gaps)
	assert.LessOrEqual(t, strings.Count(said.String(), "\n"), 4, said.String())
	assert.NotContains(t, said.String(), "removed or damaged")
	m.fs.failWith(nil)
	m.store.syncLazily(t.Context())
	assert.Contains(t, said.String(), "are synced again")
	goesOn(m, "it was read-only")
}

// A process without descriptors cannot open a segment, and neither can a start on a filesystem that became
// read-only. That is no damage: a reader gets an error, a start is refused, and everything is there
// afterwards.
func TestAFileThatCannotBeOpenedNowIsNotLost(t *testing.T) {
	t.Parallel()
	for _, cause := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.EACCES, unix.EROFS, unix.ENOSPC} {
		m := newModel(t, 4)
		for range 30 {
			m.append()
		}
		m.fs.failWith(func(op, path string) error {
			if strings.HasPrefix(op, "open") && strings.HasSuffix(path, segmentSuffix) && (op == "open" || cause != unix.EROFS) {
				return cause
			}
			return nil
		})
		if cause != unix.EROFS { // which takes nothing from a reader
			failed := error(nil)
			for item, err := range m.log.Read(t.Context(), 1, false) {
				require.Nil(t, item.Gap, "%v is no damage", cause)
				failed = err
			}
			require.ErrorIs(t, failed, cause)
		}
		for gap, err := range m.log.Scrub(t.Context()) {
			require.Zero(t, gap)
			require.ErrorIs(t, err, cause)
		}
		m.leave()
		s, err := open(Config{Dir: "/s", Salvage: "/salvage", Writer: "test", Logger: discard}, m.fs, m.boot)
		require.NoError(t, err)
		_, err = s.Log(t.Context(), "events", m.opts)
		require.ErrorIs(t, err, cause)
		m.fs.failWith(nil)
		m.open()
		m.check()
		n := 0
		for item, err := range m.log.Read(t.Context(), 1, false) {
			require.NoError(t, err)
			require.NotNil(t, item.Record)
			n++
		}
		require.Equal(t, len(m.acked), n)
	}
}
