package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// restorable is a server whose files can be set back to an earlier state, as a power cut
// does with what was not synced.
type restorable struct {
	t    *testing.T
	dir  string
	port int
	srv  *server.Server
}

func startRestorable(t *testing.T) *restorable {
	r := &restorable{t: t, dir: t.TempDir()}
	r.start()
	r.port = r.srv.Addr().(*net.TCPAddr).Port
	return r
}

func (r *restorable) start() {
	r.srv = natstest.Run(r.t, filepath.Join(r.dir, "now"), natstest.SyncAlways, natstest.Port(r.port))
}

func (r *restorable) stop() { natstest.Stop(r.srv) }

// save keeps a copy of the files, while the server is away for a moment.
func (r *restorable) save() {
	r.stop()
	require.NoError(r.t, os.RemoveAll(filepath.Join(r.dir, "saved")))
	require.NoError(r.t, os.CopyFS(filepath.Join(r.dir, "saved"), os.DirFS(filepath.Join(r.dir, "now"))))
	r.start()
}

// rollBack puts the copy of a stream back, or that of all with *.
func (r *restorable) rollBack(stream string) {
	r.stop()
	now, saved := filepath.Join(r.dir, "now"), filepath.Join(r.dir, "saved")
	dirs, err := filepath.Glob(filepath.Join(saved, "jetstream", "*", "streams", stream))
	require.NoError(r.t, err)
	require.NotEmpty(r.t, dirs)
	for _, dir := range dirs {
		relative, err := filepath.Rel(saved, dir)
		require.NoError(r.t, err)
		require.NoError(r.t, os.RemoveAll(filepath.Join(now, relative)))
		require.NoError(r.t, os.CopyFS(filepath.Join(now, relative), os.DirFS(dir)))
	}
	r.start()
}

// insist appends each text by itself until it is acknowledged, as a sender does, and returns
// where it was acknowledged.
func insist(t *testing.T, l *Log, from, n int) map[store.Pos]string {
	t.Helper()
	acked := map[store.Pos]string{}
	for i := range n {
		text := fmt.Sprint("record ", from+i)
		waiting.Until(t, func() bool {
			pos, err := l.Append(t.Context(), store.Draft{Data: []byte(text)})
			if err != nil {
				require.ErrorIs(t, err, store.ErrUnknown)
				return false
			}
			require.NotContains(t, acked, pos)
			acked[pos] = text
			return true
		}, "%s is never taken", text)
	}
	return acked
}

// read reads a log to its end.
func read(t *testing.T, l *Log, from store.Pos) (records map[store.Pos]string, gaps []store.Gap) {
	t.Helper()
	records, next := map[store.Pos]string{}, from
	for item, err := range l.Read(t.Context(), from, false) {
		require.NoError(t, err)
		if g := item.Gap; g != nil {
			require.Equal(t, next, g.From)
			gaps, next = append(gaps, *g), g.To+1
			continue
		}
		require.Equal(t, next, item.Record.Pos)
		records[next], next = string(item.Record.Data), next+1
	}
	state, err := l.State(t.Context())
	require.NoError(t, err)
	require.Equal(t, state.End+1, next, "every position is there")
	return records, gaps
}

// assertRecords compares what was read with what was acknowledged. An append whose outcome
// was unknown may have left its record, too.
func assertRecords(t *testing.T, acked, records map[store.Pos]string) {
	t.Helper()
	texts := slices.Collect(maps.Values(acked))
	for pos, text := range records {
		if acked[pos] == "" && slices.Contains(texts, text) {
			delete(records, pos)
		}
	}
	assert.Equal(t, acked, records)
}

// merged are the records of several appends.
func merged(t *testing.T, all ...map[store.Pos]string) map[store.Pos]string {
	t.Helper()
	into := map[store.Pos]string{}
	for _, acked := range all {
		for pos, text := range acked {
			require.NotContains(t, into, pos, "no position is given out twice")
			into[pos] = text
		}
	}
	return into
}

// A server lost the stream's end, and gives its sequences out again. What comes later has
// new positions, and what was lost is named, whatever else was lost with it.
func TestTheEndOfAStreamIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		restart bool   // the relay is away meanwhile
		noNotes bool   // and comes back without its data directory
		what    string // is rolled back
		more    int    // appended after the loss, of 20 lost ones
	}{
		"while the relay runs":                              {what: "*_EVENTS", more: 30},
		"while the relay runs, less comes than was lost":    {what: "*_EVENTS", more: 5},
		"while the relay runs, with the table":              {what: "*", more: 5},
		"while the relay is away":                           {restart: true, what: "*_EVENTS", more: 30},
		"while the relay is away, with the table":           {restart: true, what: "*", more: 5},
		"while the relay is away, with the data directory":  {restart: true, noNotes: true, what: "*_EVENTS", more: 30},
		"while the relay is away, nothing comes after that": {restart: true, what: "*", more: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startRestorable(t)
			b := newBackend(t, srv.srv.ClientURL(), 1)
			l := b.log(t, "events")
			kept := insist(t, l, 0, 10)
			srv.save()
			lost := insist(t, l, 100, 20)
			require.NoError(t, b.store.table.Sync(t.Context()))
			if c.restart {
				b.kill()
				srv.rollBack(c.what)
				if c.noNotes {
					b.cfg.Dir = t.TempDir()
				}
				b.open(t)
				l = b.log(t, "events")
			} else {
				srv.rollBack(c.what)
			}
			fresh := insist(t, l, 1000, c.more)
			for pos := range fresh {
				require.Greater(t, pos, store.Pos(30))
			}
			for range 2 {
				records, gaps := read(t, l, 1)
				assert.Equal(t, []store.Gap{{From: 11, To: 30, Why: store.Rewound}}, gaps)
				assertRecords(t, merged(t, kept, fresh), records)
				merged(t, kept, lost, fresh)
				if c.more > 0 {
					records, gaps = read(t, l, 31)
					assertRecords(t, fresh, records)
					assert.Empty(t, gaps)
				}
				var scrubbed []store.Gap
				for gap, err := range l.Scrub(t.Context()) {
					require.NoError(t, err)
					scrubbed = append(scrubbed, gap)
				}
				assert.Equal(t, []store.Gap{{From: 11, To: 30, Why: store.Rewound}}, scrubbed)
				b.Kill(t)
				l = b.log(t, "events")
			}
		})
	}
}

// Those who follow a log are given the gap, and go on, wherever they are.
func TestAFollowerIsToldOfALostEnd(t *testing.T) {
	t.Parallel()
	srv := startRestorable(t)
	b := newBackend(t, srv.srv.ClientURL(), 1)
	l := b.log(t, "events")
	insist(t, l, 0, 10)
	srv.save()
	insist(t, l, 100, 20)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var following sync.WaitGroup
	defer following.Wait()
	lost, read15 := make(chan struct{}), make(chan struct{})
	slow, fast := make(chan store.Item, 100), make(chan store.Item, 100)
	following.Go(func() {
		for item, err := range l.Read(ctx, 11, true) {
			if err != nil {
				return
			}
			if item.Record != nil && item.Record.Pos == 15 {
				close(read15)
				<-lost
			}
			slow <- item
		}
	})
	following.Go(func() {
		for next := store.Pos(31); ctx.Err() == nil; { // again where the server is away as it begins
			for item, err := range l.Read(ctx, next, true) {
				if err != nil {
					break
				}
				fast <- item
				next++
			}
		}
	})
	<-read15
	srv.rollBack("*_EVENTS")
	fresh := insist(t, l, 1000, 5)
	close(lost)
	follows := func(items <-chan store.Item, next store.Pos) {
		for seen := map[string]bool{}; len(seen) < len(fresh); {
			item := <-items
			if g := item.Gap; g != nil {
				assert.Equal(t, store.Gap{From: next, To: 30, Why: store.Rewound}, *g)
				next = g.To + 1
				continue
			}
			assert.Equal(t, next, item.Record.Pos)
			if next > 30 {
				seen[string(item.Record.Data)] = true
			}
			next++
		}
	}
	follows(slow, 11) // what it had fetched before the loss, it is given
	follows(fast, 31)
	cancel()
}

func TestTheEndIsLostTwice(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]string{"the log": "*_EVENTS", "with the table": "*"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startRestorable(t)
			b := newBackend(t, srv.srv.ClientURL(), 1)
			l := b.log(t, "events")
			acked := []map[store.Pos]string{insist(t, l, 0, 10)}
			for round := range 2 {
				srv.save()
				acked = append(acked, insist(t, l, 100+1000*round, 20))
				srv.rollBack(back)
				acked = append(acked, insist(t, l, 200+1000*round, 5))
			}
			merged(t, acked...)
			for range 2 {
				records, gaps := read(t, l, 1)
				assert.Equal(t, []store.Gap{{From: 11, To: 30, Why: store.Rewound}, {From: 36, To: 55, Why: store.Rewound}}, gaps)
				assertRecords(t, merged(t, acked[0], acked[2], acked[4]), records)
				b.Kill(t)
				l = b.log(t, "events")
			}
			// The same copy once more: this time the first loss is lost, too.
			b.kill()
			srv.rollBack(back)
			b.open(t)
			l = b.log(t, "events")
			last := insist(t, l, 5000, 3)
			merged(t, append(acked, last)...)
			records, _ := read(t, l, 61)
			assertRecords(t, last, records)
		})
	}
}

func TestAnOutageLosesNothing(t *testing.T) {
	t.Parallel()
	srv := startRestorable(t)
	b := newBackend(t, srv.srv.ClientURL(), 1)
	l := b.log(t, "events")
	acked := []map[store.Pos]string{insist(t, l, 0, 10)}
	srv.stop()
	srv.start()
	acked = append(acked, insist(t, l, 100, 10))
	b.kill()
	srv.stop()
	srv.start()
	b.open(t)
	l = b.log(t, "events")
	acked = append(acked, insist(t, l, 200, 10))
	records, gaps := read(t, l, 1)
	assert.Empty(t, gaps)
	assertRecords(t, merged(t, acked...), records)
}

// The table has lost how far a log was trimmed, and the log's end is lost after that. What was trimmed on
// purpose is not called damage, by whoever knew of it.
func TestATrimThatTheTableLost(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"while the relay runs": false, "while the relay is away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startRestorable(t)
			b := newBackend(t, srv.srv.ClientURL(), 1)
			l := b.log(t, "events")
			insist(t, l, 0, 30)
			srv.save()
			waiting.Until(t, func() bool { return l.Trim(t.Context(), 11) == nil })
			if restart {
				b.kill()
			}
			srv.rollBack("*_TABLE")
			if restart {
				b.open(t)
				l = b.log(t, "events")
			}
			srv.save()
			insist(t, l, 100, 20)
			srv.rollBack("*_EVENTS")
			insist(t, l, 1000, 5)
			for range 2 {
				_, gaps := read(t, l, 1)
				assert.Equal(t, []store.Gap{{From: 1, To: 10, Why: store.Trimmed}, {From: 31, To: 50, Why: store.Rewound}}, gaps)
				b.Kill(t)
				l = b.log(t, "events")
			}
		})
	}
}

// Somebody deleted the stream: the next start makes it again, and names what it had.
func TestTheStreamIsReplaced(t *testing.T) {
	t.Parallel()
	for name, all := range map[string]bool{"the log": false, "with the table": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t, t.TempDir())
			b := newBackend(t, srv.ClientURL(), 1)
			l := b.log(t, "events")
			before, err := l.State(t.Context())
			require.NoError(t, err)
			insist(t, l, 0, 30)
			require.NoError(t, l.Trim(t.Context(), 6))
			require.NoError(t, b.store.js.DeleteStream(t.Context(), l.stream))
			if all {
				require.NoError(t, b.store.js.DeleteStream(t.Context(), b.store.table.stream))
			}
			b.Kill(t)
			l = b.log(t, "events")
			fresh := insist(t, l, 1000, 5)
			for range 2 {
				records, gaps := read(t, l, 1)
				if all { // nobody knows the trim, except for the note of the data directory
					assert.Equal(t, store.Rewound, gaps[len(gaps)-1].Why)
				} else {
					assert.Equal(t, []store.Gap{{From: 1, To: 5, Why: store.Trimmed}, {From: 6, To: 30, Why: store.Rewound}}, gaps)
				}
				assertRecords(t, fresh, records)
				after, err := l.State(t.Context())
				require.NoError(t, err)
				assert.Equal(t, before.ID, after.ID)
				b.Kill(t)
				l = b.log(t, "events")
			}
		})
	}
}

func TestAStreamThatIsReplacedMeanwhileEndsTheRelay(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	b := newBackend(t, srv.ClientURL(), 1)
	failed := make(chan error, 10)
	b.store.cfg.Failed = func(err error) { failed <- err }
	b.store.certainty = 0
	l := b.log(t, "events")
	insist(t, l, 0, 3)
	require.NoError(t, b.store.js.DeleteStream(t.Context(), l.stream))
	_, err := l.State(t.Context())
	require.Error(t, err)
	if !errors.Is(err, ErrReplaced) { // it is missing: the comparison has to say so
		require.ErrorIs(t, l.compare(t.Context()), ErrReplaced)
	}
	require.ErrorIs(t, <-failed, ErrReplaced)
}
