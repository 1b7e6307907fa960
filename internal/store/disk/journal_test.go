package disk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/relay"
)

// failNowAndThen makes a part of all syncs and writes fail: of segments, of their folder, and of marks.
func (m *model) failNowAndThen(rng *rand.Rand) {
	m.fs.failWith(func(op, path string) error {
		switch {
		case strings.HasPrefix(op, "open") || op == "read" || rng.IntN(12) > 0:
			return nil
		case op == "write" && strings.HasSuffix(path, segmentSuffix):
			return unix.ENOSPC
		}
		return unix.EIO
	})
}

// openJournal opens a journal of the model's store.
func (m *model) openJournal() (j *journal.Journal, leave func()) {
	reg := prometheus.NewRegistry()
	names, err := journal.OpenQuarantine(m.Context(), m.store, journal.QuarantineOptions{Logger: discard, Registerer: reg})
	require.NoError(m, err)
	cfg := config.Journal{MaxBytes: config.Size(m.opts.MaxBytes), ReplayWindow: time.Hour}
	set, err := journal.Open(m.Context(), m.store, cfg, journal.Options{Logger: discard, Registerer: reg, Quarantine: names})
	require.NoError(m, err)
	return set.Logs()[0], func() { set.Close(); _ = names.Close() }
}

// Many senders push at once, while syncs and writes fail now and then. Each gets an answer, and what was
// acknowledged is there after a kill and after a power cut, in the order of its sender.
func TestWhatIsAcknowledgedAmongFailingSyncsIsDurable(t *testing.T) {
	t.Parallel()
	for seed := range many(t, 40, 6, testing.Short()) {
		m := newModel(t, seed)
		j, leave := m.openJournal()
		m.failNowAndThen(m.rng)
		const senders, pushes = 24, 12
		acked := make([][]string, senders)
		var sending sync.WaitGroup
		for sender := range senders {
			sending.Go(func() {
				for n := range pushes {
					id := fmt.Sprintf("%d/%d", sender, n)
					var b record.Batch
					b.AddEvent(&relay.Event{ID: id, Body: make([]byte, 2000)})
					switch err := j.Append(context.Background(), &b); {
					case err == nil:
						acked[sender] = append(acked[sender], id)
					case !errors.Is(err, journal.ErrFull) && !errors.Is(err, journal.ErrUnavailable):
						assert.NoError(t, err)
					}
				}
			})
		}
		sending.Wait()
		m.fs.failWith(nil)
		leave()
		m.leave()
		if seed%2 == 0 {
			m.cutPower()
		} else {
			m.kill()
		}
		m.checkPushes(acked)
		m.leave()
	}
}

// checkPushes checks that every acknowledged event is in the log once, and those of a sender in order.
func (m *model) checkPushes(acked [][]string) {
	at, n := map[string]int{}, 0
	for item, err := range m.log.Read(m.Context(), 1, false) {
		require.NoError(m, err)
		if item.Record == nil {
			continue
		}
		for events, err := range record.Pieces(item.Record.Data) {
			require.NoError(m, err)
			for _, e := range events {
				require.NotContains(m, at, e.ID, "seed %d", m.seed)
				at[e.ID], n = n, n+1
			}
		}
	}
	total := 0
	for _, ids := range acked {
		last := -1
		for _, id := range ids {
			require.Contains(m, at, id, "acknowledged, and lost; seed %d", m.seed)
			require.Greater(m, at[id], last, "seed %d", m.seed)
			last = at[id]
			total++
		}
	}
	require.Positive(m, total, "seed %d", m.seed)
}
