package disk

import (
	"bytes"
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

// readTail reads the newest segment from where the mark says that it is durable, and makes
// it ready to go on. clean is false if another segment has to begin.
func (r *recovery) readTail(s *onDisk) (clean bool, err error) {
	if r.f, err = r.store.fs.Open(r.path(s.base), toWrite); err != nil {
		return false, err
	}
	t := r.tailOf(s, r.f)
	end, offset := t.end, t.offset
	t.run()
	r.newest = t.newest
	r.compare(t)
	sure := max(t.synced, t.confirmed)
	if !r.rebooted && !r.settle(t, offset) && r.exact {
		t.end, t.offset = end, offset // nothing later was acknowledged
	} else if clean = s.header != nil && !t.holes && t.end >= sure; r.exact && clean {
		clean = r.cutTail(t)
	}
	if !r.exact {
		clean = !t.doubt() && clean
	}
	if !clean { // what stands there is kept, as far as it is missing
		t.offset = t.w.filled(t.offset, t.length)
		if !r.exact {
			r.segments[len(r.segments)-1].doubtful = sure + 1
		}
	}
	r.end, r.offset, r.reached = t.end, t.offset, t.offset
	r.size = max(s.length, t.offset, r.segmentSize())
	return clean, nil
}

// compare holds the mark against the records. Where one of them was written when more was durable than
// an exact mark says, an older mark was put back.
func (r *recovery) compare(t *tail) {
	if r.exact && t.confirmed > t.synced {
		r.exact, r.older = false, true
	}
}

// tailOf is the part of the newest segment from where the mark says that it is durable. Where that is no
// more than a lower bound it is all of it, since a page that was lost there shows in what stood before.
func (r *recovery) tailOf(s *onDisk, f file) *tail {
	t := &tail{w: &window{f: f}, seed: s.seed, end: s.base - 1, offset: dataStart, length: s.length, newest: s.made}
	if r.exact && r.known.Base == s.base && r.known.Offset <= s.length {
		t.end, t.offset, t.written = r.known.End, r.known.Offset, true
	}
	if r.known != nil {
		t.synced = r.known.End
	}
	return t
}

// settle makes the records after the mark durable before anything believes them: they may
// stand in the kernel's memory only, and the kernel may take them for written. It reports
// whether the disk took them.
//
// A crash in it leaves the same records, and the next start does the same.
func (r *recovery) settle(t *tail, start int64) bool {
	if start == t.offset {
		return true
	}
	for at := start; at < t.offset; {
		b := bytes.Clone(t.w.bytes(at, int(min(windowSize, t.offset-at))))
		if _, err := r.f.WriteAt(b, at); err != nil {
			return false
		}
		at += int64(len(b))
	}
	return r.f.Sync() == nil
}

// cutTail removes what is no record from the end of the newest segment: a write that was
// torn by a kill. It returns false if the segment cannot go on.
func (r *recovery) cutTail(t *tail) bool {
	return t.w.filled(t.offset, t.length) == t.offset ||
		r.cut(r.f, t.offset, max(t.length, r.segmentSize())) == nil && r.f.Sync() == nil
}
