package disk

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Read implements [store.Log].
func (l *Log) Read(ctx context.Context, from store.Pos, follow bool) iter.Seq2[store.Item, error] {
	return l.read(ctx, reader{l: l, next: max(1, from)}, follow)
}

func (l *Log) read(ctx context.Context, start reader, follow bool) iter.Seq2[store.Item, error] {
	return func(yield func(store.Item, error) bool) {
		r := start
		defer r.close()
		for {
			l.mu.Lock()
			grown, closed := l.grown, l.closed
			l.mu.Unlock()
			if closed {
				yield(store.Item{}, store.ErrClosed)
				return
			}
			item, more := r.step()
			switch {
			case r.failed != nil:
				yield(store.Item{}, r.failed)
				return
			case more:
				if err := ctx.Err(); err != nil {
					yield(store.Item{}, err)
					return
				}
				if !yield(item, nil) {
					return
				}
			case !follow:
				return
			default:
				select {
				case <-grown:
				case <-ctx.Done():
					yield(store.Item{}, ctx.Err())
					return
				}
			}
		}
	}
}

// Seek implements [store.Log].
func (l *Log) Seek(ctx context.Context, t time.Time) (store.Pos, error) {
	l.mu.Lock()
	from, end, closed := l.first, l.end, l.closed
	for _, s := range l.segments {
		if s.base > from && !s.made.IsZero() && s.made.Before(t) {
			from = s.base
		}
	}
	l.mu.Unlock()
	if closed {
		return 0, store.ErrClosed
	}
	for item, err := range l.Read(ctx, from, false) {
		if err != nil {
			return 0, err
		}
		if item.Record != nil && !item.Record.Time.Before(t) {
			return item.Record.Pos, nil
		}
	}
	return end + 1, nil
}

// Scrub implements [store.Log]. Damaged marks and copies of headers are made again.
func (l *Log) Scrub(ctx context.Context) iter.Seq2[store.Gap, error] {
	return func(yield func(store.Gap, error) bool) {
		if !l.store.view {
			if err := l.mark.check(true); err != nil {
				yield(store.Gap{}, err)
				return
			}
		}
		p := pace{began: time.Now()}
		for item, err := range l.read(ctx, reader{l: l, next: 1, scrub: true}, false) {
			if err == nil && item.Record != nil && !l.store.view {
				p.take(ctx, len(item.Record.Data))
			}
			if err == nil && (item.Gap == nil || item.Gap.Why == store.Trimmed) {
				continue
			}
			gap := store.Gap{}
			if err == nil {
				gap = *item.Gap
			}
			if !yield(gap, err) {
				return
			}
		}
	}
}

// reader reads one position after the other.
type reader struct {
	l     *Log
	next  store.Pos // the position that comes next
	scrub bool      // read from the disk, and not from memory

	segment segment // that w reads; its file is 0 without
	w       window
	offset  int64 // where the next record should stand
	size    int64 // of its file; 0 until it is asked for
	current store.Record
	failed  error // why a file that is there cannot be opened now
}

func (r *reader) close() {
	if r.segment.file != 0 {
		_ = r.w.f.Close() // it was only read
		r.segment.file = 0
	}
}

// span is the part of a segment that a reader may see.
type span struct {
	segment
	last store.Pos // its last confirmed position
	end  int64     // the offset where its confirmed records end; 0 if that is not known
}

// look says where the next position stands. found is false at the end of the log. Without
// a segment, the gap before the next one is returned.
func (r *reader) look() (at span, gap *store.Gap, found bool) {
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.next < l.first {
		return span{}, &store.Gap{From: r.next, To: l.first - 1, Why: store.Trimmed}, true
	}
	if r.next > l.end {
		return span{}, nil, false
	}
	i := len(l.segments)
	for i > 0 && l.segments[i-1].base > r.next {
		i--
	}
	if i == 0 { // the oldest files are missing
		to := l.end
		if len(l.segments) > 0 {
			to = min(to, l.segments[0].base-1)
		}
		return span{}, lostGap(r.next, to, l.doubtful), true
	}
	at = span{segment: l.segments[i-1], last: l.end, end: l.reached}
	if i < len(l.segments) {
		at.last, at.end = min(l.end, l.segments[i].base-1), at.segment.end
	}
	return at, nil, true
}

// step returns the item of the next position. more is false at the end of the log.
func (r *reader) step() (item store.Item, more bool) {
	for {
		at, gap, found := r.look()
		if !found {
			return store.Item{}, false
		}
		if gap == nil {
			if record := r.record(&at, &gap); record != nil {
				r.next = record.Pos + 1
				return store.Item{Record: record}, true
			}
		}
		if r.failed != nil {
			return store.Item{}, false
		}
		if gap == nil {
			continue // the segment was trimmed meanwhile
		}
		r.next = gap.To + 1
		return store.Item{Gap: gap}, true
	}
}

// record reads the next position in a segment. It returns nil and a gap for damage, and
// neither if the segment is no longer there.
func (r *reader) record(at *span, gap **store.Gap) *store.Record {
	if r.segment.file != at.file {
		if !r.open(at) {
			if r.failed != nil {
				return nil
			}
			if r.l.store.view {
				return r.again(at, gap)
			}
			if now, _, _ := r.look(); now.file == at.file {
				*gap = r.lost(at, at.last, "")
			}
			return nil
		}
	}
	r.enter(at)
	for {
		h, ok := r.w.head(r.offset, at.seed)
		switch {
		case !ok || h.pos > at.last || r.offset+h.size() > at.end:
			if *gap = r.search(at); *gap != nil {
				return nil
			}
		case h.pos > r.next:
			*gap = r.lost(at, h.pos-1, "")
			return nil
		default:
			offset := r.offset
			r.offset += h.size()
			if h.pos < r.next {
				continue
			}
			if r.w.record(offset, &h, at.seed, &r.current) {
				return &r.current
			}
			*gap = r.lost(at, r.next, r.l.keep(r.w.f, at.base, offset, r.offset))
			return nil
		}
	}
}

// enter makes the segment ready to be read at the next position.
func (r *reader) enter(at *span) {
	if at.end == 0 {
		if r.size == 0 {
			r.size, _ = r.w.f.Size() // it grows no more
		}
		at.end = r.size
	}
	r.w.limit = at.end
	if r.offset == 0 {
		r.offset = r.w.seek(at, r.next)
	}
}

// again looks at the files of a [View] as they are now, since one of them was removed.
func (r *reader) again(at *span, gap **store.Gap) *store.Record {
	now, err := r.l.store.look(r.l.name)
	if err != nil {
		*gap = r.lost(at, at.last, "")
		return nil
	}
	now.end = min(now.end, r.l.end)
	r.l = now
	return nil
}

// search finds the next record after damage. It returns the gap up to it, or nil where the
// reader has not yet come to the position that it looks for.
func (r *reader) search(at *span) *store.Gap {
	from := r.offset
	found, h, ok := r.w.find(from, at.end, at.seed, 1, at.last)
	if !ok {
		r.offset = at.end
		return r.lost(at, at.last, r.l.keep(r.w.f, at.base, from, at.end))
	}
	r.offset = found
	if h.pos <= r.next {
		return nil
	}
	return r.lost(at, h.pos-1, r.l.keep(r.w.f, at.base, from, found))
}

func (r *reader) lost(at *span, to store.Pos, kept string) *store.Gap {
	gap := lostGap(r.next, to, at.doubtful)
	gap.Kept = kept
	return gap
}

// lostGap is the gap of lost positions that begins with from: up to the first doubtful one, or
// of doubtful ones only.
func lostGap(from, to, doubtful store.Pos) *store.Gap {
	switch {
	case doubtful > from:
		to = min(to, doubtful-1)
	case doubtful > 0:
		return &store.Gap{From: from, To: to, Why: store.Doubtful}
	}
	return &store.Gap{From: from, To: to, Why: store.Damaged}
}

// open opens the file of a segment to read it, so that events are delivered from a filesystem that became
// read-only. Where that fails and says nothing about the file, failed
// says why: to take it for damage would lose sound records.
func (r *reader) open(at *span) bool {
	r.close()
	how := toRead
	if r.scrub { // a header may have to be written again
		how = toWrite
	}
	f, err := r.l.store.fs.Open(r.l.path(at.base), how)
	if isPassing(err) {
		r.failed = fmt.Errorf("read the log %s: %w", r.l.name, err)
	}
	if err != nil {
		return false
	}
	if r.scrub {
		f.Forget(0)
		if _, err := r.l.store.header(f, r.l.path(at.base)); err != nil {
			r.l.log.Warn("a segment's header cannot be read", "log", r.l.name, "error", err)
		}
	}
	r.segment, r.offset, r.size = at.segment, 0, 0
	r.w.f = f
	r.w.forget()
	return true
}
