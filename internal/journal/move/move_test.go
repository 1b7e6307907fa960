package move_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/journal/move"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/cluster"
	"github.com/auditrelay/auditrelay/internal/store/disk"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/relay"
)

var quiet = slog.New(slog.DiscardHandler)

// site is where a store is kept.
type site struct {
	dir    string // a data directory
	url    string // of a cluster; empty for the disk
	prefix string
}

func onDisk(t *testing.T) *site { return &site{dir: t.TempDir()} }

var prefixes atomic.Int64

func onCluster(t *testing.T, url string) *site {
	return &site{dir: t.TempDir(), url: url, prefix: fmt.Sprintf("M%d", prefixes.Add(1))}
}

func (s *site) String() string { return s.dir + s.url + s.prefix }

// open opens the store, and f may have its writes fail.
func (s *site) open(t *testing.T, f *faults) move.Place {
	t.Helper()
	var err error
	var opened store.Store
	if s.url == "" {
		opened, err = disk.Open(disk.Config{Dir: filepath.Join(s.dir, "store"), Salvage: filepath.Join(s.dir, "salvage"), Writer: "test", Logger: quiet})
	} else {
		opened, err = cluster.Open(t.Context(), cluster.Config{
			Journal: config.Journal{URL: s.url, Replicas: 1, StreamPrefix: s.prefix, MaxBytes: 64 << 20}, Salvage: s.dir, Logger: quiet,
			Dir: t.TempDir(), Registerer: prometheus.NewRegistry(),
		})
	}
	require.NoError(t, err)
	return move.Place{Store: &failing{opened, f}, Name: s.String()}
}

// faults has one write fail, before it is done or after.
type faults struct {
	n, at int
	after bool
}

var errKilled = errors.New("killed")

func (f *faults) do(write func() error) error {
	if f == nil {
		return write()
	}
	f.n++
	if f.n == f.at && !f.after {
		return errKilled
	}
	err := write()
	if f.n == f.at {
		return errKilled
	}
	return err
}

type failing struct {
	store.Store
	*faults
}

func (s *failing) Table() store.Table { return &failingTable{s.Store.Table(), s.faults} }

func (s *failing) Log(ctx context.Context, name string, o store.Options) (store.Log, error) {
	if o.ID == (store.ID{}) { // it is there, or a test makes it
		return s.Store.Log(ctx, name, o)
	}
	var l store.Log
	if err := s.do(func() (err error) { l, err = s.Store.Log(ctx, name, o); return err }); err != nil {
		return nil, err
	}
	return &failingLog{l.(store.Taker), s.faults}, nil
}

type failingLog struct {
	store.Taker
	*faults
}

func (l *failingLog) Take(ctx context.Context, records ...store.Record) error {
	return l.do(func() error { return l.Taker.Take(ctx, records...) })
}

func (l *failingLog) Pass(ctx context.Context, gap store.Gap) error {
	return l.do(func() error { return l.Taker.Pass(ctx, gap) })
}

func (l *failingLog) Trim(ctx context.Context, before store.Pos) error {
	return l.do(func() error { return l.Taker.Trim(ctx, before) })
}

type failingTable struct {
	store.Table
	*faults
}

func (f *failingTable) Put(ctx context.Context, key string, data []byte, c store.If) (rev uint64, err error) {
	err = f.do(func() error { rev, err = f.Table.Put(ctx, key, data, c); return err })
	return rev, err
}

func (f *failingTable) PutLazy(ctx context.Context, key string, data []byte, c store.If) error {
	return f.do(func() error { return f.Table.PutLazy(ctx, key, data, c) })
}

func (f *failingTable) Sync(ctx context.Context) error {
	return f.do(func() error { return f.Table.Sync(ctx) })
}

func keep(name string) store.Options {
	if name == journal.EventsLog {
		return store.Options{MaxBytes: 64 << 20, Allocate: true}
	}
	return store.Options{}
}

// run moves from one site to another, with writes that fail.
func run(t *testing.T, from, to *site, f *faults) error {
	t.Helper()
	a, b := from.open(t, f), to.open(t, f)
	defer func() { require.NoError(t, errors.Join(a.Close(), b.Close())) }()
	names, err := journal.OpenQuarantine(t.Context(), a, journal.QuarantineOptions{
		Logger: quiet, Registerer: prometheus.NewRegistry(), Fuse: true, Ready: make(chan struct{}),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, names.Close()) }()
	return move.Run(t.Context(), move.Options{
		From: a, To: b, Keep: keep, Names: names, Fused: from.url == "", Logger: quiet, Alone: func(context.Context) error { return nil },
	})
}

// check says whether a relay may start.
func (s *site) check(t *testing.T) error {
	t.Helper()
	p := s.open(t, nil)
	defer func() { require.NoError(t, p.Close()) }()
	return move.Check(t.Context(), p)
}

// picture is all that a store keeps.
type picture struct {
	Logs   map[string]logPicture
	Values map[string]string
}

type logPicture struct {
	ID         string
	First, End store.Pos
	Records    []string
	Lost       []store.Pos
}

func (s *site) picture(t *testing.T) picture {
	t.Helper()
	from := s.open(t, nil)
	defer func() { require.NoError(t, from.Close()) }()
	p := picture{map[string]logPicture{}, map[string]string{}}
	logs, err := from.Logs(t.Context())
	require.NoError(t, err)
	for _, name := range logs {
		l, err := from.Log(t.Context(), name, keep(name))
		require.NoError(t, err)
		state, err := l.State(t.Context())
		require.NoError(t, err)
		one := logPicture{ID: state.ID.String(), First: state.First, End: state.End}
		for item, err := range l.Read(t.Context(), state.First, false) {
			require.NoError(t, err)
			if r := item.Record; r != nil {
				one.Records = append(one.Records, fmt.Sprintf("%d %d %d %q %x", r.Pos, r.Time.UnixNano(), r.Kind, r.Key, r.Data))
				continue
			}
			for pos := item.Gap.From; pos <= item.Gap.To; pos++ {
				one.Lost = append(one.Lost, pos)
			}
		}
		p.Logs[name] = one
	}
	values, err := from.Table().List(t.Context(), "")
	require.NoError(t, err)
	for _, v := range values {
		if v.Key != move.Key && !strings.HasPrefix(v.Key, "log/") {
			p.Values[v.Key] = string(v.Data)
		}
	}
	return p
}

// rooms are what the rooms of a relay have open on a store.
type rooms struct {
	names   *journal.Quarantine
	journal *journal.Journal
	letters *deadletters.Store
	pushers *credentials.Store
	close   func()
}

var environment = credentials.Environment{Project: "acme", Environment: "live"}

func openRooms(t *testing.T, s store.Store) *rooms {
	t.Helper()
	reg := prometheus.NewRegistry()
	names, err := journal.OpenQuarantine(t.Context(), s, journal.QuarantineOptions{Logger: quiet, Registerer: reg, Fuse: true, Ready: make(chan struct{})})
	require.NoError(t, err)
	cfg := &config.Config{}
	cfg.SetDefaults()
	cfg.Journal.MaxBytes = 64 << 20
	set, err := journal.Open(t.Context(), s, cfg.Journal, journal.Options{Logger: quiet, Registerer: reg, Quarantine: names, Sinks: []string{"fast", "slow"}})
	require.NoError(t, err)
	letters, err := deadletters.Open(t.Context(), deadletters.Options{Store: s, Quarantine: names, Logger: quiet, Registerer: reg})
	require.NoError(t, err)
	pushers, err := credentials.Open(t.Context(), s.Table(), credentials.Options{
		Environments: []config.Environment{{Project: "acme", Environment: "live"}}, Overlap: time.Hour,
	})
	require.NoError(t, err)
	return &rooms{names, set.Logs()[0], letters, pushers, func() {
		pushers.Close()
		require.NoError(t, letters.Close())
		set.Close()
		require.NoError(t, names.Close())
		require.NoError(t, s.Close())
	}}
}

func (r *rooms) push(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		var b record.Batch
		b.AddEvent(&relay.Event{ID: id, Source: "/projects/acme/environments/live", Type: "t", Time: time.Now(), Body: []byte(`{"id":"` + id + `"}`)})
		require.NoError(t, r.journal.Append(t.Context(), &b))
	}
}

// take has a sink take n events, one by one, and returns their ids.
func (r *rooms) take(t *testing.T, sink string, n int) (ids []string) {
	t.Helper()
	source, err := r.journal.Source(t.Context(), sink, relay.BatchLimit{Events: 1, Bytes: 1})
	require.NoError(t, err)
	defer source.Close()
	for range n {
		b, err := source.Next(t.Context())
		require.NoError(t, err)
		ids = append(ids, b.Events[0].ID)
		require.NoError(t, source.Ack(t.Context(), b.Position))
	}
	return ids
}

func trailOptions(dir string) audit.Options {
	return audit.Options{KeySource: audit.KeySource{Origin: "example.com/test", KeyFile: filepath.Join(dir, "key")}, SignEvery: time.Millisecond}
}

func withTrail(t *testing.T, s store.Store, keys string, do func(*audit.Trail)) {
	t.Helper()
	trail, err := audit.Open(t.Context(), s, trailOptions(keys))
	require.NoError(t, err)
	do(trail)
	require.NoError(t, trail.Close(t.Context()))
}

func enter(t *testing.T, trail *audit.Trail, n int) {
	t.Helper()
	for i := range n {
		_, err := trail.Append(t.Context(), audit.Entry{
			Type: "test.changed", Project: "acme", Environment: "live", Subject: fmt.Sprint("setting ", i), Time: time.Now(), After: []byte(`{"a":1}`),
		})
		require.NoError(t, err)
	}
}

var events = []string{"e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7"}

// filled is a disk with some of everything: delivered events and others, dead letters, one of
// which is removed, names in the quarantine, damage, a trail with a rotation, and credentials.
func filled(t *testing.T) (from *site, keys, password string) {
	t.Helper()
	from, keys = onDisk(t), t.TempDir()
	s := from.open(t, nil)
	r := openRooms(t, s)
	r.push(t, events...)
	r.take(t, "fast", 8)
	r.take(t, "slow", 3)
	for i := range 3 {
		require.NoError(t, r.letters.Reject(t.Context(), "slow", []relay.Rejection{{Event: relay.Event{ID: fmt.Sprint("l", i), Body: []byte("{}")}, Reason: "no", Attempts: 1}}))
	}
	require.NoError(t, r.letters.Remove(t.Context(), []uint64{2}))
	require.NoError(t, r.names.NameRecord(t.Context(), journal.EventsLog, 3, "a test", []byte("bytes")))
	issued, err := r.pushers.Prepare(t.Context(), environment)
	require.NoError(t, err)
	require.NoError(t, r.pushers.Promote(t.Context(), environment, issued.LastFour))
	withTrail(t, s, keys, func(trail *audit.Trail) {
		enter(t, trail, 5)
		_, err := trail.Rotate(t.Context(), audit.Person{})
		require.NoError(t, err)
		enter(t, trail, 5)
	})
	r.close()
	for _, log := range []string{journal.EventsLog, deadletters.LogName, audit.EntriesLog} {
		_, err = damage.Of(from.dir).FlipRecord(log, 0)
		require.NoError(t, err)
	}
	return from, keys, issued.Password.Reveal()
}

// works has the rooms of a relay go on in a place.
func works(t *testing.T, at *site, keys, password string, pending []string) {
	t.Helper()
	s := at.open(t, nil)
	r := openRooms(t, s)
	assert.Equal(t, pending, r.take(t, "slow", len(pending)), "the sink goes on where it was")
	r.push(t, "new")
	assert.Equal(t, []string{"new"}, r.take(t, "slow", 1))
	assert.Equal(t, []string{"new"}, r.take(t, "fast", 1))
	letter, ok, err := r.letters.Get(t.Context(), 3)
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, "l2", letter.Event.ID)
	_, ok, err = r.letters.Get(t.Context(), 2)
	require.NoError(t, err)
	assert.False(t, ok, "what was removed does not come back")
	_, ok = r.pushers.Basic(environment.Username(), password)
	assert.True(t, ok)
	before, err := r.names.All(t.Context())
	require.NoError(t, err)
	for _, name := range []string{journal.EventsLog, deadletters.LogName} {
		l, err := s.Log(t.Context(), name, keep(name))
		require.NoError(t, err)
		for gap, err := range l.Scrub(t.Context()) {
			require.NoError(t, err)
			require.NoError(t, r.names.Name(t.Context(), name, gap))
		}
	}
	after, err := r.names.All(t.Context())
	require.NoError(t, err)
	assert.Len(t, after, len(before), "no gap gets another name")
	withTrail(t, s, keys, func(trail *audit.Trail) {
		gens := trail.Generations()
		assert.Len(t, gens, 2, "no new generation begins")
		enter(t, trail, 1)
		for _, p := range trailtest.Verify(t, trail, nil).Problems {
			assert.Equal(t, int64(0), p.From, "%s", p)
		}
	})
	r.close()
}

func TestEverythingMovesAndComesBack(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	here, keys, password := filled(t)
	there := onCluster(t, srv.ClientURL())
	require.NoError(t, run(t, here, there, nil))
	want := here.picture(t)
	require.Equal(t, want, there.picture(t))
	require.Len(t, want.Logs, 5)
	assert.Equal(t, []store.Pos{1}, want.Logs[journal.EventsLog].Lost)
	require.ErrorContains(t, here.check(t), "this journal was moved to "+there.String())
	require.NoError(t, there.check(t))
	works(t, there, keys, password, events[3:])
	require.NoError(t, run(t, here, there, nil), "a finished move can be repeated")

	back := onDisk(t)
	require.NoError(t, run(t, there, back, nil))
	require.Equal(t, there.picture(t), back.picture(t))
	works(t, back, keys, password, nil)
	require.ErrorIs(t, run(t, here, back, nil), move.ErrRefused)

	require.NoError(t, run(t, back, there, nil), "to the place where it was before")
	works(t, there, keys, password, nil)
	want = there.picture(t)
	require.NoError(t, run(t, there, here, nil))
	got := here.picture(t)
	require.Equal(t, want.Values, got.Values)
	for name, l := range want.Logs {
		all := got.Logs[name].Records // the disk drops whole segments only
		assert.Equal(t, l.Records, all[len(all)-len(l.Records):], name)
	}
	works(t, here, keys, password, nil)
}

// A move is killed at each of its writes, before it or after it, and goes on: everything is in
// the new place as it was, and at no time could a relay start on both.
func TestAMoveKilledAtEachWriteGoesOn(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	made, _, _ := filled(t)
	step, runs := 1, 0
	if testing.Short() {
		step = 5
	}
	killed := true
	for at := 1; killed; at += step {
		killed = false
		for _, after := range []bool{false, true} {
			here, there, back := onDisk(t), onCluster(t, srv.ClientURL()), onDisk(t)
			require.NoError(t, damage.CopyDir(made.dir, here.dir))
			for _, leg := range [][2]*site{{here, there}, {there, back}} {
				f := &faults{at: at, after: after}
				err := run(t, leg[0], leg[1], f)
				if f.n >= at {
					require.Error(t, err)
					runs, killed = runs+1, true
					starts := 0
					for _, s := range leg {
						if s.check(t) == nil && len(s.picture(t).Logs) > 0 { // in an empty place nothing was begun
							starts++
						}
					}
					require.LessOrEqual(t, starts, 1, "write %d, after it: %t", at, after)
					err = run(t, leg[0], leg[1], nil)
				}
				require.NoError(t, err)
				require.Error(t, leg[0].check(t))
				require.NoError(t, leg[1].check(t))
				require.Equal(t, leg[0].picture(t), leg[1].picture(t), "write %d, after it: %t", at, after)
			}
		}
	}
	t.Logf("%d moves were killed", runs)
}

func TestAPlaceOfAnotherRelayIsRefused(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	here, _, _ := filled(t)
	other := onCluster(t, srv.ClientURL())
	r := openRooms(t, other.open(t, nil))
	r.push(t, "theirs")
	r.close()
	was := other.picture(t)
	err := run(t, here, other, nil)
	require.ErrorIs(t, err, move.ErrRefused)
	require.ErrorContains(t, err, other.String()+" has the journal of another relay")
	require.Equal(t, was, other.picture(t))
	require.NoError(t, here.check(t), "the old place is as it was")

	another, _, _ := filled(t)
	there := onCluster(t, srv.ClientURL())
	f := &faults{at: 6}
	require.ErrorIs(t, run(t, another, there, f), errKilled)
	require.ErrorContains(t, run(t, here, there, nil), "has the journal of another relay")
	require.NoError(t, run(t, another, there, nil))
	require.ErrorContains(t, run(t, onDisk(t), there, nil), "has none")
}

// A move that was begun can be taken back, and begun again after the relay went on.
func TestAMoveIsTakenBack(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	here, keys, password := filled(t)
	there := onCluster(t, srv.ClientURL())
	require.ErrorIs(t, run(t, here, there, &faults{at: 12}), errKilled)
	require.ErrorContains(t, here.check(t), "a move of this journal to "+there.String()+" was begun")
	require.ErrorContains(t, there.check(t), "a move to this place from "+here.String()+" was begun")
	require.ErrorContains(t, run(t, here, onDisk(t), nil), "a move of it to "+there.String()+" was begun")
	p := here.open(t, nil)
	other, begun, err := move.TakeBack(t.Context(), p)
	require.NoError(t, err)
	assert.True(t, begun)
	assert.Equal(t, there.String(), other)
	_, begun, err = move.TakeBack(t.Context(), p)
	require.NoError(t, err)
	assert.False(t, begun)
	require.NoError(t, p.Close())
	require.NoError(t, here.check(t))
	works(t, here, keys, password, events[3:])
	require.NoError(t, run(t, here, there, nil))
	require.Equal(t, here.picture(t), there.picture(t))
	works(t, there, keys, password, nil)
}

// A relay that uses the old place meanwhile ends the move.
func TestAPlaceInUseIsNotLeft(t *testing.T) {
	t.Parallel()
	here, _, _ := filled(t)
	a, b := here.open(t, nil), onDisk(t).open(t, nil)
	defer func() { require.NoError(t, errors.Join(a.Close(), b.Close())) }()
	names, err := journal.OpenQuarantine(t.Context(), a, journal.QuarantineOptions{Logger: quiet, Registerer: prometheus.NewRegistry(), Ready: make(chan struct{})})
	require.NoError(t, err)
	defer func() { require.NoError(t, names.Close()) }()
	o := move.Options{From: a, To: b, Keep: keep, Names: names, Logger: quiet, Alone: func(context.Context) error { return assert.AnError }}
	require.ErrorIs(t, move.Run(t.Context(), o), assert.AnError)
	require.NoError(t, move.Check(t.Context(), a), "nothing was begun")
	o.Alone = func(context.Context) error { return nil }
	once := false
	o.Progress = func(done, total uint64) {
		assert.LessOrEqual(t, done, total)
		l, err := a.Log(t.Context(), audit.CheckpointsLog, keep(""))
		require.NoError(t, err)
		if done == total && !once {
			once = true
			_, err = l.Append(t.Context(), store.Draft{Kind: 1})
			require.NoError(t, err)
		}
	}
	require.ErrorContains(t, move.Run(t.Context(), o), "stop whatever relay uses it")
	require.ErrorContains(t, move.Check(t.Context(), a), "is not finished")
	require.NoError(t, move.Run(t.Context(), o))
	require.True(t, once)
}

// What is damaged in the old place after it was copied is whole in the new one. What the new place
// loses meanwhile is noticed, and nothing is left.
func TestDamageBetweenTwoRunsOfAMove(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	here, keys, password := filled(t)
	there := onCluster(t, srv.ClientURL())
	all := &faults{}
	copied := onDisk(t)
	require.NoError(t, damage.CopyDir(here.dir, copied.dir))
	require.NoError(t, run(t, copied, onCluster(t, srv.ClientURL()), all))
	require.ErrorIs(t, run(t, here, there, &faults{at: all.n - 1}), errKilled) // all that is left is the mark that decides
	_, err := damage.Of(here.dir).FlipRecord(journal.EventsLog, 6)
	require.NoError(t, err)
	js := natstest.JetStream(t, srv)
	stream, err := js.Stream(t.Context(), there.prefix+"_TRAIL-ENTRIES")
	require.NoError(t, err)
	lost, err := stream.GetMsg(t.Context(), 3)
	require.NoError(t, err)
	require.NoError(t, stream.DeleteMsg(t.Context(), lost.Sequence))
	require.NotContains(t, there.picture(t).Logs[journal.EventsLog].Lost, store.Pos(8))
	err = run(t, here, there, nil)
	require.ErrorIs(t, err, move.ErrRefused)
	require.ErrorContains(t, err, "has lost position 4 of the log trail.entries")
	require.ErrorContains(t, here.check(t), "is not finished")
	for name := range js.StreamNames(t.Context()).Name() {
		if strings.HasPrefix(name, there.prefix+"_") {
			require.NoError(t, js.DeleteStream(t.Context(), name))
		}
	}
	require.NoError(t, run(t, here, there, nil), "with the place emptied, it begins again")
	works(t, there, keys, password, events[3:7])
}

func TestAPlanSaysWhatThereIs(t *testing.T) {
	t.Parallel()
	here, _, _ := filled(t)
	p := here.open(t, nil)
	defer func() { require.NoError(t, p.Close()) }()
	plan, err := move.Look(t.Context(), p)
	require.NoError(t, err)
	logs := map[string]move.Planned{}
	for _, l := range plan.Logs {
		logs[l.Log] = l
	}
	assert.ElementsMatch(t, []string{"events", "quarantine", "deadletters", "trail.entries", "trail.checkpoints"}, slices.Collect(maps.Keys(logs)))
	assert.Equal(t, uint64(7), logs["events"].Records)
	assert.Equal(t, 1, logs["events"].Gaps)
	assert.Equal(t, store.Pos(8), logs["events"].Last)
	assert.Positive(t, logs["events"].Largest)
	assert.Positive(t, plan.Seconds)
}
