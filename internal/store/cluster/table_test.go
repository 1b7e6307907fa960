package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// another opens a second process's store over the same streams.
func (b *backend) another(t *testing.T) *backend {
	t.Helper()
	other := &backend{cfg: b.cfg}
	other.cfg.Dir = t.TempDir()
	other.open(t)
	t.Cleanup(func() { require.NoError(t, other.store.Close()) })
	return other
}

// Whoever lost the guard of its values hears so, although it writes them in the background.
func TestAnotherProcessTakesOver(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	b := newBackend(t, srv.ClientURL(), 1)
	ours, theirs := b.Table(), b.another(t).Table()
	epoch, err := ours.Put(t.Context(), "epoch", []byte("ours"), store.If{Key: "epoch"})
	require.NoError(t, err)
	held := store.If{Key: "epoch", Rev: epoch}
	require.NoError(t, ours.PutLazy(t.Context(), "position", []byte("1"), held))
	require.NoError(t, ours.Sync(t.Context()))

	now, err := theirs.Put(t.Context(), "epoch", []byte("theirs"), held)
	require.NoError(t, err)
	require.NoError(t, ours.PutLazy(t.Context(), "position", []byte("2"), held), "it cannot know yet")
	require.ErrorIs(t, ours.Sync(t.Context()), store.ErrConflict)
	require.ErrorIs(t, ours.PutLazy(t.Context(), "position", []byte("3"), held), store.ErrConflict)
	_, err = ours.Put(t.Context(), "position", []byte("3"), held)
	require.ErrorIs(t, err, store.ErrConflict)
	v, err := theirs.Get(t.Context(), "position")
	require.NoError(t, err)
	assert.Equal(t, "1", string(v.Data))
	require.NoError(t, ours.PutLazy(t.Context(), "position", []byte("4"), store.If{Key: "epoch", Rev: now}))
	require.NoError(t, ours.Sync(t.Context()))
}

// Of many values the newest is written, now and then.
func TestLazyValuesAreWrittenNowAndThen(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	b := newBackend(t, srv.ClientURL(), 1)
	data := make([]byte, 8)
	for i := range 2000 {
		copy(data, fmt.Sprint(i)) // its memory is the caller's again
		require.NoError(t, b.Table().PutLazy(t.Context(), "k", data, store.If{}))
	}
	require.NoError(t, b.Table().Sync(t.Context()))
	info, err := b.store.info(t.Context(), b.store.table.stream)
	require.NoError(t, err)
	assert.Less(t, info.State.LastSeq, uint64(200))
	v, err := b.another(t).Table().Get(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, "1999", strings.TrimRight(string(v.Data), "\x00"))
	require.NoError(t, b.Table().PutLazy(t.Context(), "k", []byte("at the end"), store.If{}))
	require.NoError(t, b.store.Close())
	b.open(t)
	v, err = b.Table().Get(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, "at the end", string(v.Data), "a close writes what is left")
}

// Lazy values and watches outlast an outage.
func TestATableOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	srv := startRestorable(t)
	b := newBackend(t, srv.srv.ClientURL(), 1)
	_, err := b.Table().Put(t.Context(), "a", []byte("0"), store.If{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan store.Value, 10)
	go func() {
		for v, err := range b.Table().Watch(ctx, "") {
			if err != nil {
				return
			}
			seen <- v
		}
	}()
	assert.Equal(t, "0", string((<-seen).Data))
	srv.stop()
	waiting.Until(t, func() bool { return b.store.Err() != nil })
	require.NoError(t, b.Table().PutLazy(t.Context(), "b", []byte("1"), store.If{}))
	require.NoError(t, b.Table().PutLazy(t.Context(), "b", []byte("2"), store.If{}))
	srv.start()
	require.NoError(t, b.Table().Sync(t.Context()))
	last := store.Value{}
	for string(last.Data) != "2" {
		last = <-seen
		assert.Equal(t, "b", last.Key, "what is known does not come again")
	}
	_, err = b.Table().Put(t.Context(), "a", nil, store.If{})
	require.NoError(t, err)
	last = <-seen
	assert.Equal(t, "a", last.Key)
	assert.Nil(t, last.Data)
}

// A list asks for all values before it has the first one: over a slow network it takes a few
// round trips, however many values there are.
func TestAListAsksForAllAtOnce(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	p := newLine(t, srv.Addr().String())
	b := newBackend(t, "nats://"+p.l.Addr().String(), 1)
	const values = 20
	for i := range values {
		_, err := b.Table().Put(t.Context(), fmt.Sprintf("a.%02d", i), []byte("v"), store.If{})
		require.NoError(t, err)
	}
	var asked atomic.Int64
	conn := natstest.JetStream(t, srv).Conn()
	sub, err := conn.Subscribe("$JS.API.STREAM.MSG.GET."+b.store.table.stream, func(*nats.Msg) {
		if asked.Add(1) == 1 {
			p.held.Lock()
		}
	})
	require.NoError(t, err)
	require.NoError(t, conn.Flush())
	listed := make(chan []store.Value, 1)
	go func() {
		all, err := b.Table().List(t.Context(), "a.")
		assert.NoError(t, err)
		listed <- all
	}()
	waiting.Until(t, func() bool { return asked.Load() >= values }, "it waits for an answer before it asks on")
	require.NoError(t, sub.Unsubscribe())
	p.held.Unlock()
	assert.Len(t, <-listed, values)
}

// The names of relays that have ended are not asked for at each list for ever.
func TestAListForgetsOldTombstones(t *testing.T) {
	t.Parallel()
	b := newBackend(t, natstest.Run(t, t.TempDir()).ClientURL(), 1)
	const ended = tombstones + forgets + 10
	revs := map[string]uint64{}
	for i := range ended {
		key := fmt.Sprintf("beat/%03d", i)
		rev, err := b.Table().Put(t.Context(), key, []byte("v"), store.If{})
		require.NoError(t, err)
		revs[key], err = b.Table().Put(t.Context(), key, nil, store.If{Key: key, Rev: rev})
		require.NoError(t, err)
	}
	_, err := b.Table().Put(t.Context(), "beat/000", []byte("again"), store.If{})
	require.NoError(t, err)
	list := func() int {
		all, err := b.Table().List(t.Context(), "beat/")
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, "again", string(all[0].Data))
		keys, err := b.store.table.keys(t.Context(), "beat/")
		require.NoError(t, err)
		return len(keys)
	}
	require.Equal(t, ended-forgets, list())
	require.Equal(t, tombstones+1, list())
	require.Equal(t, tombstones+1, list())

	gone, err := b.Table().Get(t.Context(), "beat/001")
	require.NoError(t, err)
	require.Zero(t, gone.Rev)
	_, err = b.Table().Put(t.Context(), "beat/001", []byte("v"), store.If{Key: "beat/001", Rev: revs["beat/001"]})
	require.ErrorIs(t, err, store.ErrConflict, "who knows the tombstone is told that it knows nothing newer")
	newest := fmt.Sprintf("beat/%03d", ended-1)
	_, err = b.Table().Put(t.Context(), newest, []byte("v"), store.If{Key: newest, Rev: revs[newest]})
	require.NoError(t, err)
}

// A relay that starts while the servers elect a leader waits for them.
func TestAYoungStoreWaitsForALeader(t *testing.T) {
	t.Parallel()
	srv := startRestorable(t)
	b := newBackend(t, srv.srv.ClientURL(), 1)
	_, err := b.Table().Put(t.Context(), "a", []byte("0"), store.If{})
	require.NoError(t, err)
	log := b.log(t, "events")
	srv.stop()
	waiting.Until(t, func() bool { return b.store.Err() != nil })
	answers := make(chan error, 2)
	go func() { _, err := b.Table().Get(t.Context(), "a"); answers <- err }()
	go func() { _, err := log.State(t.Context()); answers <- err }()
	srv.start()
	require.NoError(t, <-answers)
	require.NoError(t, <-answers)

	b.store.opened = time.Now().Add(-startPatience)
	srv.stop()
	waiting.Until(t, func() bool { return b.store.Err() != nil })
	_, err = b.Table().Get(t.Context(), "a")
	require.Error(t, err, "later on, whoever asks is told")
}

// Every key stands for itself.
func TestKeysAreApart(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	b := newBackend(t, srv.ClientURL(), 1)
	keys := []string{"a", "a.b", "a/b", "A", "*", ">", "a b", "a_b", "YQ", "b64.YQ", "\x00", "é", strings.Repeat("k", 256), strings.Repeat(".", store.MaxKey)}
	for _, key := range keys {
		_, err := b.Table().Put(t.Context(), key, []byte("of "+key), store.If{Key: key})
		require.NoError(t, err, key)
	}
	for _, key := range keys {
		v, err := b.Table().Get(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, "of "+key, string(v.Data))
	}
	b.log(t, "events") // its own values are nobody's
	all, err := b.Table().List(t.Context(), "")
	require.NoError(t, err)
	assert.Len(t, all, len(keys))
	_, err = b.Table().Put(t.Context(), strings.Repeat("k", store.MaxKey+1), nil, store.If{})
	require.ErrorIs(t, err, store.ErrTooLarge)
	_, err = b.Table().Put(t.Context(), "k", make([]byte, 1<<20), store.If{})
	require.ErrorIs(t, err, store.ErrTooLarge)
}

// A value that somebody overwrote with something else is in doubt, and can be put again.
func TestADamagedValueIsDoubtful(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	b := newBackend(t, srv.ClientURL(), 1)
	table := b.store.table
	_, err := table.Put(t.Context(), "k", []byte("v"), store.If{})
	require.NoError(t, err)
	ack, err := b.store.js.Publish(t.Context(), table.subject("k"), []byte("garbage"))
	require.NoError(t, err)
	v, err := table.Get(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, store.Value{Key: "k", Rev: ack.Sequence, Doubtful: true}, v)
	_, err = table.Put(t.Context(), "k", []byte("again"), store.If{Key: "k", Rev: v.Rev})
	require.NoError(t, err)
	v, err = table.Get(t.Context(), "k")
	require.NoError(t, err)
	assert.False(t, v.Doubtful)
	assert.Equal(t, "again", string(v.Data))
}

// The cluster lost the newest values, or all: what is left is in doubt until it is put again.
func TestValuesAreInDoubtAfterALoss(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"while the relay runs": false, "while it is away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startRestorable(t)
			b := newBackend(t, srv.srv.ClientURL(), 1)
			put := func(key, value string) (rev uint64) {
				waiting.Until(t, func() bool {
					var err error
					rev, err = b.Table().Put(t.Context(), key, []byte(value), store.If{})
					return err == nil
				})
				return rev
			}
			put("a", "1")
			srv.save()
			put("a", "2")
			lost := put("b", "1")
			if restart {
				b.kill()
				srv.rollBack("*_TABLE")
				b.open(t)
			} else {
				srv.rollBack("*_TABLE")
			}
			for range 2 {
				get := func(key string) (v store.Value) {
					waiting.Until(t, func() (ok bool) {
						var err error
						v, err = b.Table().Get(t.Context(), key)
						return err == nil && v.Doubtful
					}, key)
					return v
				}
				assert.Equal(t, "1", string(get("a").Data))
				assert.Nil(t, get("b").Data)
				b.Kill(t)
			}
			// The stream gives the sequences of the lost values to others, and the table gives
			// their revisions to nobody.
			assert.Greater(t, put("a", "3"), lost)
			fresh := put("b", "2")
			assert.Greater(t, fresh, lost)
			_, err := b.Table().Put(t.Context(), "b", nil, store.If{Key: "b", Rev: lost})
			require.ErrorIs(t, err, store.ErrConflict)
			_, err = b.Table().Put(t.Context(), "b", nil, store.If{Key: "b", Rev: fresh})
			require.NoError(t, err)
			v, err := b.Table().Get(t.Context(), "a")
			require.NoError(t, err)
			assert.False(t, v.Doubtful)
			all, err := b.Table().List(t.Context(), "")
			require.NoError(t, err)
			assert.Equal(t, []store.Value{v}, all)
		})
	}
}

// A watch goes on after the cluster lost values whose sequences it gives to others.
func TestAWatchOutlastsALoss(t *testing.T) {
	t.Parallel()
	srv := startRestorable(t)
	b := newBackend(t, srv.srv.ClientURL(), 1)
	put := func(key, value string) {
		waiting.Until(t, func() bool {
			_, err := b.Table().Put(t.Context(), key, []byte(value), store.If{})
			return err == nil
		})
	}
	put("a", "1")
	srv.save()
	for range 5 {
		put("a", "lost")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan store.Value, 10)
	go func() {
		for v, err := range b.Table().Watch(ctx, "") {
			if err != nil {
				return
			}
			seen <- v
		}
	}()
	assert.Equal(t, "lost", string((<-seen).Data))
	srv.rollBack("*_TABLE")
	waiting.Until(t, func() bool { return b.store.table.known().isDoubtful(1) })
	put("b", "2")
	for v := range seen {
		if v.Key == "b" {
			assert.Equal(t, "2", string(v.Data))
			return
		}
		assert.True(t, v.Doubtful)
	}
}

// The table is gone, and the logs are not.
func TestTheTableIsGone(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	b := newBackend(t, srv.ClientURL(), 1)
	l := b.log(t, "events")
	before := insist(t, l, 0, 10)
	require.NoError(t, l.Trim(t.Context(), 4))
	state, err := l.State(t.Context())
	require.NoError(t, err)
	_, err = b.Table().Put(t.Context(), "k", []byte("v"), store.If{})
	require.NoError(t, err)
	b.kill()
	require.NoError(t, natstest.JetStream(t, srv).DeleteStream(t.Context(), b.store.table.stream))
	b.open(t)
	v, err := b.Table().Get(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, store.Value{Key: "k", Doubtful: true}, v)
	l = b.log(t, "events")
	again, err := l.State(t.Context())
	require.NoError(t, err)
	assert.Equal(t, state.ID, again.ID)
	assert.Equal(t, state.End, again.End)
	records, _ := read(t, l, 4)
	for pos, text := range records {
		assert.Equal(t, before[pos], text)
	}
	assert.Len(t, records, 7)
}

// Each key has a subject of its own, and a watch of a prefix asks for the subjects of all keys that
// begin with it.
func TestSubjects(t *testing.T) {
	t.Parallel()
	table := &Table{stream: "T"}
	for key, subject := range map[string]string{
		"shards": "T.key.shards", "cluster/epoch/sink/a": "T.key.cluster.epoch/sink/a", "cluster/beat/h.1": "T.b64.cluster.YmVhdC9oLjE",
		"a.b/c": "T.b64.YS5iL2M", "/a": "T.key./a", "a/": "T.key.a/", "a": "T.key.a", "a.b": "T.b64.YS5i", "a/.": "T.b64.a.Lg",
	} {
		assert.Equal(t, subject, table.subject(key), key)
		back, is := table.keyAt(subject)
		assert.True(t, is)
		assert.Equal(t, key, back)
	}
	for prefix, subjects := range map[string]string{
		"cluster/": "T.*.cluster.>", "cluster/epoch/": "T.*.cluster.>", "cluster": ">", "": ">", "a.b/": ">", "/": ">",
	} {
		assert.Equal(t, subjects, table.filter(prefix), prefix)
	}
}

// Other keys that are written all the time are passed over by a watch: it makes no more requests
// than its own keys need.
func TestAWatchPassesOverOtherKeys(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	table := newBackend(t, srv.ClientURL(), 1).store.table
	for i := range 300 {
		_, err := table.Put(t.Context(), fmt.Sprintf("position/%d", i), []byte("1"), store.If{})
		require.NoError(t, err)
	}
	for i, key := range []string{"cluster/epoch/a", "cluster/beat/h.1", "cluster/x y"} {
		_, err := table.Put(t.Context(), key, []byte(fmt.Sprint(i)), store.If{})
		require.NoError(t, err)
	}
	for _, key := range []string{"position/8", "clusters/x", "position/9"} {
		_, err := table.Put(t.Context(), key, []byte("2"), store.If{})
		require.NoError(t, err)
	}
	var keys []string
	next, err := table.scan(t.Context(), 1, "cluster/", func(v store.Value) bool { keys = append(keys, v.Key); return true })
	require.NoError(t, err)
	assert.Equal(t, []string{"cluster/epoch/a", "cluster/beat/h.1", "cluster/x y"}, keys)
	assert.EqualValues(t, 304, next, "not to the end of the stream")
}
