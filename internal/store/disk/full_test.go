package disk

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/store"
)

// A store is opened and read on a full disk, after a clean end, a kill or a power cut. It
// refuses what is appended, and takes it once there is room.
func TestAStoreIsOpenedOnAFullDisk(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		m := newModel(t, seed)
		for range 30 {
			m.append()
			m.put()
		}
		switch m.leave(); seed % 4 {
		case 1:
			m.boot[0]++
		case 2:
			m.fs.cutPower()
			m.boot[0]++
			m.cuts++
		case 3:
			m.open()
			require.NoError(t, m.store.Close())
		}
		m.fs.fail = func(op, path string) error {
			grows := strings.HasSuffix(path, segmentSuffix) || strings.HasSuffix(path, ".new")
			if op == "allocate" || op == "write" && grows { // the slots of the marks are there already
				return unix.ENOSPC
			}
			return nil
		}
		full := m.fs.fail
		m.open()
		m.check() // it ends the failure
		m.fs.fail = full
		_, err := m.log.Append(context.Background(), store.Draft{Data: make([]byte, 100)})
		require.Error(t, err, "seed %d", seed)
		m.fs.fail = nil
		before := len(m.acked)
		m.append()
		require.Greater(t, len(m.acked), before, "seed %d", seed)
		m.put()
		m.check()
		m.kill()
		m.check()
		m.leave()
	}
}
