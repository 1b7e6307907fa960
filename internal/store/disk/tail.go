package disk

import (
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// tail walks over the records at the end of the newest segment.
type tail struct {
	w      *window
	seed   uint64
	end    store.Pos // the last position found
	offset int64     // where its record ends
	length int64
	seen   store.Pos // the last position in a header, whatever its body is
	headed int64     // where the last record with a header ends
	// confirmed is the largest position that was durable when one of the records was written.
	confirmed store.Pos
	newest    time.Time
	holes     bool // something between two records cannot be read
	record    store.Record
	// written is set if only one write can have followed the mark, without a power cut. A
	// kill leaves a prefix of it.
	written bool
	synced  store.Pos // what the mark says
}

// run looks for one whole record after the other. What lies between two of them is damage,
// and what lies after the last one is for the caller to judge.
func (t *tail) run() {
	for at := t.offset; ; {
		found, h, ok := t.next(at)
		if !ok {
			return
		}
		t.seen, t.headed, t.confirmed = max(t.seen, h.pos), found+h.size(), max(t.confirmed, h.confirmed)
		if !t.w.record(found, &h, t.seed, &t.record) {
			at = found + 1
			continue
		}
		t.holes = t.holes || found > t.offset || h.pos > t.end+1
		t.end, t.offset, t.newest = h.pos, found+h.size(), t.record.Time
		at = t.offset
	}
}

func (t *tail) next(at int64) (found int64, h head, ok bool) {
	if t.written {
		h, ok = t.w.head(at, t.seed)
		if !ok || h.confirmed <= t.synced {
			return at, h, ok && h.pos == t.end+1 && at+h.size() <= t.length
		}
		t.written = false
	}
	return t.w.find(at, t.length, t.seed, t.end+1, ^store.Pos(0))
}

// doubt takes what is no record at the end for records that somebody was perhaps told about: those that
// have a header, and as many as fit into what follows, up to the end of its last page, of which a part may
// be lost. It reports whether there is any. They stay, as a gap.
func (t *tail) doubt() bool {
	filled := t.w.filled(t.offset, t.length)
	if filled == t.offset {
		return false
	}
	from, smallest := max(t.offset, t.headed), frameSize(0, 0)
	to := (max(from, filled+headSize) + pageSize - 1) / pageSize * pageSize // a header may lack its end
	t.end = max(t.end, t.seen) + store.Pos((to-from+smallest-1)/smallest)
	return true
}
