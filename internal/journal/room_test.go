package journal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// noise gives batches of one incompressible event of so many bytes.
func noise(seed byte, source string, size int) func() *record.Batch {
	random, from := rand.NewChaCha8([32]byte{seed}), 0
	return func() *record.Batch {
		e := relaytest.Events(1, relaytest.From(from))
		from++
		e[0].Source = source
		e[0].Body = make([]byte, size)
		_, _ = random.Read(e[0].Body)
		return batchOf(e)
	}
}

// drain reads and acknowledges until the test ends.
func drain(t *testing.T, s *Source) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			b, err := s.Next(ctx)
			if err != nil {
				return
			}
			assert.NoError(t, s.Ack(ctx, b.Position))
		}
	})
	t.Cleanup(func() { cancel(); reading.Wait(); s.Close() })
}

func TestDeliveredRecordsGiveWayBeforeAPushIsRefused(t *testing.T) {
	t.Parallel()
	cfg := testConfig
	cfg.MaxBytes = 16 << 20
	j := open(t, t.TempDir(), cfg)
	drain(t, j.source(t, "a"))
	drain(t, j.source(t, "b"))
	const senders, pushes = 4, 100
	var sending sync.WaitGroup
	for i := range senders {
		sending.Go(func() {
			next := noise(byte(i), "s", 100_000)
			for range pushes { // 40 MB in all
				if !assert.NoError(t, j.Append(context.Background(), next())) {
					return
				}
			}
		})
	}
	sending.Wait()
	require.NoError(t, j.Refusing(t.Context()))
	u, err := j.Usage(t.Context())
	require.NoError(t, err)
	assert.Greater(t, u.Bytes, int64(4<<20), "what there is room for is kept")
}

// Where no segment can be made, pushes that need one are refused, and readiness says so all the
// time, although smaller ones find room in the present segment.
func TestReadinessIsThatOfThePushesThatAreRefused(t *testing.T) {
	t.Parallel()
	cfg := testConfig
	cfg.MaxBytes = 4 << 20 // with segments of 128 KiB
	dir := t.TempDir()
	j := open(t, dir, cfg)
	large, small := noise(1, "s", 90_000), noise(2, "s", 100)
	require.NoError(t, j.Append(t.Context(), large()))
	var taken []string
	for pos := range 10 {
		taken = append(taken, filepath.Join(storeIn(dir), EventsLog, fmt.Sprintf("%020d.seg", pos+2)))
		require.NoError(t, os.MkdirAll(filepath.Join(taken[pos], "in the way"), 0o700))
	}
	for range 3 {
		require.ErrorIs(t, j.Append(t.Context(), large()), ErrUnavailable)
		require.NoError(t, j.Append(t.Context(), small()))
		require.ErrorContains(t, j.Refusing(t.Context()), "make a segment")
	}
	for _, folder := range taken {
		require.NoError(t, os.RemoveAll(folder))
	}
	require.NoError(t, j.Refusing(t.Context()))
	require.NoError(t, j.Append(t.Context(), large()))
}

func TestUndeliveredRecordsNeverGiveWay(t *testing.T) {
	t.Parallel()
	cfg := testConfig
	cfg.MaxBytes = 4 << 20
	j := open(t, t.TempDir(), cfg)
	ahead, behind := j.source(t, "ahead"), j.source(t, "behind")
	drain(t, ahead)
	next, kept := noise(1, "s", 100_000), 0
	var err error
	for ; err == nil && kept < 100; kept++ {
		err = j.Append(t.Context(), next())
	}
	kept--
	require.ErrorIs(t, err, ErrFull)
	require.ErrorIs(t, j.Refusing(t.Context()), ErrFull)
	require.Greater(t, kept, 30)

	assert.Len(t, read(t, behind, kept, true), kept, "all that was acknowledged is there")
	drain(t, behind)
	waiting.Until(t, func() bool { return j.Refusing(t.Context()) == nil },
		"there is room again, and nobody has pushed")
	for range 100 {
		require.NoError(t, j.Append(t.Context(), next()))
	}
}

func TestWhoFloodsIsRefusedFirst(t *testing.T) {
	t.Parallel()
	cfg := testConfig
	cfg.MaxBytes = 8 << 20
	dir := t.TempDir()
	j := open(t, dir, cfg)
	behind := j.source(t, "behind")
	flood, quiet := noise(1, "flood", 50_000), noise(2, "quiet", 50_000)
	push := func(source string, b *record.Batch) error {
		giveBack, err := j.Reserve(t.Context(), source, int64(b.Size()), 0)
		if err != nil {
			return err
		}
		defer giveBack()
		return j.Append(t.Context(), b)
	}
	kept := 0
	var err error
	for ; err == nil && kept < 1000; kept++ {
		err = push("flood", flood())
	}
	kept--
	require.ErrorIs(t, err, ErrShare)
	assert.InDelta(t, 7.0/9*float64(cfg.MaxBytes), float64(kept*50_000), 0.1*float64(cfg.MaxBytes))
	for range 10 {
		require.NoError(t, push("quiet", quiet()))
		kept++
		require.ErrorIs(t, push("flood", flood()), ErrShare)
	}
	behind.Close()
	j.shut(t)

	j = open(t, dir, cfg)
	behind = j.source(t, "behind")
	waiting.Until(t, func() bool { return j.budget.bySource()["flood"] > 5<<20 })
	require.ErrorIs(t, push("flood", flood()), ErrShare, "it is known after a restart")
	require.NoError(t, push("quiet", quiet()))
	kept++
	read(t, behind, kept, true)
	drain(t, behind)
	waiting.Until(t, func() bool { return push("flood", flood()) == nil }, "the sink has caught up")
}
