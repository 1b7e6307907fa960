package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// ErrReadOnly means that somebody tried to write to a view of a store.
var ErrReadOnly = errors.New("the store was opened for reading only")

// View opens the store in a folder for reading only. It takes no lock, changes nothing, and
// works while another process has the store open: what that process has not confirmed is
// not there, and what it trims meanwhile is trimmed. The table is as it was when the view was
// opened, and a log as it was when [Store.Log] was called. Nobody can follow it.
//
// Without a running process, a log is shown as the next start would find it. The configuration
// needs no logger.
func View(cfg Config) (*Store, error) {
	cfg.Had = nil // what was lost without a trace is for a start to name
	s := &Store{
		fs: osFS{readOnly: true}, view: true, cfg: cfg, boot: bootID(), log: cfg.Logger,
	}
	if s.log == nil {
		s.log = discard
	}
	var err error
	if s.table, err = openTable(s); err != nil {
		return nil, fmt.Errorf("read the store's table: %w", err)
	}
	s.table.why = ErrReadOnly
	return s, s.table.lazy.release()
}

// look finds out what the files of a log hold now, for a view. A log that is not there is an
// fs.ErrNotExist.
func (s *Store) look(name string) (*Log, error) {
	for {
		if l, err := s.lookOnce(name); !errors.Is(err, errOvertaken) {
			return l, err
		}
	}
}

// errOvertaken means that the log was made, or that all segments that were found have been trimmed, meanwhile.
var errOvertaken = errors.New("the log was made or trimmed meanwhile")

func (s *Store) lookOnce(name string) (*Log, error) {
	l := newLog(s, name, store.Options{})
	l.why = ErrReadOnly
	r := &recovery{Log: l}
	err := r.find()
	if err == nil && len(r.found) == 0 && r.known == nil {
		err = fs.ErrNotExist
	}
	if err == nil {
		err = r.goOn()
	}
	if r.mark != nil {
		err = errors.Join(err, r.mark.release())
	}
	if err != nil {
		return nil, fmt.Errorf("read the log %s: %w", l.dir, err)
	}
	return l, nil
}

// showTail finds the end of the newest segment, as a start does. An exact end mark is the word of the
// process that has the store open, if there is one: what stands after it does not count yet.
func (r *recovery) showTail(s *onDisk) (clean bool, err error) {
	f, err := r.store.fs.Open(r.path(s.base), toWrite)
	if isMissing(err) {
		return false, errOvertaken
	}
	if err != nil {
		return false, err
	}
	t := r.tailOf(s, f)
	if !r.exact || !durable.IsLocked(r.store.cfg.Dir) || r.known.Base >= s.base && t.offset != r.known.Offset {
		t.run()
		sure := max(t.synced, t.confirmed)
		r.compare(t)
		if !r.exact && t.doubt() {
			r.segments[len(r.segments)-1].doubtful, t.offset = sure+1, t.length
		}
	}
	r.end, r.reached = t.end, t.offset
	return true, f.Close()
}

// discard is the logger of whoever wants to hear nothing.
var discard = slog.New(slog.DiscardHandler)
