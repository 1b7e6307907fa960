package received

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
)

var live = credentials.Environment{Project: "acme", Environment: "live"}

// clock is moved by hand.
type clock struct{ time.Time }

func (c *clock) now() time.Time       { return c.Time }
func (c *clock) pass(d time.Duration) { c.Time = c.Add(d) }

func newBook() (*Book, *clock) {
	c := &clock{time.Unix(1_760_000_000, 0)}
	return New(c.now), c
}

func TestPushes(t *testing.T) {
	t.Parallel()
	book, clock := newBook()
	e := book.Of(live)
	assert.Same(t, e, book.Of(live))
	empty := e.Snapshot()
	assert.True(t, empty.LastPush.IsZero())
	assert.True(t, empty.LastEvent.IsZero())
	assert.Zero(t, empty.EventsPerSecond)
	for _, q := range empty.Lateness {
		assert.True(t, math.IsNaN(q))
	}
	first := clock.Time
	e.Took(Push{Events: 30, Duplicates: 2, Bytes: 100, Newest: first.Add(-time.Hour).UnixNano()})
	clock.pass(10 * time.Second)
	e.Took(Push{Events: 30, Bytes: 100, Newest: first.Add(-2 * time.Hour).UnixNano()})
	s := e.Snapshot()
	assert.Equal(t, Totals{Pushes: 2, Events: 60, Bytes: 200, Duplicates: 2}, s.Totals)
	assert.Equal(t, clock.Time, s.LastPush)
	assert.True(t, first.Add(-time.Hour).Equal(s.LastEvent), "the newest time of an event, whatever came last")
	assert.InDelta(t, 60./11, s.EventsPerSecond, .01, "of the seconds since the start")
	clock.pass(50 * time.Second)
	assert.InDelta(t, .5, e.Snapshot().EventsPerSecond, .01, "the first push is a minute old")
	clock.pass(time.Hour)
	assert.Zero(t, e.Snapshot().EventsPerSecond)
	e.Took(Push{Events: 1, Newest: clock.Add(24 * time.Hour).UnixNano()})
	assert.True(t, clock.Equal(e.Snapshot().LastEvent), "an event of the future came now")
}

func TestClockBack(t *testing.T) {
	t.Parallel()
	book, clock := newBook()
	e := book.Of(live)
	clock.pass(time.Minute)
	e.Took(Push{Events: 60, Lateness: histogram(time.Second)})
	clock.pass(-time.Hour)
	e.Took(Push{Events: 60, Lateness: histogram(time.Second)})
	s := e.Snapshot()
	assert.InDelta(t, 2, s.EventsPerSecond, .01)
	assert.InDelta(t, 1, s.Lateness[0], .2)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	book, clock := newBook()
	e := book.Of(live)
	e.Refused(Credential) // nobody listens yet
	var told []credentials.Environment
	book.OnRefused(func(env credentials.Environment) {
		told = append(told, env)
		e.Snapshot() // no lock is held
	})
	begun := clock.Time
	for range 2 {
		clock.pass(time.Second)
		e.Refused(Credential)
	}
	e.Refused("something new")
	assert.Equal(t, []credentials.Environment{live, live}, told)
	s := e.Snapshot().Refusals
	assert.Equal(t, Refusals{3, begun, begun.Add(2 * time.Second)}, s[Credential])
	assert.Equal(t, int64(1), s[Unavailable].Count)
	assert.Equal(t, Refusals{}, s[Quota])
	require.Len(t, s, len(Reasons()))
	clock.pass(time.Second)
	e.Took(Push{Duplicates: 1})
	assert.Equal(t, begun, e.Snapshot().Refusals[Credential].First, "of the newest run, though it ended")
	clock.pass(time.Second)
	e.Refused(Credential)
	assert.Equal(t, Refusals{4, clock.Time, clock.Time}, e.Snapshot().Refusals[Credential])
}

func histogram(late ...time.Duration) *Lateness {
	l := &Lateness{}
	for _, d := range late {
		l.Add(d)
	}
	return l
}

func TestLateness(t *testing.T) {
	t.Parallel()
	book, clock := newBook()
	e := book.Of(live)
	for i := range 1000 {
		e.Took(Push{Events: 1, Lateness: histogram(time.Duration(i+1) * time.Second)})
	}
	s := e.Snapshot()
	for i, want := range []float64{500, 900, 990} {
		assert.InEpsilon(t, want, s.Lateness[i], .125)
	}
	clock.pass(9 * time.Minute)
	e.Took(Push{Events: 1000, Lateness: histogram(make([]time.Duration, 9000)...)})
	assert.InDelta(t, 0, e.Snapshot().Lateness[1], .01, "nine tenths came in time")
	assert.Greater(t, e.Snapshot().Lateness[2], 800.)
	clock.pass(4 * time.Minute)
	assert.InDelta(t, 0, e.Snapshot().Lateness[2], .01, "the late ones are forgotten")
	clock.pass(time.Hour)
	assert.True(t, math.IsNaN(e.Snapshot().Lateness[0]))
}

func TestBucketsMeetEachOther(t *testing.T) {
	t.Parallel()
	for i := range buckets {
		low, high := bounds(i)
		assert.Equal(t, i, bucketOf(time.Duration(math.Round(low*1e9))), i)
		assert.Equal(t, i, bucketOf(time.Duration(math.Round(high*1e9))-1), i)
	}
	assert.Equal(t, buckets-1, bucketOf(math.MaxInt64))
	assert.Equal(t, 0, bucketOf(math.MinInt64))
	assert.Positive(t, quantile(&[buckets]float64{buckets - 1: 1}, 1))
}

func TestTookAllocatesNothing(t *testing.T) {
	book, _ := newBook()
	e, l := book.Of(live), histogram(time.Second)
	assert.Zero(t, testing.AllocsPerRun(100, func() { e.Took(Push{Events: 1, Lateness: l}) }))
	assert.Zero(t, testing.AllocsPerRun(100, func() { e.Refused(Quota) }))
}

// BenchmarkPush counts a push of one event, and its lateness.
func BenchmarkPush(b *testing.B) {
	book := New(time.Now)
	e := book.Of(live)
	b.ReportAllocs()
	for b.Loop() {
		var l Lateness
		l.Add(time.Second)
		e.Took(Push{Events: 1, Lateness: &l})
	}
}

func BenchmarkEvent(b *testing.B) {
	var l Lateness
	late := time.Second
	for b.Loop() {
		l.Add(late)
		late += time.Millisecond
	}
}

func TestCountBetween(t *testing.T) {
	t.Parallel()
	book, clock := newBook()
	e := book.Of(live)
	push := func(n int, late time.Duration) {
		var l Lateness
		for range n {
			l.Add(late)
		}
		e.Took(Push{Events: int64(n), Lateness: &l})
	}
	push(7, time.Second)
	from := clock.Time
	all := e.Count(from, time.Time{})
	assert.Zero(t, all.Events())
	clock.pass(10 * time.Minute)
	push(5, time.Second)
	push(3, time.Hour)
	assert.EqualValues(t, 5, all.Events(), "three happened before")
	all.Set(from, clock.Time)
	second := e.Count(clock.Time, time.Time{})
	clock.pass(10 * time.Minute)
	push(11, time.Minute)
	push(13, 15*time.Minute)
	assert.EqualValues(t, 18, all.Events(), "eleven happened after")
	assert.EqualValues(t, 11, second.Events())
	all.Stop()
	push(9, 15*time.Minute)
	assert.EqualValues(t, 18, all.Events())
}

// The ages of the newest events show a clock that is wrong, and its mending.
func TestTheSendersClock(t *testing.T) {
	t.Parallel()
	book, clock := newBook()
	e := book.Of(live)
	push := func(age time.Duration) {
		clock.pass(time.Second)
		e.Took(Push{Events: 1, Newest: clock.Add(-age).UnixNano()})
	}
	assert.Zero(t, e.Snapshot().Clock)
	e.Took(Push{Events: 1, Newest: 1})
	assert.Zero(t, e.Snapshot().Clock, "1970 is no time")
	for range 300 {
		push(30 * time.Minute)
	}
	assert.Equal(t, Clock{ClockSamples, 30 * time.Minute, 30 * time.Minute, 30 * time.Minute, 30 * time.Minute}, e.Snapshot().Clock)
	push(-2 * time.Hour)
	assert.Equal(t, Clock{ClockSamples, -2 * time.Hour, 30 * time.Minute, 30 * time.Minute, 30 * time.Minute}, e.Snapshot().Clock)
	push(-50 * 365 * 24 * time.Hour)
	assert.Equal(t, -50*365*24*time.Hour, e.Snapshot().Clock.Least, "the worst clocks are told of, too")
	for range 160 {
		push(time.Second)
	}
	assert.Equal(t, Clock{ClockSamples, time.Second, time.Second, time.Second, time.Second}, e.Snapshot().Clock)
}

// An event of 1970 has no time. Some of them leave the lateness of the others as it is.
func TestEventsOf1970(t *testing.T) {
	t.Parallel()
	book, clock := newBook()
	l := &Lateness{}
	for range 100 {
		l.Add(time.Duration(clock.UnixNano()))
	}
	book.Of(live).Took(Push{Events: 100, Newest: 1, Lateness: l})
	s := book.Of(live).Snapshot()
	assert.Zero(t, s.LatenessSum)
	assert.True(t, math.IsNaN(s.Lateness[1]))
	l.Add(2 * time.Second)
	book.Of(live).Took(Push{Events: 101, Newest: 1, Lateness: l})
	s = book.Of(live).Snapshot()
	assert.InDelta(t, 2, s.LatenessSum, 0)
	assert.InDelta(t, 2, s.Lateness[1], .5)
}
