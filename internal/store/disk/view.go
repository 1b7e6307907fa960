package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// ErrReadOnly means that somebody tried to write to a view of a store.
var ErrReadOnly = errors.New("the store was opened for reading only")

// View opens the store in a folder for reading only. It takes no lock, changes nothing, and
// works while another process has the store open: what that process has not confirmed is
// not there, and what it trims meanwhile is trimmed. Each call sees the log as it is then,
// and the table as it was when the view was opened.
//
// Without a running process, a log is shown as the next start would find it, except for
// records that were written but not confirmed. The configuration needs no logger.
func View(cfg Config) (store.Store, error) {
	if cfg.Logger == nil {
		cfg.Logger = discard
	}
	return view(cfg, osFS{readOnly: true}, bootID())
}

func view(cfg Config, under filesystem, boot [16]byte) (*viewed, error) {
	s := &Store{
		fs: readOnlyFS{under}, view: true, dir: cfg.Dir, salvage: cfg.Salvage, boot: boot, log: cfg.Logger,
	}
	var err error
	if s.table, err = openTable(s); err != nil {
		return nil, fmt.Errorf("read the store's table: %w", err)
	}
	return &viewed{s}, errors.Join(s.table.lazy.release(), s.table.durable.mark.release())
}

// viewed is a store that is only read.
type viewed struct{ store *Store }

func (v *viewed) Log(_ context.Context, name string, _ store.Options) (store.Log, error) {
	l := &viewedLog{v.store, name}
	_, err := l.load()
	return l, err
}

func (v *viewed) Table() store.Table { return viewedTable{v.store.table} }
func (v *viewed) Close() error       { return nil }

type viewedTable struct{ *Table }

func (viewedTable) Put(context.Context, string, []byte, store.If) (uint64, error) {
	return 0, ErrReadOnly
}
func (viewedTable) PutLazy(context.Context, string, []byte, store.If) error { return ErrReadOnly }
func (viewedTable) Sync(context.Context) error                              { return ErrReadOnly }

// viewedLog is a log that is only read. Each call looks at the files as they are then.
type viewedLog struct {
	store *Store
	name  string
}

// load finds out what the log's files hold. A log that is not there is an fs.ErrNotExist.
func (v *viewedLog) load() (*Log, error) {
	l := newLog(v.store, v.name, store.Options{})
	r := &recovery{Log: l}
	err := r.find()
	if err == nil && len(r.found) == 0 && r.known == nil && r.remembered == nil && r.from <= 1 {
		err = fs.ErrNotExist
	}
	if err == nil {
		err = r.show()
	}
	for _, s := range []*slots{r.mark, r.trimmed} {
		if s != nil {
			err = errors.Join(err, s.release())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the log %s: %w", filepath.Join(v.store.dir, v.name), err)
	}
	return l, nil
}

// show sets up what a reader needs, without changing a file.
func (r *recovery) show() error {
	for _, s := range r.found {
		r.segments = append(r.segments, s.segment)
	}
	r.first, r.end = r.from, r.from-1
	if n := len(r.found); n > 0 {
		if err := r.showTail(r.found[n-1]); err != nil {
			return err
		}
	}
	if r.known != nil {
		r.end = max(r.end, r.known.end)
	}
	r.passLost()
	return nil
}

// showTail finds the end of the newest segment, as a start does. An exact end mark is the word
// of a process that may be writing now, so that what stands after it does not count, unless
// the mark is an older one that was put back.
func (r *recovery) showTail(s *onDisk) error {
	f, err := r.store.fs.Open(r.path(s.base), false)
	if err != nil {
		return err
	}
	t := r.tailOf(s, f)
	if r.exact {
		newest := t.said()
		if r.remembered != nil {
			newest = max(newest, r.remembered.end)
		}
		r.exact = newest <= r.known.end || r.markReaches(newest)
	}
	if !r.exact || r.known.base >= s.base && t.offset != r.known.offset {
		t.run()
		if sure := max(t.synced, t.confirmed); !r.exact && r.doubt(t, sure) {
			r.segments[len(r.segments)-1].doubtful, t.offset = sure+1, t.length
		}
	}
	r.end, r.reached = t.end, t.offset
	return f.Close()
}

// markReaches reports whether the end mark, as it is now, says that a position is durable: then
// a process has gone on since the mark was read.
func (r *recovery) markReaches(pos store.Pos) bool {
	again, err := openSlots(r.store, r.mark.path, endPurpose(r.name))
	if err != nil {
		return false
	}
	now := parseMark(again.value())
	return now != nil && now.end >= pos && again.release() == nil
}

func (v *viewedLog) Append(context.Context, ...store.Draft) (store.Pos, error) {
	return 0, ErrReadOnly
}

func (v *viewedLog) AppendAt(context.Context, store.Pos, ...store.Draft) (store.Pos, error) {
	return 0, ErrReadOnly
}
func (v *viewedLog) Trim(context.Context, store.Pos) error { return ErrReadOnly }
func (v *viewedLog) MaxRecord() int                        { return 0 }

// Read implements [store.Log]. It does not follow.
func (v *viewedLog) Read(ctx context.Context, from store.Pos, follow bool) iter.Seq2[store.Item, error] {
	l, err := v.load()
	if follow && err == nil {
		err = fmt.Errorf("a log can be followed only where it is written: %w", ErrReadOnly)
	}
	if err != nil {
		return func(yield func(store.Item, error) bool) { yield(store.Item{}, err) }
	}
	return l.Read(ctx, from, false)
}

func (v *viewedLog) Seek(ctx context.Context, t time.Time) (store.Pos, error) {
	l, err := v.load()
	if err != nil {
		return 0, err
	}
	return l.Seek(ctx, t)
}

func (v *viewedLog) State(ctx context.Context) (store.State, error) {
	l, err := v.load()
	if err != nil {
		return store.State{}, err
	}
	return l.State(ctx)
}

func (v *viewedLog) Scrub(ctx context.Context) iter.Seq2[store.Gap, error] {
	l, err := v.load()
	if err != nil {
		return func(yield func(store.Gap, error) bool) { yield(store.Gap{}, err) }
	}
	return l.Scrub(ctx)
}

// readOnlyFS changes nothing. A file that would be made is read as an empty one.
type readOnlyFS struct{ filesystem }

func (r readOnlyFS) Open(path string, create bool) (file, error) {
	f, err := r.filesystem.Open(path, false)
	if create && isMissing(err) {
		return readOnlyFile{}, nil
	}
	return readOnlyFile{f}, err
}

func (readOnlyFS) MakeDir(string) error        { return ErrReadOnly }
func (readOnlyFS) Rename(string, string) error { return ErrReadOnly }
func (readOnlyFS) Remove(string) error         { return ErrReadOnly }
func (readOnlyFS) SyncDir(string) error        { return ErrReadOnly }

type readOnlyFile struct{ file }

func (f readOnlyFile) ReadAt(b []byte, at int64) (int, error) {
	if f.file == nil {
		return 0, io.EOF
	}
	return f.file.ReadAt(b, at)
}

func (f readOnlyFile) Size() (int64, error) {
	if f.file == nil {
		return 0, nil
	}
	return f.file.Size()
}

func (f readOnlyFile) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

func (readOnlyFile) WriteAt([]byte, int64) (int, error) { return 0, ErrReadOnly }
func (readOnlyFile) Truncate(int64) error               { return ErrReadOnly }
func (readOnlyFile) Allocate(int64) error               { return ErrReadOnly }
func (readOnlyFile) Sync() error                        { return ErrReadOnly }

// discard is the logger of whoever wants to hear nothing.
var discard = slog.New(slog.DiscardHandler)
