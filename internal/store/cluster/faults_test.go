package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// gapsOf scrubs a log.
func gapsOf(t *testing.T, l *Log) (all []store.Gap) {
	t.Helper()
	for gap, err := range l.Scrub(t.Context()) {
		require.NoError(t, err)
		all = append(all, gap)
	}
	return all
}

// What the servers lost from the middle of a stream, or hold in another form than it was
// written, is named, and nothing else.
func TestDamageIsNamed(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	b := newBackend(t, srv.ClientURL(), 1)
	l := b.log(t, "events")
	insist(t, l, 0, 5)
	_, err := b.store.js.Publish(t.Context(), l.stream, []byte("not a record of ours"))
	require.NoError(t, err)
	insist(t, l, 5, 4)
	stream, err := b.store.js.Stream(t.Context(), l.stream)
	require.NoError(t, err)
	for _, seq := range []uint64{1, 3, 4, 10} {
		require.NoError(t, stream.DeleteMsg(t.Context(), seq))
	}
	b.Kill(t)
	l = b.log(t, "events")
	damaged := func(from, to store.Pos) store.Gap { return store.Gap{From: from, To: to, Why: store.Damaged} }
	strange := damaged(6, 6)
	strange.Kept = filepath.Join(b.store.cfg.Salvage, l.stream+"-6.bin")
	want := []store.Gap{damaged(1, 1), damaged(3, 4), strange, damaged(10, 10)}
	records, gaps := read(t, l, 1)
	assert.Equal(t, want, gaps)
	assert.Len(t, records, 5)
	assert.Equal(t, want, gapsOf(t, l))
	kept, err := os.ReadFile(strange.Kept)
	require.NoError(t, err)
	assert.Equal(t, "not a record of ours", string(kept))
	at, err := l.Append(t.Context(), store.Draft{})
	require.NoError(t, err)
	assert.EqualValues(t, 11, at)
	require.NoError(t, l.Trim(t.Context(), 5))
	_, gaps = read(t, l, 1)
	assert.Equal(t, []store.Gap{{From: 1, To: 4, Why: store.Trimmed}, strange, damaged(10, 10)}, gaps)
	assert.Equal(t, want[2:], gapsOf(t, l))
}

// A replica that lags, or has lost what it had, makes no gap: only the leader does.
func TestAReplicaThatHasNothingMakesNoGap(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	b := newBackend(t, srv.ClientURL(), 1)
	l := b.log(t, "events")
	for i := range 30 {
		_, err := l.Append(t.Context(), store.Draft{Data: fmt.Append(nil, i)})
		require.NoError(t, err)
	}
	js := natstest.JetStream(t, srv)
	var lies atomic.Int64
	_, err := js.Conn().Subscribe("$JS.API.DIRECT.GET."+l.stream, func(m *nats.Msg) {
		lies.Add(1)
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}}})
	})
	require.NoError(t, err)
	require.NoError(t, js.Conn().Flush())
	for range 5 {
		b.Kill(t) // what was appended just now is not asked for
		l = b.log(t, "events")
		records, gaps := read(t, l, 1)
		assert.Empty(t, gaps)
		assert.Len(t, records, 30)
	}
	assert.Positive(t, lies.Load())
}

// A full log takes nothing, and neither a part of several drafts; after a trim it does.
func TestAFullLogRefuses(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	for name, n := range map[string]int{"one by one": 1, "several": 7} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, srv.ClientURL(), 1)
			opened, err := b.store.Log(t.Context(), "events", store.Options{MaxBytes: 1 << 20})
			require.NoError(t, err)
			l := opened.(*Log)
			drafts := make([]store.Draft, n)
			for i := range drafts {
				drafts[i].Data = make([]byte, 10_000)
			}
			stored := 0
			for err == nil {
				require.Less(t, stored, 200)
				if _, err = l.Append(t.Context(), drafts...); err == nil {
					stored += n
				}
			}
			require.ErrorIs(t, err, store.ErrFull)
			_, err = l.AppendAt(t.Context(), store.Pos(stored), drafts...)
			require.ErrorIs(t, err, store.ErrFull)
			records, gaps := read(t, l, 1)
			assert.Len(t, records, stored)
			assert.Empty(t, gaps)
			require.NoError(t, l.Trim(t.Context(), 30))
			first, err := l.Append(t.Context(), drafts...)
			require.NoError(t, err)
			assert.EqualValues(t, stored+1, first)
		})
	}
}

// A log that takes over another one says that it is full also where some of the records have found room:
// whoever makes room can go on with the others.
func TestAFullLogTakesOverWhatFits(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	b := newBackend(t, srv.ClientURL(), 1)
	opened, err := b.store.Log(t.Context(), "events", store.Options{MaxBytes: 1 << 20})
	require.NoError(t, err)
	l := opened.(*Log)
	all := make([]store.Record, batchRecords+300)
	for i := range all {
		all[i] = store.Record{Pos: store.Pos(i + 1), Time: time.Unix(1_000_000, 0), Draft: store.Draft{Data: make([]byte, 800)}}
	}
	require.ErrorIs(t, l.Take(t.Context(), all...), store.ErrFull)
	state, err := l.State(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, batchRecords, state.End)
	require.NoError(t, l.Trim(t.Context(), 500))
	require.NoError(t, l.Take(t.Context(), all[state.End:]...))
}

// Positions keep their meaning where everything was trimmed, and over another start.
func TestAnEmptiedLogGoesOn(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	b := newBackend(t, srv.ClientURL(), 1)
	l := b.log(t, "events")
	insist(t, l, 0, 10)
	require.NoError(t, l.Trim(t.Context(), 1000))
	b.Kill(t)
	l = b.log(t, "events")
	state, err := l.State(t.Context())
	require.NoError(t, err)
	assert.Equal(t, store.Pos(11), state.First)
	assert.Equal(t, store.Pos(10), state.End)
	at, err := l.Seek(t.Context(), time.Now().Add(-time.Hour))
	require.NoError(t, err)
	assert.Equal(t, store.Pos(11), at)
	first, err := l.AppendAt(t.Context(), 10, store.Draft{})
	require.NoError(t, err)
	assert.Equal(t, store.Pos(11), first)
}

// A later version's records and streams are refused, and left as they are.
func TestALaterVersionIsRefused(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	b := newBackend(t, srv.ClientURL(), 1)
	l := b.log(t, "events")
	insist(t, l, 0, 3)
	f := frame{nonce: 7, time: time.Now().UnixNano(), draft: store.Draft{Data: []byte("of tomorrow")}}
	data := f.encode(l.stream)
	data[0] = frameVersion + 1
	binary.LittleEndian.PutUint64(data[20:], checksum(l.stream, data))
	_, err := b.store.js.Publish(t.Context(), l.stream, data)
	require.NoError(t, err)
	for item, err := range l.Read(t.Context(), 1, false) {
		if err != nil {
			require.ErrorIs(t, err, ErrVersion)
			break
		}
		require.LessOrEqual(t, item.Record.Pos, store.Pos(3))
	}
	b.Kill(t)
	_, err = b.store.Log(t.Context(), "events", store.Options{})
	require.ErrorIs(t, err, ErrVersion)

	other := b.log(t, "other")
	stream, err := b.store.js.Stream(t.Context(), other.stream)
	require.NoError(t, err)
	c := stream.CachedInfo().Config
	c.Metadata[metaForm], c.Metadata[metaVersion] = "3", "v9"
	_, err = b.store.js.UpdateStream(t.Context(), c)
	require.NoError(t, err)
	b.Kill(t)
	_, err = b.store.Log(t.Context(), "other", store.Options{})
	require.ErrorIs(t, err, ErrVersion)
	require.ErrorContains(t, err, "v9")
}

func TestStreamsOfAnotherProgramAreRefused(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	js := natstest.JetStream(t, srv)
	for prefix, name := range map[string]string{"OLD1": "OLD1_TABLE", "OLD2": "OLD2_EVENTS", "OLD3": "OLD3_TABLE"} {
		c := jetstream.StreamConfig{Name: name, Subjects: []string{prefix + ".>"}} // as an early version made it
		if prefix == "OLD3" {
			c.Metadata = map[string]string{metaForm: "1"}
		}
		_, err := js.CreateStream(t.Context(), c)
		require.NoError(t, err)
		s, err := Open(t.Context(), Config{
			Journal: config.Journal{URL: srv.ClientURL(), Replicas: 1, StreamPrefix: prefix}, Logger: slog.New(slog.DiscardHandler),
			Dir: t.TempDir(), Registerer: prometheus.NewRegistry(),
		})
		if err == nil {
			_, err = s.Log(t.Context(), "events", store.Options{})
			require.NoError(t, s.Close())
		}
		require.ErrorContains(t, err, "stream "+name+" was not made by this version")
		require.ErrorContains(t, err, "journal.stream_prefix")
	}
}

func TestAServerThatIsAway(t *testing.T) {
	t.Parallel()
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // it would be waited for
	defer cancel()
	_, err := Open(short, Config{Journal: config.Journal{URL: "nats://127.0.0.1:1", StreamPrefix: "T", Replicas: 1}, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "journal.url nats://127.0.0.1:1: connect to the journal's NATS")

	srv := natstest.Run(t, t.TempDir())
	b := newBackend(t, srv.ClientURL(), 1)
	l := b.log(t, "events")
	require.NoError(t, b.store.Err())
	natstest.Stop(srv)
	waiting.Until(t, func() bool { return b.store.Err() != nil })
	b.store.patience = 300 * time.Millisecond
	_, err = l.Append(t.Context(), store.Draft{})
	require.ErrorIs(t, err, store.ErrUnknown)
	_, err = b.store.table.Put(t.Context(), "k", nil, store.If{})
	require.ErrorIs(t, err, store.ErrUnknown)
}

// After a reconnect the server may take less.
func TestASmallerPayloadIsTooLarge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := natstest.Run(t, dir)
	port := srv.Addr().(*net.TCPAddr).Port
	b := newBackend(t, srv.ClientURL(), 1)
	l := b.log(t, "events")
	large := store.Draft{Data: make([]byte, l.MaxRecord())}
	_, err := l.Append(t.Context(), large)
	require.NoError(t, err)
	natstest.Stop(srv)
	natstest.Run(t, dir, natstest.Port(port), func(o *server.Options) { o.MaxPayload = 64 << 10 })
	waiting.Until(t, func() bool { return b.store.Err() == nil && l.MaxRecord() < 64<<10 })
	_, err = l.Append(t.Context(), large)
	require.ErrorIs(t, err, store.ErrTooLarge)
	_, err = l.Append(t.Context(), store.Draft{Data: make([]byte, l.MaxRecord())})
	require.NoError(t, err)
	records, gaps := read(t, l, 1)
	assert.Len(t, records, 2)
	assert.Empty(t, gaps)
}
