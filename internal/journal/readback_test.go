package journal

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// readBack gives the ids of the events, a slice for each record.
func readBack(t *testing.T, o *opened, since time.Time, most int) (records [][]string) {
	t.Helper()
	require.NoError(t, o.ReadBack(t.Context(), since, math.MaxUint64, func(events []relay.Event) bool {
		records = append(records, ids(events))
		return len(records) < most
	}))
	return records
}

func TestReadBackGivesTheNewestFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := open(t, dir, testConfig)
	assert.Empty(t, readBack(t, o, time.Time{}, 1000), "an empty journal")
	events := relaytest.Events(300)
	var want [][]string
	for i := 0; i < len(events); i += 3 {
		o.push(t, events[i:i+3])
		want = append([][]string{ids(events[i : i+3])}, want...)
	}
	assert.Equal(t, want, readBack(t, o, time.Time{}, 1000))
	assert.Equal(t, want[:30], readBack(t, o, time.Time{}, 30))
	assert.Empty(t, readBack(t, o, time.Now().Add(time.Hour), 1000))

	middle, err := recordFrom(t.Context(), o.events, 60, 61)
	require.NoError(t, err)
	assert.Equal(t, want[:41], readBack(t, o, middle.Time, 1000), "from the time of a record on")

	o.shut(t)
	o = open(t, dir, testConfig)
	assert.Equal(t, want, readBack(t, o, time.Time{}, 1000), "after a restart")

	// Records are damaged: at the start, in the middle and at the end.
	o.shut(t)
	for _, k := range []int{99, 50, 49, 0} {
		_, err := damage.Of(dir).FlipRecord(EventsLog, k)
		require.NoError(t, err)
	}
	o = open(t, dir, testConfig)
	assert.Equal(t, slices.Concat(want[1:49], want[51:99]), readBack(t, o, time.Time{}, 1000))
}

func TestReadBackHoldsLittle(t *testing.T) {
	t.Parallel()
	o := open(t, t.TempDir(), testConfig)
	random := rand.NewChaCha8([32]byte{1})
	var want []string
	for i := range 60 { // incompressible records, 60 MB in all
		body := make([]byte, 1_000_000)
		_, _ = random.Read(body)
		e := relaytest.Events(1)
		e[0].ID, e[0].Body = fmt.Sprint(i), body
		o.push(t, e)
		want = append([]string{e[0].ID}, want...)
	}
	held, whole, err := o.readRange(t.Context(), 1, 61)
	require.NoError(t, err)
	assert.False(t, whole)
	assert.Len(t, held, 16)
	assert.EqualValues(t, 60, held[15].Pos)
	var got []string
	for _, r := range readBack(t, o, time.Time{}, 1000) {
		got = append(got, r...)
	}
	assert.Equal(t, want, got)
}

func TestReadBackPassesOverWhatIsCorrupt(t *testing.T) {
	t.Parallel()
	o := open(t, t.TempDir(), testConfig)
	events := relaytest.Events(2)
	o.push(t, events[:1])
	o.publish(t, []byte("ARJ1 that is no record"))
	o.push(t, events[1:])
	assert.Equal(t, [][]string{{events[1].ID}, {events[0].ID}}, readBack(t, o, time.Time{}, 1000))
}

func TestReadBackEndsInTime(t *testing.T) {
	t.Parallel()
	o := open(t, t.TempDir(), testConfig)
	for _, e := range relaytest.Events(40) {
		o.push(t, []relay.Event{e})
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := o.ReadBack(ctx, time.Time{}, math.MaxUint64, func([]relay.Event) bool { n++; cancel(); return true })
	require.ErrorIs(t, err, context.Canceled)
	assert.Less(t, n, 40)
}

// BenchmarkReadBack reads back as much as a start does, for records of several sizes.
func BenchmarkReadBack(b *testing.B) {
	for _, c := range []struct{ records, events int }{{10_000, 1}, {10_000, 10}, {500, 1000}} {
		b.Run(fmt.Sprintf("events=%d", c.events), func(b *testing.B) {
			j := open(b, b.TempDir(), testConfig)
			batch := batchOf(relaytest.Events(c.events))
			rec := record.Append(nil, batch.Bytes(), c.events)
			for range c.records {
				j.publish(b, rec)
			}
			n := 0
			for b.Loop() {
				require.NoError(b, j.ReadBack(b.Context(), time.Time{}, math.MaxUint64, func(events []relay.Event) bool {
					n += len(events)
					return true
				}))
			}
			require.Equal(b, c.records*c.events*b.N, n)
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
			j.shut(b)
		})
	}
}
