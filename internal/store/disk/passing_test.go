package disk

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A process without descriptors cannot open a segment, and neither can one on a filesystem that became
// read-only. That is no damage: a reader gets an error, a start is refused, and everything is there
// afterwards.
func TestAFileThatCannotBeOpenedNowIsNotLost(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{unix.EMFILE, unix.ENFILE, unix.EACCES, unix.EROFS, unix.ENOSPC} {
		m := newModel(t, 4)
		for range 30 {
			m.append()
		}
		m.fs.fail = func(op, path string) error {
			if op == "open" && strings.HasSuffix(path, segmentSuffix) {
				return cause
			}
			return nil
		}
		failed := error(nil)
		for item, err := range m.log.Read(t.Context(), 1, false) {
			require.Nil(t, item.Gap, "%v is no damage", cause)
			failed = err
		}
		require.ErrorIs(t, failed, cause)
		for gap, err := range m.log.Scrub(t.Context()) {
			require.Zero(t, gap)
			require.ErrorIs(t, err, cause)
		}
		m.leave()
		s, err := open(Config{Dir: "/s", Salvage: "/salvage", Writer: "test", Logger: discard}, m.fs, m.boot)
		require.NoError(t, err)
		_, err = s.Log(t.Context(), "events", m.opts)
		require.ErrorIs(t, err, cause)
		m.fs.fail = nil
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
