package deadletters_test

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
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
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/cluster"
	"github.com/auditrelay/auditrelay/internal/store/disk"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// stage has dead letters in a folder of their own.
type stage struct {
	*deadletters.Store
	t      testing.TB
	dir    string
	budget int64
	url    string // of a cluster's server; "" for a folder
	store  store.Store
	ledger *journal.Quarantine
	calls  atomic.Int64 // appends at an end, and trims, that succeed before one fails; negative: all do
	reg    *prometheus.Registry
}

func open(t testing.TB) *stage {
	t.Helper()
	return openAt(t, "")
}

// onBoth runs a test on both backends.
func onBoth(t *testing.T, run func(t *testing.T, s *stage)) {
	t.Helper()
	t.Parallel()
	t.Run("on disk", func(t *testing.T) {
		t.Parallel()
		run(t, open(t))
	})
	t.Run("on a cluster", func(t *testing.T) {
		t.Parallel()
		run(t, openAt(t, natstest.Run(t, t.TempDir()).ClientURL()))
	})
}

func openAt(t testing.TB, url string) *stage {
	t.Helper()
	s := &stage{t: t, dir: t.TempDir(), url: url}
	s.calls.Store(-1)
	s.begin()
	t.Cleanup(s.end)
	return s
}

func (s *stage) begin() {
	s.t.Helper()
	log := slog.New(slog.DiscardHandler)
	var err error
	if s.url == "" {
		s.store, err = disk.Open(disk.Config{Dir: filepath.Join(s.dir, "store"), Salvage: filepath.Join(s.dir, "salvage"), Writer: "test", Logger: log})
	} else {
		s.store, err = cluster.Open(s.t.Context(), cluster.Config{
			Journal: config.Journal{URL: s.url, Replicas: 1, StreamPrefix: "TEST", MaxBytes: 64 << 20},
			Dir:     filepath.Join(s.dir, "notes"), Version: "test", Logger: log, Registerer: prometheus.NewRegistry(),
		})
	}
	require.NoError(s.t, err)
	s.ledger, err = journal.OpenQuarantine(s.t.Context(), s.store, journal.QuarantineOptions{Logger: log, Registerer: prometheus.NewRegistry()})
	require.NoError(s.t, err)
	s.reg = prometheus.NewRegistry()
	s.Store, err = deadletters.Open(s.t.Context(), deadletters.Options{
		Store: &failing{s.store, &s.calls}, Quarantine: s.ledger, Budget: s.budget, Logger: log, Registerer: s.reg, Sinks: []string{"k"},
	})
	require.NoError(s.t, err)
}

func (s *stage) end() {
	s.t.Helper()
	require.NoError(s.t, s.Close())
	require.NoError(s.t, s.ledger.Close())
	require.NoError(s.t, s.store.Close())
}

func (s *stage) restart() {
	s.t.Helper()
	s.end()
	s.begin()
}

// failing is a store whose logs fail after so many calls, as the files of a process that
// ends there.
type failing struct {
	store.Store
	left *atomic.Int64
}

func (f *failing) Log(ctx context.Context, name string, o store.Options) (store.Log, error) {
	l, err := f.Store.Log(ctx, name, o)
	return &failingLog{l, f.left}, err
}

type failingLog struct {
	store.Log
	left *atomic.Int64
}

func (l *failingLog) fails() bool {
	return l.left.Load() == 0 || l.left.Load() > 0 && l.left.Add(-1) < 0
}

func (l *failingLog) AppendAt(ctx context.Context, after store.Pos, drafts ...store.Draft) (store.Pos, error) {
	if l.fails() {
		return 0, assert.AnError
	}
	return l.Log.AppendAt(ctx, after, drafts...)
}

func (l *failingLog) Trim(ctx context.Context, before store.Pos) error {
	if l.fails() {
		return assert.AnError
	}
	return l.Log.Trim(ctx, before)
}

func ids(events []relay.Event) []string {
	out := make([]string, len(events))
	for i := range events {
		out[i] = events[i].ID
	}
	return out
}

func (s *stage) reject(sink, reason string, events ...relay.Event) {
	s.t.Helper()
	rejections := make([]relay.Rejection, len(events))
	for i := range events {
		rejections[i] = relay.Rejection{Event: events[i], Reason: reason, Attempts: 1}
	}
	require.NoError(s.t, s.Reject(s.t.Context(), sink, rejections))
}

func (s *stage) find(f deadletters.Filter) (got []deadletters.Letter) {
	s.t.Helper()
	require.NoError(s.t, s.Find(s.t.Context(), f, func(d deadletters.Letter) bool {
		got = append(got, d)
		return true
	}))
	return got
}

// found are the events of letters, in their order.
func (s *stage) found(f deadletters.Filter) []string {
	s.t.Helper()
	out := []string{}
	for _, d := range s.find(f) {
		assert.Empty(s.t, d.Damage)
		out = append(out, d.Event.ID)
	}
	return out
}

func (s *stage) remove(numbers ...uint64) {
	s.t.Helper()
	require.NoError(s.t, s.Remove(s.t.Context(), numbers))
}

func through(from, to uint64) (numbers []uint64) {
	for n := from; n <= to; n++ {
		numbers = append(numbers, n)
	}
	return numbers
}

var _ relay.DeadLetters = (*deadletters.Store)(nil)

func TestALetterComesBackAsItWas(t *testing.T) { onBoth(t, aLetterComesBackAsItWas) }

func aLetterComesBackAsItWas(t *testing.T, s *stage) {
	t.Helper()
	events := relaytest.Events(2)
	require.NoError(t, s.Reject(t.Context(), "kafka", []relay.Rejection{
		{Event: events[0], Reason: "too\nlarge", Attempts: 3}, {Event: events[1], Reason: "x", Attempts: 1},
	}))
	s.restart()
	got := s.find(deadletters.Filter{})
	require.Len(t, got, 2)
	assert.Equal(t, "kafka", got[0].Sink)
	assert.Equal(t, "too large", got[0].Reason)
	assert.Equal(t, 3, got[0].Attempts)
	assert.WithinDuration(t, time.Now(), got[0].Time, time.Minute)
	assert.Equal(t, events[0], got[0].Event)
	assert.Equal(t, events[1], got[1].Event)
}

// What a letter says beyond its event has to fit into a record with the largest event that the journal takes:
// a sink would otherwise wait for ever. Its texts are cut where they do not.
func TestTheLargestEventBecomesALetter(t *testing.T) { onBoth(t, theLargestEventBecomesALetter) }

func theLargestEventBecomesALetter(t *testing.T, s *stage) {
	t.Helper()
	set, err := journal.Open(t.Context(), s.store, config.Journal{Shards: 1, MaxBytes: 64 << 20, ReplayWindow: time.Hour}, journal.Options{
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Quarantine: s.ledger,
	})
	require.NoError(t, err)
	defer set.Close()
	event := relaytest.Events(1)[0]
	event.ID = strings.Repeat("\u2028<&", 300)
	size := func() int {
		var b record.Batch
		b.AddEvent(&event)
		return b.Size()
	}
	event.Body = make([]byte, set.MaxEvent()/2)
	event.Body = make([]byte, set.MaxEvent()-(size()-len(event.Body))-8)
	_, err = rand.NewChaCha8([32]byte{}).Read(event.Body) // nothing compresses it
	require.NoError(t, err)
	event.Body = append(event.Body, make([]byte, set.MaxEvent()-size())...)
	require.Equal(t, set.MaxEvent(), size())
	var b record.Batch
	b.AddEvent(&event)
	require.NoError(t, set.Append(t.Context(), &b))

	for _, reason := range []string{"no", strings.Repeat("<\x00>\"", 1000)} {
		s.reject("a-sink-with-a-long-name", reason, event)
	}
	s.restart()
	got := s.find(deadletters.Filter{})
	require.Len(t, got, 2)
	for _, l := range got {
		assert.Equal(t, event.Body, l.Event.Body)
		assert.Equal(t, event.ID, l.Event.ID)
	}
	assert.Equal(t, "no", got[0].Reason)
	assert.Contains(t, got[1].Reason, "<")
}

// Many letters are kept at once, yet each is read and removed by itself. A restart changes
// nothing.
func TestLettersAreRemovedOneByOne(t *testing.T) { onBoth(t, lettersAreRemovedOneByOne) }

func lettersAreRemovedOneByOne(t *testing.T, s *stage) {
	t.Helper()
	events := relaytest.Events(2507)
	s.reject("k", "no", events...)
	require.Equal(t, ids(events), s.found(deadletters.Filter{}))
	s.remove(3)
	want := slices.Delete(ids(events), 2, 3)
	for range 2 {
		require.Equal(t, want, s.found(deadletters.Filter{Sink: "k"}))
		d, ok, err := s.Get(t.Context(), 1001)
		require.NoError(t, err)
		require.True(t, ok)
		assert.Equal(t, events[1000], d.Event)
		_, ok, err = s.Get(t.Context(), 3)
		require.NoError(t, err)
		assert.False(t, ok)
		s.remove(3, 99_999) // gone, and never there
		usage, err := s.Usage(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 2506, usage["k"].Letters)
		s.restart()
	}
	s.remove(through(1, 2507)...)
	assert.Empty(t, s.found(deadletters.Filter{}))
	s.restart()
	assert.Empty(t, s.found(deadletters.Filter{}))
	usage, err := s.Usage(t.Context())
	require.NoError(t, err)
	assert.Empty(t, usage)
}

// What a sink's letters are does not depend on those of another one.
func TestSinksHaveLettersOfTheirOwn(t *testing.T) { onBoth(t, sinksHaveLettersOfTheirOwn) }

func sinksHaveLettersOfTheirOwn(t *testing.T, s *stage) {
	t.Helper()
	events := relaytest.Events(100)
	want := map[string][]string{}
	for i := range 10 {
		sink := []string{"a", "ab"}[i%2]
		s.reject(sink, "no", events[10*i:10*i+10]...)
		want[sink] = append(want[sink], ids(events[10*i:10*i+10])...)
	}
	s.remove(through(1, 10)...)
	s.remove(through(41, 45)...)
	want["a"] = slices.Delete(want["a"][10:], 10, 15)
	for sink := range want {
		assert.Equal(t, want[sink], s.found(deadletters.Filter{Sink: sink}), sink)
	}
}

// Each environment has a budget at each sink. What is beyond it is kept all the same, as a
// sink that waits would hold up all others, and is told, over a restart too.
func TestDeadLettersHaveABudget(t *testing.T) { onBoth(t, deadLettersHaveABudget) }

func deadLettersHaveABudget(t *testing.T, s *stage) {
	t.Helper()
	s.end()
	s.budget = 64 << 10
	s.begin()
	var told []map[string]int64
	settled := func() map[string]int64 {
		_, err := s.Usage(t.Context())
		require.NoError(t, err)
		return told[len(told)-1]
	}
	listen := func() { s.Beyond(func(now map[string]int64) { told = append(told, now) }) }
	listen()
	flood, one := relaytest.Events(1000, relaytest.BodyBytes(500)), relaytest.Events(1)
	for i := range flood {
		flood[i].Source = "/projects/acme/environments/..odd slug.>*"
	}
	one[0].Source = relay.TrailSource
	_, err := s.Usage(t.Context()) // the listener has heard by then
	require.NoError(t, err)
	kept := 0
	for ; len(settled()) == 0; kept += 10 {
		s.reject("k", "no", flood[kept:kept+10]...)
	}
	beyond := settled()
	require.Len(t, beyond, 1)
	require.Positive(t, beyond[flood[0].Source])
	require.Less(t, beyond[flood[0].Source], int64(16<<10), "one delivery at most")
	s.reject("k", "no", one...)
	s.reject("other", "no", flood[:1]...)
	require.Equal(t, beyond, settled(), "another sink has a budget of its own")
	s.reject("k", "nothing is dropped", flood[:10]...)
	require.Greater(t, settled()[flood[0].Source], beyond[flood[0].Source])
	require.Len(t, s.found(deadletters.Filter{}), kept+12)

	usage, err := s.Usage(t.Context())
	require.NoError(t, err)
	k := usage["k"]
	require.EqualValues(t, kept+11, k.Letters)
	source, bytes := k.Fullest()
	require.Equal(t, flood[0].Source, source)
	require.Equal(t, k.Bytes, bytes+k.BySource[relay.TrailSource])
	letters, err := s.store.Log(t.Context(), deadletters.LogName, store.Options{})
	require.NoError(t, err)
	state, err := letters.State(t.Context())
	require.NoError(t, err)
	assert.InEpsilon(t, state.Bytes, k.Bytes+usage["other"].Bytes, 0.2, "it is what the log takes, about")

	s.restart()
	told = nil
	listen()
	require.Positive(t, settled()[flood[0].Source])
	s.remove(through(1, 30)...)
	require.Empty(t, settled())
}

// A failure is told as such, and leaves nothing.
func TestAFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Reject(ctx, "k", []relay.Rejection{{Event: relaytest.Events(1)[0], Reason: "no"}})
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, s.found(deadletters.Filter{}))
}

// Whatever happens to the file, each letter is there or its position is named.
func TestNoLetterIsLostWithoutAWord(t *testing.T) {
	t.Parallel()
	const letters = 600
	for name, harm := range map[string]func(t *testing.T, file string, old []byte){
		"a flipped bit": func(t *testing.T, file string, _ []byte) {
			t.Helper()
			change(t, file, func(data []byte) []byte { data[len(data)/2] ^= 8; return data })
		},
		"a truncated file": func(t *testing.T, file string, _ []byte) {
			t.Helper()
			change(t, file, func(data []byte) []byte { return data[:2*len(data)/3] })
		},
		"an empty file": func(t *testing.T, file string, _ []byte) {
			t.Helper()
			change(t, file, func([]byte) []byte { return nil })
		},
		"a missing file": func(t *testing.T, file string, _ []byte) {
			t.Helper()
			require.NoError(t, os.Remove(file))
		},
		"an older copy": func(t *testing.T, file string, old []byte) {
			t.Helper()
			change(t, file, func([]byte) []byte { return old })
		},
		"zeros in the middle": func(t *testing.T, file string, _ []byte) {
			t.Helper()
			change(t, file, func(data []byte) []byte { clear(data[len(data)/3 : len(data)/2]); return data })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			events := relaytest.Events(letters)
			s.reject("k", "no", events[:letters/2]...)
			file := newestSegment(t, s.dir)
			old, err := os.ReadFile(file)
			require.NoError(t, err)
			s.reject("k", "no", events[letters/2:]...)
			s.end()
			harm(t, file, old)
			s.begin()
			named := s.accounted(letters)
			t.Logf("%d letters of %d are lost, and named", named, letters)
			assert.Positive(t, named, "the harm did something")
			s.reject("k", "no", relaytest.Events(1, relaytest.From(9000))...)
			s.restart()
			assert.Equal(t, named, s.accounted(letters), "each is named once")
			assert.Len(t, s.find(deadletters.Filter{}), letters-named+1, "it goes on")
		})
	}
}

// accounted checks that each of the first letters is there or named, and returns how many
// are named.
func (s *stage) accounted(letters int) (named int) {
	s.t.Helper()
	seen := map[uint64]string{}
	for _, d := range s.find(deadletters.Filter{Through: uint64(letters)}) { //nolint:gosec // it is small
		seen[d.Sequence] = "there"
	}
	all, err := s.ledger.All(s.t.Context())
	require.NoError(s.t, err)
	for _, loss := range all {
		require.Equal(s.t, deadletters.LogName, loss.Log)
		for pos := loss.From; pos <= min(loss.To, store.Pos(letters)); pos++ {
			require.Empty(s.t, seen[uint64(pos)], "letter %d", pos)
			seen[uint64(pos)] = "named"
			named++
		}
	}
	assert.Len(s.t, seen, letters)
	return named
}

func change(t *testing.T, file string, how func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, how(data), 0o600))
}

// newestSegment is the file with the end of the letters' log.
func newestSegment(t *testing.T, dir string) (newest string) {
	t.Helper()
	size := int64(0)
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, "store", deadletters.LogName), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 32<<10 && info.Size() >= size {
			newest, size = path, info.Size()
		}
		return err
	}))
	require.NotEmpty(t, newest)
	return newest
}

// large are events of 900 KiB that nobody can compress.
func large(random *rand.ChaCha8, n int) []relay.Event {
	events := relaytest.Events(n)
	for i := range events {
		events[i].Body = make([]byte, 900<<10)
		_, _ = random.Read(events[i].Body) // it never fails
	}
	return events
}

// stands is a letter, as far as it must not change.
type stands struct {
	number   uint64
	sink     string
	refused  time.Time
	attempts int
	content  [32]byte
}

func (s *stage) standing() (all []stands) {
	s.t.Helper()
	for _, d := range s.find(deadletters.Filter{}) {
		all = append(all, stands{d.Sequence, d.Sink, d.Time, d.Attempts, sha256.Sum256(d.Event.Body)})
	}
	return all
}

// The log does not grow with what was removed. Letters that stay keep their number, their
// time and their content while they are appended again, and a crash between any two steps
// of it loses none, and brings none back.
func TestRemovedLettersGiveTheirRoomBack(t *testing.T) {
	onBoth(t, func(t *testing.T, s *stage) {
		if testing.Short() && s.url != "" {
			t.Skip("on a cluster it takes a minute")
		}
		removedLettersGiveTheirRoomBack(t, s)
	})
}

func removedLettersGiveTheirRoomBack(t *testing.T, s *stage) {
	t.Helper()
	random := rand.NewChaCha8([32]byte{1})
	const rounds, each = 4, 40
	var want []stands
	for round := range rounds {
		s.reject("k", "no", large(random, each)...)
		all := s.standing()
		require.Len(t, all, len(want)+each)
		var gone []uint64
		for i, d := range all[len(want):] {
			if i%8 > 0 {
				gone = append(gone, d.number)
			} else {
				want = append(want, d)
			}
		}
		s.calls.Store(int64(round)) // the process ends after so many steps
		s.remove(gone...)
		require.Equal(t, want, s.standing())
		s.restart()
		require.Equal(t, want, s.standing())
	}
	s.calls.Store(-1)
	for len(want) > 10 {
		s.remove(want[0].number, want[4].number)
		want = append(want[1:4:4], want[5:]...)
		require.Equal(t, want, s.standing())
		s.restart() // which ends what is under way
		require.Equal(t, want, s.standing())
	}
	letters, err := s.store.Log(t.Context(), deadletters.LogName, store.Options{})
	require.NoError(t, err)
	waiting.Until(t, func() bool {
		state, err := letters.State(t.Context())
		require.NoError(t, err)
		return state.Bytes < 74<<20
	}, "140 MiB were kept, and 9 are left, some of them in the newest segment of up to 64")
	require.Equal(t, want, s.standing())
	all, err := s.ledger.All(t.Context())
	require.NoError(t, err)
	assert.Empty(t, all, "nothing was lost")
}

// A record of a later version stays, and what it may speak of as well.
func TestALaterVersionsRecordIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := open(t)
	letters, err := s.store.Log(t.Context(), deadletters.LogName, store.Options{})
	require.NoError(t, err)
	_, err = letters.Append(t.Context(), store.Draft{Kind: 77, Data: []byte("?")}, store.Draft{Kind: 1, Key: "k", Data: []byte("no letter")})
	require.NoError(t, err)
	events := relaytest.Events(3)
	s.reject("k", "no", events...)
	assert.Equal(t, ids(events), s.found(deadletters.Filter{}))
	all, err := s.ledger.All(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1, "what nobody can read is named")
	assert.EqualValues(t, 2, all[0].From)
	assert.Equal(t, len("no letter"), all[0].Bytes)
}

// Two relays on one cluster see each other's letters, and removals.
func TestAnotherRelaysLetters(t *testing.T) { onBoth(t, anotherRelaysLetters) }

func anotherRelaysLetters(t *testing.T, s *stage) {
	t.Helper()
	another, err := deadletters.Open(t.Context(), deadletters.Options{
		Store: s.store, Quarantine: s.ledger, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, another.Close()) }()
	events := relaytest.Events(20)
	s.reject("k", "no", events...)
	require.NoError(t, another.Remove(t.Context(), through(1, 19)))
	assert.Equal(t, ids(events[19:]), s.found(deadletters.Filter{}))
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.reject("other", "no", relaytest.Events(3)...)
	_, err := s.Usage(t.Context())
	require.NoError(t, err)
	families, err := s.reg.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += "/" + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue()
		}
	}
	assert.InDelta(t, 3, got["auditrelay_sink_dead_letters/other"], 0)
	assert.Contains(t, got, "auditrelay_sink_dead_letters/k", "a configured sink has a value from the start")
	assert.Positive(t, got["auditrelay_dead_letters_bytes/other"])
	assert.Equal(t, got["auditrelay_dead_letters_bytes/other"], got["auditrelay_dead_letters_fullest_bytes/other"]) //nolint:testifylint // the same number
}

// BenchmarkReject keeps a whole refused delivery of 5,000 events.
func BenchmarkReject(b *testing.B) {
	s := open(b)
	refused := relaytest.Events(5000)
	for b.Loop() {
		s.reject("k", "the schema registry knows no such field", refused...)
	}
	b.ReportMetric(float64(len(refused)*b.N)/b.Elapsed().Seconds(), "letters/s")
}

// BenchmarkRemove removes them as a replay or a discard of all does.
func BenchmarkRemove(b *testing.B) {
	s := open(b)
	refused := relaytest.Events(5000)
	removed := 0
	for b.Loop() {
		b.StopTimer()
		s.reject("k", "no", refused...)
		var found []uint64
		for _, d := range s.find(deadletters.Filter{Sink: "k"}) {
			found = append(found, d.Sequence)
		}
		b.StartTimer()
		s.remove(found...)
		removed += len(found)
	}
	b.ReportMetric(float64(removed)/b.Elapsed().Seconds(), "letters/s")
}
