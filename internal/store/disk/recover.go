package disk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// recovery finds out what a log's files hold, and where it goes on.
type recovery struct {
	*Log
	known *endMark // what the end mark says; nil without one
	told  told     // what the table says
	// rebooted is set if the machine was started again since the mark was written. Otherwise
	// the mark is exact: nothing later was acknowledged.
	rebooted, exact bool
	older           bool      // the mark is an earlier copy
	found           []*onDisk // the segments, oldest first
	from            store.Pos // the oldest position kept
	// bare is set if there is neither an end mark nor a segment that names the log.
	bare bool
}

// onDisk is a file that is named like a segment.
type onDisk struct {
	segment
	header *segmentHeader // nil if no copy of it can be read
	length int64
}

func newLog(s *Store, name string, opts store.Options) *Log {
	return &Log{
		store: s, name: name, dir: filepath.Join(s.cfg.Dir, name), opts: opts, log: s.log,
		turn: newTurn(), grown: make(chan struct{}),
	}
}

// openLog opens a log, or makes it.
func openLog(s *Store, name string, opts store.Options) (*Log, error) {
	l := newLog(s, name, opts)
	if err := s.fs.MakeDir(l.dir); err != nil && !isFull(err) { // the first segment will have it made
		return nil, fmt.Errorf("open the log %s: %w", name, err)
	}
	r := &recovery{Log: l}
	err := r.find()
	if err == nil {
		err = r.goOn()
	}
	if err != nil {
		return nil, fmt.Errorf("open the log %s: %w", name, err)
	}
	return l, nil
}

// find finds the log's segments. The end mark is read before them, and by a [View] once more after
// them, for the first position: so another process that appends and trims meanwhile never makes a
// segment look lost.
func (r *recovery) find() error {
	if err := r.readEnd(); err != nil {
		return err
	}
	if err := r.readSegments(); err != nil {
		return err
	}
	if r.store.view {
		switch now := r.store.endMark(r.name); {
		case now != nil && r.known == nil: // the log was made meanwhile
			return errOvertaken
		case now != nil:
			r.from = max(r.from, now.First)
		}
	}
	r.told = r.Log.told()
	r.identify()
	return r.order()
}

func (r *recovery) readEnd() error {
	mark, err := openSlots(r.store, r.store.endPath(r.name), endPurpose(r.name))
	if err != nil {
		return err
	}
	r.mark, r.known = mark, parseMark(mark.value())
	if r.known != nil {
		r.rebooted = r.known.Boot != r.store.boot && r.store.boot != [16]byte{}
		r.exact = r.known.Boot == r.store.boot && r.store.boot != [16]byte{} && !r.mark.damaged
		r.from = r.known.First
	}
	return nil
}

// readSegments reads the headers of all files that are named like a segment.
func (r *recovery) readSegments() error {
	names, err := r.store.fs.Names(r.dir)
	if err != nil {
		return err
	}
	var bases []store.Pos
	for _, name := range names {
		if base, ok := baseOf(name); ok {
			bases = append(bases, base)
		}
	}
	found := make([]*onDisk, len(bases))
	err = durable.SideBySide(len(bases), func(i int) (err error) { // a disk gives many at a time
		found[i], err = r.readSegment(bases[i])
		return err
	})
	for _, s := range found {
		if s != nil {
			r.files++
			s.file = r.files
			r.found = append(r.found, s)
		}
	}
	return err
}

// readSegment reads the header of a file that is named like a segment, and returns nil if
// there is no such file any more.
func (r *recovery) readSegment(base store.Pos) (*onDisk, error) {
	f, err := r.store.fs.Open(r.path(base), toWrite)
	if isPassing(err) {
		return nil, err // whoever removes the cause gets everything back
	}
	if isMissing(err) {
		return nil, nil // it was trimmed since
	}
	if err != nil {
		r.log.Warn("a segment cannot be opened; what it held is lost", "log", r.name, "file", segmentName(base), "error", err)
		return nil, nil
	}
	header, err := r.store.header(f, r.path(base))
	length, sizeErr := f.Size()
	if err := errors.Join(err, sizeErr, f.Close()); err != nil {
		return nil, err
	}
	return &onDisk{segment: segment{base: base, size: length}, header: header, length: length}, nil
}

// identify chooses the log's id and secret: the mark's, or those of the newest segment whose id the table
// knows, or of the newest one, or the id that was asked for, or the one that the table knows, or new ones.
// A segment that names another log says nothing, and neither does a mark if a segment and the table agree
// on another id.
func (r *recovery) identify() {
	if r.id = r.opts.ID.Log; r.id == [16]byte{} {
		r.id = r.told.Log
	}
	if r.id == [16]byte{} {
		_, _ = rand.Read(r.id[:]) // it never fails
	}
	_, _ = rand.Read(r.secret[:])
	r.bare = true
	for _, s := range r.found {
		agreed := !r.bare && r.id == r.told.Log
		if s.header != nil && s.header.Base == s.base && s.header.of(r.name) && (!agreed || s.header.Log == r.id) {
			r.id, r.secret, r.bare = s.header.Log, s.header.Secret, false
		}
	}
	if r.known != nil && r.known.Log != r.told.Log && !r.bare && r.id == r.told.Log {
		r.log.Error("an end mark of another log stands in the place of this one's", "log", r.name, "file", r.mark.path)
		r.known, r.exact, r.rebooted, r.from = nil, false, false, 0
	}
	if r.known != nil {
		r.id, r.secret, r.bare = r.known.Log, r.known.Secret, false
	}
	if r.told.Log != r.id {
		r.told = told{}
	}
	for _, s := range r.found {
		s.seed = seedOf(r.secret, r.id, s.base)
		if s.header != nil && (s.header.Log != r.id || s.header.Base != s.base || !s.header.of(r.name)) {
			s.header = nil // it is a copy of another file
		}
		if s.header != nil {
			s.made = time.Unix(0, s.header.Made)
		}
	}
}

// order removes the files that are not part of the log: those that were trimmed, and
// strays. A segment's header names the one before it, so whatever stands between the two
// is a stray.
func (r *recovery) order() error {
	var kept []*onDisk
	before, known := store.Pos(0), false
	for i := len(r.found) - 1; i >= 0; i-- {
		s := r.found[i]
		stray := known && s.base > before || s.header == nil && !r.holdsRecords(s)
		if stray {
			r.setAside(segmentName(s.base))
			continue
		}
		if s.header != nil {
			before, known = s.header.Before, true
		}
		kept = append(kept, s)
	}
	slices.Reverse(kept)
	for i := range len(kept) - 1 {
		if next := kept[i+1].header; next != nil && next.Before == kept[i].base {
			kept[i].end, kept[i].doubtful = next.BeforeEnd, next.Doubtful
		}
	}
	r.found = kept
	if len(kept) > 0 && kept[0].header != nil && kept[0].header.Before == 0 {
		r.doubtful = kept[0].header.Doubtful
	}
	return r.dropTrimmed()
}

// holdsRecords reports whether a file without a header has records that belong under its
// name, or must have had some.
func (r *recovery) holdsRecords(s *onDisk) bool {
	if r.known != nil && r.known.Base == s.base {
		return true
	}
	f, err := r.store.fs.Open(r.path(s.base), toRead)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was only read
	w := &window{f: f}
	_, _, found := w.find(0, s.length, s.seed, s.base, ^store.Pos(0))
	return found
}

// dropTrimmed removes the segments that were trimmed before a crash.
func (r *recovery) dropTrimmed() error {
	r.from = max(r.from, r.told.First)
	n := 0
	for n < len(r.found)-1 && r.found[n+1].base <= r.from {
		if !r.store.view {
			if err := r.store.fs.Remove(r.path(r.found[n].base)); err != nil {
				return err
			}
		}
		n++
	}
	r.found = r.found[n:]
	if r.from == 0 { // nobody knows what was trimmed, and what was lost
		r.from = 1
		if len(r.found) > 0 && (r.found[0].header == nil || r.found[0].header.Before > 0) {
			r.doubtful = 1
		}
	}
	return nil
}

// goOn finds the end, and continues the newest segment or begins another one. A view only looks.
func (r *recovery) goOn() error {
	for _, s := range r.found {
		r.segments = append(r.segments, s.segment)
	}
	r.first, r.end = r.from, r.from-1
	clean, read := false, r.readTail
	if r.store.view {
		read = r.showTail
	}
	if n := len(r.found); n > 0 {
		var err error
		if clean, err = read(r.found[n-1]); err != nil {
			return err
		}
	}
	if r.known != nil {
		if newest := time.Unix(0, r.known.Newest); newest.After(r.newest) {
			r.newest = newest
		}
	}
	clean = !r.passLost() && clean
	if r.store.view {
		return nil
	}
	if !clean {
		if err := r.roll(r.end+1, r.segmentSize()); err != nil {
			r.wait(err)
			return nil
		}
	}
	if err := r.advance(r.end, r.segments[len(r.segments)-1].base, r.offset); err != nil {
		r.wait(err)
	}
	return nil
}

// passLost moves the end after everything that the mark names, if the files hold less: what nobody can
// read is lost, and its positions stay taken. Where the mark is only a lower bound, or a segment is gone
// that only the table knows, and where both are lost, or older than what the files hold, of a log with
// records, or of one that the store had, it moves the end by a margin, too. Those positions are a doubtful gap. It reports whether there are any.
func (r *recovery) passLost() bool {
	end, margin, newest := r.end, store.Pos(lostMargin), store.Pos(0)
	if n := len(r.found); n > 0 {
		newest = r.found[n-1].base
	}
	switch {
	case r.known != nil && (r.known.End > r.end || len(r.found) == 0 && !r.exact):
		end = max(end, r.known.End)
	case !r.exact && newest < r.told.Base:
		end, margin = max(end, r.told.Base-1), maxSegment/(headSize+sumSize) // as many as a segment can hold
	case (r.known == nil || r.older) && r.told.Base < newest && r.end > 0 && !r.bare: // perhaps newer segments are lost
		margin = maxSegment / (headSize + sumSize)
	case !r.bare || !slices.Contains(r.store.cfg.Had, r.name):
		return false
	}
	if n := len(r.segments); n > 0 {
		r.segments[n-1].doubtful = end + 1
	} else {
		r.doubtful = end + 1
	}
	if r.end = end; !r.exact {
		r.end += margin
	}
	r.log.Error("a log had, or may have had, more than its files hold; it goes on after the lost positions",
		"log", r.name, "folder", r.dir, "known_end", uint64(end), "goes_on_at", uint64(r.end+1))
	return true
}

// wait has the next append begin another segment, since there is no room for one now, or for
// the mark.
func (r *recovery) wait(cause error) {
	r.log.Warn("a log cannot go on for now", "log", r.name, "error", cause)
	r.poisoned = true
}
