package journal

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
)

// mark is a place in the log: after the record at pos, or at the end of a gap.
type mark struct {
	pos    store.Pos
	sum    uint64    // the record's checksum; 0 at the end of a gap
	events uint64    // how many events the log ever had up to here
	at     time.Time // when the record was committed
}

// keyOf is the key of a record: the number of events that the log ever had, with the
// record's own. So the number of events between two records is known without reading those
// between them. Where several relays append to the log, the key names the writer as well, and
// the number leaves out what others were appending at the same moment. Once environments were
// moved between logs, it names the number of the layout, too.
func keyOf(events uint64, writer string, layout uint64) string {
	key := strconv.FormatUint(events, 10)
	if writer != "" {
		key += "/" + writer
	}
	if layout > 0 {
		key += "/" + strconv.FormatUint(layout, 10)
	}
	return key
}

// keyIn reads the key of a record. Without a writer, or a layout, that is zero.
func keyIn(r *store.Record) (events uint64, writer string, layout uint64) {
	count, rest, _ := strings.Cut(r.Key, "/")
	events, err := strconv.ParseUint(count, 10, 64)
	if err != nil {
		events = record.Count(r.Data) // no version of ours wrote it
	}
	writer, number, _ := strings.Cut(rest, "/")
	layout, _ = strconv.ParseUint(number, 10, 64)
	return events, writer, layout
}

// markOf is the place after a record.
func markOf(r *store.Record) mark {
	events, _, _ := keyIn(r)
	return mark{pos: r.Pos, sum: record.Checksum(r.Data), events: events, at: r.Time}
}

// before is how many events the log ever had before a record.
func before(r *store.Record) uint64 {
	m := markOf(r)
	return m.events - min(m.events, record.Count(r.Data))
}

// between reads the records in [from, end), and the gaps between them. The last gap may go
// beyond end.
func between(ctx context.Context, events store.Log, from, end store.Pos) iter.Seq2[store.Item, error] {
	return func(yield func(store.Item, error) bool) {
		if from >= end {
			return
		}
		for item, err := range events.Read(ctx, from, false) {
			if err != nil {
				yield(item, fmt.Errorf("read the journal from record %d on: %w", from, err))
				return
			}
			last := lastOf(&item)
			if item.Record != nil && last >= end || !yield(item, nil) || last+1 >= end {
				return
			}
		}
	}
}

// lastOf is the last position of an item.
func lastOf(item *store.Item) store.Pos {
	if item.Gap != nil {
		return item.Gap.To
	}
	return item.Record.Pos
}

// recordFrom reads the first record in [from, end), or nil if there is none. Its data may
// be kept.
func recordFrom(ctx context.Context, events store.Log, from, end store.Pos) (*store.Record, error) {
	for item, err := range between(ctx, events, from, end) {
		if err != nil || item.Record != nil {
			return item.Record, err
		}
	}
	return nil, nil //nolint:nilnil // a missing record is no error
}

// newestMark is the place of the log's end. Where the newest record is damaged, the events
// are counted up to the newest readable one. That is sought by halves, since the gap after it may be long,
// and so may be what stands before it.
func (j *Journal) newestMark(ctx context.Context, state *store.State) (mark, error) {
	newest := mark{}
	from, to := state.First, state.End
	for at := to; from <= to; at = from + (to-from)/2 {
		r, err := recordFrom(ctx, j.events, at, state.End+1)
		switch {
		case err != nil:
			return newest, err
		case r == nil:
			to = at - 1
		default:
			newest, from = markOf(r), r.Pos+1
		}
	}
	newest.pos = state.End
	return newest, nil
}

// markBefore is the place before the first record from a position on.
func (j *Journal) markBefore(ctx context.Context, from store.Pos) (mark, error) {
	m := mark{pos: from - 1}
	r, err := recordFrom(ctx, j.events, from, math.MaxUint64)
	if err != nil {
		return m, err
	}
	if r == nil {
		m.events = j.end.get().events
		return m, nil
	}
	m.events = before(r)
	return m, nil
}

// end is the newest place of the log that this process knows.
type end struct {
	mu sync.Mutex
	m  mark // guarded by mu
}

func (e *end) get() mark {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.m
}

// count adds the events of a record of another relay that stands before the newest known place.
func (e *end) count(pos store.Pos, events uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if pos < e.m.pos {
		e.m.events += events
	}
}

// reach notes a place, unless a later one is known.
func (e *end) reach(m mark) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m.pos > e.m.pos {
		e.m = m
	}
}
