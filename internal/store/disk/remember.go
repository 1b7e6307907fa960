package disk

import (
	"bytes"
	"context"
	"slices"

	"github.com/auditrelay/auditrelay/internal/store"
)

// The table remembers the end mark of each log, as a lazy value under this prefix. So a log
// whose folder was lost, or exchanged with another one, goes on under the same id after the
// positions that it had, and its readers are told that those are lost.
const logPrefix = "log/"

// lostMargin is how many positions after the remembered end are passed over when files are
// lost. The table is told the end of a busy log every second, and that of any other log with
// each append, but without a sync: after a power cut it may know less.
const lostMargin = 1 << 16

// remembered is what the table knows of a log, or nil. Where it is exact, no later record was
// ever confirmed.
func (s *Store) remembered(name string) (m *endMark, exact bool) {
	if s.table == nil {
		return nil, false // only places are looked for
	}
	s.table.mu.Lock()
	value := s.table.entries[logPrefix+name].data
	s.table.mu.Unlock()
	if len(value) != markLength+1 {
		return nil, false
	}
	m = parseMark(value[:markLength])
	return m, value[markLength] == 1 && m.boot == s.boot && s.boot != [16]byte{}
}

// introduce makes the table remember a log that was opened. Of one that it does not know it
// is told durably.
//
// A crash before that leaves the log's own files, and the next start does the same. A crash
// after it leaves a value that is older than the log's end, by less than the margin.
func (l *Log) introduce() error {
	known, _ := l.store.remembered(l.name)
	err := l.remember(context.Background())
	if err != nil || known != nil && known.log == l.id {
		return err
	}
	return l.store.table.Sync(context.Background())
}

// remember tells the table where the log ends: never more than is durable, and never less
// than it knew under the same id.
func (l *Log) remember(ctx context.Context) error {
	value := l.mark.value()
	now := parseMark(value)
	was, _ := l.store.remembered(l.name)
	if now == nil || was != nil && was.log == now.log && (was.end > now.end || bytes.Equal(value, was.encode(nil))) {
		return nil
	}
	always := byte(1)
	if l.opts.Allocate {
		always = 0
	}
	return l.store.table.PutLazy(ctx, logPrefix+l.name, append(value, always), store.If{})
}

// passLost moves the end after everything that the table remembers, if the files hold less, and
// after the margin for a log that neither knows and that the store had.
// The positions in between are a gap, and those of the margin a doubtful one. It reports
// whether there are any.
func (r *recovery) passLost() bool {
	if r.remembered == nil && r.bare && slices.Contains(r.store.had, r.name) {
		r.remembered = &endMark{} // the table is lost, too
	}
	if r.remembered == nil || !r.bare && r.remembered.end <= r.end {
		return false
	}
	doubtful := max(r.end, r.remembered.end) + 1
	if n := len(r.segments); n > 0 {
		r.segments[n-1].doubtful = doubtful
	} else {
		r.doubtful = doubtful
	}
	r.end = doubtful - 1
	if !r.rememberedExactly {
		r.end += lostMargin
	}
	if r.remembered.newest.After(r.newest) {
		r.newest = r.remembered.newest
	}
	r.log.Error("a log's files do not hold all that it had; it goes on after the lost positions",
		"log", r.name, "folder", r.dir, "remembered_end", uint64(r.remembered.end), "goes_on_at", uint64(r.end+1))
	return true
}
