package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// syncInterval is how often what is written without a sync is synced: the end marks, and
// the lazy values of the table.
const syncInterval = time.Second

// scrubInterval is how often the table is read back from the disk.
const scrubInterval = time.Hour

// Store is a folder of logs with a table. One process at a time has it open.
type Store struct {
	cfg     Config
	fs      filesystem
	boot    [16]byte
	log     *slog.Logger
	table   *Table
	guard   *os.File // holds the lock; nil in tests of a filesystem without locks
	view    bool     // nothing is changed
	stop    context.CancelFunc
	stopped chan struct{}

	closing  sync.Once
	closeErr error // of Close; guarded by closing

	refused atomic.Bool // a write found no room, and none has been tried since

	salvaging sync.Mutex
	kept      int64 // the bytes in the salvage folder; 0 until they are counted; guarded by salvaging

	mu       sync.Mutex
	logs     map[string]*Log // guarded by mu
	closed   bool            // guarded by mu
	scrubbed time.Time       // when the table was; used by keepSyncing
	syncs    retry.Failure   // used by keepSyncing
}

var _ store.Store = (*Store)(nil)

// Config says where a store is and who writes to it.
type Config struct {
	// Dir is the store's folder. It is made if it is missing.
	Dir string
	// Salvage is the folder for bytes that could not be read as records.
	Salvage string
	// Writer is the version of the program, in at most 64 bytes. It stands in every file,
	// so that an older program can say what wrote a file that it does not know.
	Writer string
	// Had names logs that the store is known to have had. One without any trace in the store
	// was lost, with the table: it goes on after a gap, since nobody knows its positions.
	Had    []string
	Logger *slog.Logger
}

// Open opens the store in a folder, and locks it. If another process has it open, the
// error is a [durable.LockedError].
func Open(cfg Config) (*Store, error) {
	fs := osFS{aside: cfg.Salvage, log: cfg.Logger}
	if err := fs.MakeDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	guard, err := durable.Lock(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the store %s: %w", cfg.Dir, err)
	}
	s, err := prepare(cfg, fs, bootID())
	if err != nil {
		return nil, errors.Join(err, guard.Close())
	}
	s.guard = guard // before the syncing begins, which looks at it
	s.begin()
	return s, nil
}

func prepare(cfg Config, fs filesystem, boot [16]byte) (*Store, error) {
	s := &Store{
		cfg: cfg, fs: fs, boot: boot, log: cfg.Logger,
		stopped: make(chan struct{}), logs: map[string]*Log{}, scrubbed: time.Now(),
	}
	var err error
	if s.table, err = openTable(s); err != nil {
		return nil, fmt.Errorf("open the store's table: %w", err)
	}
	return s, nil
}

// begin has what is written without a sync synced now and then.
func (s *Store) begin() {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.keepSyncing(ctx)
}

// Log implements [store.Store].
func (s *Store) Log(_ context.Context, name string, opts store.Options) (store.Log, error) {
	if s.view {
		return s.look(name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.ErrClosed
	}
	if l := s.logs[name]; l != nil {
		return l, nil
	}
	l, err := openLog(s, name, opts)
	if err != nil {
		return nil, err
	}
	s.logs[name] = l
	return l, nil
}

// Table implements [store.Store].
func (s *Store) Table() store.Table { return s.table }

// Err returns an ErrGone if files of the store were removed or replaced while it was open,
// so that it takes nothing until it is opened again. That is noticed within seconds.
func (s *Store) Err() error {
	for _, l := range s.opened() {
		if err := l.err(); err != nil {
			return err
		}
	}
	return s.table.err()
}

// isFull reports whether an error says that there is no room, and remembers that for [Store.Full].
func (s *Store) isFull(err error) bool {
	full := isFull(err)
	if full {
		s.refused.Store(true)
	}
	return full
}

// fullProbe is how many bytes the disk has to take after it was full.
const fullProbe = 64 << 10

// Full returns why the disk takes no more, or nil. A quota refuses what the free room of the disk
// would allow. So once a write was refused, it is tried again here. A crash in that leaves a file
// that the next try replaces.
func (s *Store) Full() error {
	if !s.refused.Load() {
		return nil
	}
	path := filepath.Join(s.cfg.Dir, "probe")
	err := stageFile(s.fs, path, make([]byte, fullProbe))
	if err == nil {
		err = s.fs.Remove(staged(path))
	}
	if isFull(err) {
		return err
	}
	s.refused.Store(false)
	return nil
}

// opened are the logs that are open.
func (s *Store) opened() []*Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.logs))
}

// keepSyncing syncs now and then what is written without a sync.
func (s *Store) keepSyncing(ctx context.Context) {
	defer close(s.stopped)
	tick := time.NewTicker(syncInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.syncLazily(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// syncLazily holds no lock of the store meanwhile: the disk may take any time for a sync.
func (s *Store) syncLazily(ctx context.Context) {
	unlocked := s.guard != nil && !s.fs.Same(osFile{s.guard}, s.guard.Name())
	if unlocked { // another process could open the store, too
		_ = s.table.lose(s.guard.Name())
	}
	var failed error
	for _, l := range s.opened() {
		if unlocked {
			_ = l.lose(s.guard.Name())
		}
		failed = errors.Join(failed, l.mark.sync())
		l.watch()
	}
	failed = errors.Join(failed, s.table.Sync(ctx))
	s.syncs.Tell(s.log, failed, "syncing the end marks and the table failed; it is tried every second", "the end marks and the table are synced again")
	fromDisk := time.Since(s.scrubbed) > scrubInterval
	if fromDisk {
		s.scrubbed = time.Now()
	}
	s.table.watch(fromDisk)
}

// Close implements [store.Store]. A second call returns what the first one did.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Store) close() error {
	if s.view {
		return nil // it has no file open
	}
	s.stop()
	<-s.stopped
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var failed error
	for _, l := range s.logs {
		failed = errors.Join(failed, l.close())
	}
	failed = errors.Join(failed, s.table.close())
	if s.guard != nil {
		failed = errors.Join(failed, s.guard.Close())
	}
	return failed
}
