package journal

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// backlog tells how many events stand behind a record, and when a record was committed,
// without asking the server. It notes the commits of this process from the slowest sink on,
// each by itself: with too many for its memory, it notes every second, fourth and so on, and
// draws straight lines between them. It knows the records of earlier processes by samples:
// see Journal.sample.
type backlog struct {
	mu     sync.Mutex
	marks  []mark // by record; guarded by mu
	stride int    // commits to a mark; guarded by mu
	newest int    // commits in the newest mark; guarded by mu
}

// mark says how many events stand in the stream up to a record.
type mark struct {
	record uint64
	events int64 // counted from the last inherited record: earlier ones have negative numbers
	at     time.Time
}

// maxMarks bounds the memory for them.
const maxMarks = 4096

// begin notes the stream before this process appends: one event to a record, until samples
// say more.
func (b *backlog) begin(state jetstream.StreamState, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	end := mark{record: state.LastSeq, at: state.LastTime}
	b.stride, b.newest = 1, 1
	b.marks = []mark{{record: end.record - state.Msgs, events: -int64(state.Msgs), at: state.FirstTime}, end}
	if state.Msgs == 0 {
		b.marks = []mark{{record: end.record, at: now}}
	}
}

// inherit replaces the notes on the records of earlier processes. older is sorted, counts
// the events of its own run each, and ends with the last inherited record.
func (b *backlog) inherit(from uint64, older []mark) {
	if len(older) == 0 {
		return
	}
	events := int64(0)
	for i := len(older) - 1; i >= 0; i-- {
		older[i].events, events = events, events-older[i].events
	}
	older = slices.Insert(older, 0, mark{record: from - 1, events: events, at: older[0].at})
	b.mu.Lock()
	defer b.mu.Unlock()
	last := older[len(older)-1].record
	own := sort.Search(len(b.marks), func(i int) bool { return b.marks[i].record > last })
	b.marks = append(older, b.marks[own:]...)
}

// add notes a commit. Two in flight may end in any order. Any earlier record means that the
// stream went back: the notes from there on are no more. It reports whether the memory is
// full, and shorten is due.
func (b *backlog) add(record uint64, events int, now time.Time) (full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.marks[len(b.marks)-1]
	if record+1 < last.record || record == last.record {
		b.marks = b.marks[:max(1, b.search(record))]
		last = b.marks[len(b.marks)-1]
	}
	next := mark{max(record, last.record), last.events + int64(events), now}
	if len(b.marks) > 1 && (record < last.record || b.newest < b.stride) {
		b.marks[len(b.marks)-1] = next
		b.newest++
		return false
	}
	b.marks, b.newest = append(b.marks, next), 1
	return len(b.marks) >= maxMarks
}

// shorten makes room: it forgets the marks acknowledged by every sink. If that is not
// enough, it forgets every second mark.
func (b *backlog) shorten(acked uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.search(acked + 1); known > 1 {
		b.marks = slices.Delete(b.marks, 0, known-1)
	}
	if len(b.marks) < maxMarks/2 {
		b.stride = 1
		return
	}
	kept := 1
	for i := 2; i < len(b.marks); i += 2 {
		b.marks[kept] = b.marks[i]
		kept++
	}
	if newest := b.marks[len(b.marks)-1]; b.marks[kept-1] != newest {
		b.marks[kept] = newest
		kept++
	}
	b.marks, b.stride = b.marks[:kept], 2*b.stride
}

// search finds the first mark at a record or behind it. mu is held.
func (b *backlog) search(record uint64) int {
	return sort.Search(len(b.marks), func(i int) bool { return b.marks[i].record >= record })
}

// behind is how many events stand behind the record acked, in a stream that ends with the
// record end, and when the oldest of them was committed. A record of another relay counts as
// one event.
func (b *backlog) behind(acked, end uint64, now time.Time) (events int64, oldest time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	newest := b.marks[len(b.marks)-1]
	if acked >= max(end, newest.record) {
		return 0, time.Time{}
	}
	if acked < newest.record {
		events = newest.events - b.at(acked).events
	}
	if known := max(acked, newest.record); end > known {
		events += int64(end - known)
	}
	if acked >= newest.record {
		return events, now
	}
	return max(1, events), b.at(acked + 1).at
}

// at is what is known of a record. mu is held.
func (b *backlog) at(record uint64) mark {
	i := b.search(record)
	switch {
	case i == len(b.marks):
		return b.marks[i-1]
	case i == 0 || b.marks[i].record == record:
		return b.marks[i]
	}
	from, to := b.marks[i-1], b.marks[i]
	share := float64(record-from.record) / float64(to.record-from.record)
	return mark{
		record: record,
		events: from.events + int64(share*float64(to.events-from.events)),
		at:     from.at.Add(time.Duration(share * float64(to.at.Sub(from.at)))),
	}
}

// Backlog is what a sink has not acknowledged.
type Backlog struct {
	// Events waiting; about, for events of before the start, and of other relays.
	Events int64
	// Oldest is when the first of them was committed; zero without any.
	Oldest time.Time
}

// Backlog counts the events behind the sink's newest acknowledged record. It asks no
// server. It returns false unless this process reads for the sink.
func (j *Journal) Backlog(sink string) (Backlog, bool) { return j.backlogUpTo(sink, 0) }

// backlogUpTo knows that the stream ends with the record end, or later.
func (j *Journal) backlogUpTo(sink string, end uint64) (Backlog, bool) {
	acked, reading := j.Positions.Reached(sink)
	if !reading {
		return Backlog{}, false
	}
	var b Backlog
	b.Events, b.Oldest = j.backlog.behind(acked, end, time.Now())
	return b, true
}

// committedEvents notes the events of a durable record.
func (j *Journal) committedEvents(record uint64, events int) {
	if !j.backlog.add(record, events, time.Now()) {
		return
	}
	acked := record
	for _, sink := range j.sinks {
		reached, reading := j.Positions.Reached(sink)
		if !reading {
			reached = 0 // nobody knows yet
		}
		acked = min(acked, reached)
	}
	j.backlog.shorten(acked)
}
