package ingest

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/testbed/journaltest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// recently makes a handler with a set of recent events.
func recently(o *Options) { o.Recent = NewRecentSet(time.Hour, 1000) }

// lokiPushOf is a push of lines, a nanosecond apart.
func lokiPushOf(lines ...string) string {
	var values []string
	for i, line := range lines {
		values = append(values, fmt.Sprintf(`["%d",%q]`, 1750000000000000000+i, line))
	}
	return `{"streams":[{"stream":{"app":"idp"},"values":[` + strings.Join(values, ",") + `]}]}`
}

func (r *rig) duplicates() float64 { return float64(r.arrived().Duplicates) }

func (r *rig) stored() float64 { return float64(r.arrived().Events) }

func TestAPushThatComesAgainIsStoredOnce(t *testing.T) {
	t.Parallel()
	j, source := realJournal(t)
	r := start(t, func(o *Options) { o.Journal = j; recently(o) })
	const a, b, c = `{"event_id":"a","n":1}`, `{"event_id":"b","n":1}`, `{"event_id":"c","n":1}`
	bodies := func(n int) (out []string) {
		for _, e := range next(t, source, n) {
			out = append(out, string(e.Body))
		}
		return out
	}
	for range 3 {
		require.Equal(t, http.StatusNoContent, r.push(t, lokiPushOf(a, "text")).status)
	}
	assert.Equal(t, []string{a, "text"}, bodies(2))
	assert.Equal(t, []float64{2, 4}, []float64{r.stored(), r.duplicates()})

	// New events among known ones keep their order and their group.
	require.Equal(t, http.StatusNoContent, r.push(t, lokiPushOf(a, b, "text", c)).status)
	assert.Equal(t, []string{b, "text", c}, bodies(3), "the text stands at another time, and has no id of its own")

	// As Datadog's form: the ids and bodies are the same.
	require.Equal(t, http.StatusAccepted, r.send(t, http.MethodPost, "/api/v2/logs", asJSON, []byte("["+a+"]")).status)
	// The same id with another body is another event.
	const other = `{"event_id":"a","n":2}`
	require.Equal(t, http.StatusNoContent, r.push(t, lokiPushOf(other, a)).status)
	assert.Equal(t, []string{other}, bodies(1))
	assert.Equal(t, []float64{6, 7}, []float64{r.stored(), r.duplicates()})
	assert.Zero(t, r.handler.memory.used.Load(), "all memory is given back")
}

func TestAnotherEnvironmentsEventIsAnother(t *testing.T) {
	t.Parallel()
	known := NewRecentSet(time.Hour, 1000)
	a := start(t, func(o *Options) { o.Recent = known })
	b := start(t, func(o *Options) {
		o.Recent, o.Anonymous = known, credentials.Environment{Project: "acme", Environment: "test"}
	})
	push := lokiPushOf(`{"event_id":"a"}`)
	require.Equal(t, http.StatusNoContent, a.push(t, push).status)
	require.Equal(t, http.StatusNoContent, b.send(t, http.MethodPost, "/loki/api/v1/push", asJSON.with("Authorization", ""), []byte(push)).status)
	assert.Equal(t, 1, b.journal.taken())
}

func TestBadEntriesBesideKnownOnes(t *testing.T) {
	t.Parallel()
	r := start(t, recently)
	push := `{"streams":[{"stream":{},"values":[["1","one"],["x","bad"],["2","two"]]}]}`
	first := r.push(t, push)
	require.Equal(t, http.StatusBadRequest, first.status)
	require.Contains(t, first.body, "2 entries were taken, 1 were not")
	second := r.push(t, push)
	assert.Equal(t, first.status, second.status)
	assert.Equal(t, first.body, second.body)
	assert.Equal(t, 2, r.journal.taken())
	assert.Equal(t, 2.0, r.duplicates())
}

func TestAFailedAppendIsNotRemembered(t *testing.T) {
	t.Parallel()
	r := start(t, recently)
	for _, err := range []error{journal.ErrFull, journal.ErrUnavailable, errors.New("broken")} {
		r.journal.err = err
		require.Equal(t, http.StatusServiceUnavailable, r.push(t, lokiPushOf("one", "two")).status)
	}
	r.journal.err = nil
	require.Equal(t, http.StatusNoContent, r.push(t, lokiPushOf("one", "two")).status)
	assert.Equal(t, 2, r.journal.taken())
	r.journal.err = journal.ErrFull
	assert.Equal(t, http.StatusNoContent, r.push(t, lokiPushOf("one", "two")).status, "it is durable, and needs no room")
	assert.Equal(t, http.StatusServiceUnavailable, r.push(t, lokiPushOf("one", "two", "three")).status)
	assert.Equal(t, 2.0, r.duplicates(), "of pushes that were acknowledged")
}

// No other push remembers the events of a failed one by their shared memory.
func TestAFailedAppendIsNotRememberedByAnotherPush(t *testing.T) {
	t.Parallel()
	r := start(t, recently)
	for i := range 30 {
		failed, other := lokiPushOf(fmt.Sprint("failed ", i)), lokiPushOf(fmt.Sprint("other ", i))
		r.journal.err = journal.ErrFull
		require.Equal(t, http.StatusServiceUnavailable, r.push(t, failed).status)
		r.journal.err = nil
		require.Equal(t, http.StatusNoContent, r.push(t, other).status)
		require.Equal(t, http.StatusNoContent, r.push(t, failed).status)
		require.Equal(t, 2*(i+1), r.journal.taken(), "an event was acknowledged that is nowhere")
	}
}

// During the commit of the first of two equal pushes, neither is acknowledged: the commit
// may fail.
func TestTwoEqualPushesAtOnceAreBothDurable(t *testing.T) {
	t.Parallel()
	r := start(t, recently)
	r.journal.hold = make(chan struct{})
	statuses := make(chan int, 2)
	var pushes sync.WaitGroup
	for range 2 {
		pushes.Go(func() { statuses <- r.push(t, lokiPushOf("one")).status })
	}
	waiting.Until(t, func() bool { return r.journal.came.Load() == 2 })
	assert.Empty(t, statuses, "acknowledged before it is durable")
	close(r.journal.hold)
	pushes.Wait()
	assert.Equal(t, []int{http.StatusNoContent, http.StatusNoContent}, []int{<-statuses, <-statuses})
	assert.Equal(t, 2, r.journal.taken(), "stored twice")
	assert.Equal(t, http.StatusNoContent, r.push(t, lokiPushOf("one")).status)
	assert.Equal(t, 2, r.journal.taken())
}

// The set of recent events ends with its process. The next process reads the journal.
func TestAPushThatComesAgainAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := config.Journal{StreamPrefix: "TEST", MaxBytes: 256 << 20, ReplayWindow: time.Hour, Replicas: 1}
	lines := []string{`{"event_id":"a"}`, "text", `{"event_id":"b","action":"LOGIN"}`}
	for round := range 3 {
		j := journaltest.Open(t, dir, cfg, journaltest.Options{})
		known := NewRecentSet(time.Hour, 1000)
		require.NoError(t, j.ReadBack(t.Context(), time.Now().Add(-time.Hour), j.Inherited(), func(events []relay.Event) bool {
			return known.Restore(events, known.Epoch())
		}))
		r := start(t, func(o *Options) { o.Journal, o.Recent = j, known })
		more := append(lines, fmt.Sprintf(`{"event_id":"a","round":%d}`, round))
		for range 2 {
			require.Equal(t, http.StatusNoContent, r.push(t, lokiPushOf(more...)).status)
		}
		var n int
		require.NoError(t, j.ReadBack(t.Context(), time.Time{}, math.MaxUint64, func(events []relay.Event) bool { n += len(events); return true }))
		assert.Equal(t, len(lines)+round+1, n)
		r.Close()
		j.Shut()
	}
}

// A stored event, lost at runtime, is stored again when it is pushed again.
func TestWhatWasLostIsNotRecognised(t *testing.T) {
	t.Parallel()
	cfg := config.Journal{StreamPrefix: "TEST", MaxBytes: 256 << 20, ReplayWindow: time.Hour, Replicas: 1}
	dir := t.TempDir()
	known := NewRecentSet(time.Hour, 1000)
	j := journaltest.Open(t, dir, cfg, journaltest.Options{Lost: known.Forget})
	r := start(t, func(o *Options) { o.Journal, o.Recent = j, known })
	event := func(id string) string { return lokiPushOf(`{"event_id":"` + id + `"}`) }
	for _, id := range []string{"a", "b", "c"} {
		require.Equal(t, http.StatusNoContent, r.push(t, event(id)).status)
	}
	_, err := damage.Of(dir).FlipRecord(journal.EventsLog, 1)
	require.NoError(t, err)
	source, err := j.Source(t.Context(), "test", relay.BatchLimit{Events: 1000, Bytes: 1 << 20})
	require.NoError(t, err)
	defer source.Close()
	assert.Equal(t, "c", next(t, source, 2)[1].ID)
	lost, err := j.Quarantine.All(t.Context())
	require.NoError(t, err)
	require.Len(t, lost, 1)
	assert.Equal(t, http.StatusNoContent, r.push(t, event("b")).status)
	require.Zero(t, r.duplicates())
	assert.Equal(t, "b", next(t, source, 1)[0].ID)
}

// forgetful forgets while a push is decoded.
type forgetful struct{ *RecentSet }

func (f *forgetful) Has(k EventKey) bool {
	has := f.RecentSet.Has(k)
	if has {
		f.Forget()
	}
	return has
}

func TestLossIsFoundWhileAPushIsRecognised(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.Recent = &forgetful{NewRecentSet(time.Hour, 1000)} })
	require.Equal(t, http.StatusNoContent, r.push(t, lokiPushOf("a")).status)
	assert.Equal(t, http.StatusServiceUnavailable, r.push(t, lokiPushOf("a")).status)
	assert.Equal(t, http.StatusNoContent, r.push(t, lokiPushOf("a")).status)
	assert.Equal(t, 2, r.journal.taken())
}
