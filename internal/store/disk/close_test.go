package disk

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/store"
)

// A store can be closed twice, and what is called later is told that it is closed.
func TestAStoreIsClosedTwice(t *testing.T) {
	t.Parallel()
	f := openFolder(t).(*folder) // whose cleanup closes it once more
	l := f.Log(t, "events")
	appendTo(t, l, 100)
	require.NoError(t, f.store.Close())
	require.NoError(t, f.store.Close())
	_, err := f.store.Log(t.Context(), "events", store.Options{})
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = f.store.Log(t.Context(), "another", store.Options{})
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = l.Append(t.Context(), store.Draft{})
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = l.AppendAt(t.Context(), 1, store.Draft{})
	require.ErrorIs(t, err, store.ErrClosed)
	require.ErrorIs(t, l.Trim(t.Context(), 1), store.ErrClosed)
	_, err = f.Table().Put(t.Context(), "k", nil, store.If{})
	require.ErrorIs(t, err, store.ErrClosed)
	require.ErrorIs(t, f.Table().PutLazy(t.Context(), "k", nil, store.If{}), store.ErrClosed)
	require.ErrorIs(t, f.Table().Sync(t.Context()), store.ErrClosed)
}

// A log that never had room for a segment is closed like any other one.
func TestALogWithoutASegmentIsClosed(t *testing.T) {
	t.Parallel()
	fs := newMemFS(1)
	fs.failWith(func(op, path string) error {
		if op == "open" && strings.HasSuffix(path, segmentSuffix) {
			return unix.ENOSPC
		}
		return nil
	})
	s, err := open(Config{Dir: "/s", Salvage: "/salvage", Logger: discard}, fs, [16]byte{1})
	require.NoError(t, err)
	l, err := s.Log(t.Context(), "events", store.Options{})
	require.NoError(t, err)
	_, err = l.Append(t.Context(), store.Draft{})
	require.ErrorIs(t, err, store.ErrFull)
	require.NoError(t, s.Close())
}

// hungFS is a filesystem whose syncs of files with a suffix take until released is closed.
type hungFS struct {
	*memFS
	suffix   string
	began    chan struct{} // gets a value with each sync
	released chan struct{}
}

type hungFile struct {
	file
	fs *hungFS
}

func (h *hungFS) Open(path string, flags int) (file, error) {
	f, err := h.memFS.Open(path, flags)
	if err != nil || !strings.HasSuffix(path, h.suffix) {
		return f, err
	}
	return hungFile{f, h}, nil
}

func (h *hungFS) Same(f file, path string) bool {
	if hung, ok := f.(hungFile); ok {
		f = hung.file
	}
	return h.memFS.Same(f, path)
}

func (f hungFile) Sync() error {
	f.fs.began <- struct{}{}
	<-f.fs.released
	return f.file.Sync()
}

// While a sync takes for ever, whoever appends gets an error once their context has ended, and
// nothing is acknowledged. When the disk comes back, the records are there, since nobody could
// take them back, and the log goes on.
func TestASyncThatHangs(t *testing.T) {
	t.Parallel()
	fs := &hungFS{newMemFS(1), segmentSuffix, make(chan struct{}, 100), make(chan struct{})}
	close(fs.released) // for the first segment
	s, err := open(Config{Dir: "/s", Salvage: "/salvage", Logger: discard}, fs, [16]byte{1})
	require.NoError(t, err)
	opened, err := s.Log(t.Context(), "events", store.Options{Allocate: true, MaxBytes: 64 << 20})
	require.NoError(t, err)
	l := opened.(*Log)
	require.NoError(t, l.Room(t.Context(), 1000))
	<-fs.began
	fs.released = make(chan struct{})

	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 3)
	body := []byte("perhaps")
	go func() { _, err := l.Append(ctx, store.Draft{Data: body}); failed <- err }()
	<-fs.began
	go func() { _, err := l.Append(ctx, store.Draft{Data: make([]byte, 1000)}); failed <- err }()
	go func() { _, err := l.AppendAt(ctx, 1, store.Draft{Data: []byte("at")}); failed <- err }()
	cancel()
	for range 3 {
		require.ErrorIs(t, <-failed, context.Canceled)
	}
	body[0] = 'X' // it is the caller's again
	state, err := l.State(t.Context())
	require.NoError(t, err)
	assert.Zero(t, state.End, "nothing is acknowledged")
	require.NoError(t, s.Err())
	short, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	require.ErrorContains(t, l.Room(short, 1000), "has not finished an earlier write")

	close(fs.released)
	require.NoError(t, l.Room(t.Context(), 1000))
	appendTo(t, l, 10)
	records, gaps := read(t, l)
	assert.Empty(t, gaps)
	assert.Contains(t, records, store.Pos(1))
	for item, err := range l.Read(t.Context(), 1, false) {
		require.NoError(t, err)
		assert.Equal(t, "perhaps", string(item.Record.Data))
		break
	}
	require.NoError(t, s.Close())
}

// A lazy value is put, and can be read, while a sync of the earlier ones takes for ever.
func TestALazyValueDoesNotWaitForASync(t *testing.T) {
	t.Parallel()
	fs := &hungFS{newMemFS(1), lazyFile, make(chan struct{}, 100), make(chan struct{})}
	s, err := open(Config{Dir: "/s", Salvage: "/salvage", Logger: discard}, fs, [16]byte{1})
	require.NoError(t, err)
	s.stop()
	<-s.stopped // which syncs now and then
	require.NoError(t, s.table.PutLazy(t.Context(), "k", []byte("1"), store.If{}))
	synced := make(chan error)
	go func() { synced <- s.table.Sync(t.Context()) }()
	<-fs.began
	require.NoError(t, s.table.PutLazy(t.Context(), "k", []byte("2"), store.If{}))
	v, err := s.table.Get(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, "2", string(v.Data))
	close(fs.released)
	require.NoError(t, <-synced)
	require.NoError(t, s.table.Sync(t.Context()), "the second one is not durable yet")
	<-fs.began
	require.NoError(t, s.Close())
}

// While a sync takes for ever, nobody waits for a put or a trim longer than their context lasts.
// When the disk comes back, both have been done.
func TestAPutAndATrimThatHang(t *testing.T) {
	t.Parallel()
	for suffix, change := range map[string]func(ctx context.Context, s *Store, l *Log) error{
		valuesFiles[0] + ".new": func(ctx context.Context, s *Store, _ *Log) error {
			_, err := s.Table().Put(ctx, "key", []byte("value"), store.If{})
			return err
		},
		endSuffix: func(ctx context.Context, _ *Store, l *Log) error { return l.Trim(ctx, 100) },
	} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			fs := &hungFS{newMemFS(1), suffix, make(chan struct{}, 100), make(chan struct{})}
			close(fs.released)
			s, err := open(Config{Dir: "/s", Salvage: "/salvage", Logger: discard}, fs, [16]byte{1})
			require.NoError(t, err)
			s.stop()
			<-s.stopped // which syncs now and then
			opened, err := s.Log(t.Context(), "events", store.Options{MaxBytes: 4 << 20})
			require.NoError(t, err)
			l := opened.(*Log)
			_, err = s.Table().Put(t.Context(), "another", []byte("value"), store.If{})
			require.NoError(t, err)
			for range 30 {
				appendTo(t, l, 20<<10)
			}
			require.Greater(t, len(l.segments), 2)
			for len(fs.began) > 0 {
				<-fs.began
			}
			fs.released = make(chan struct{})

			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 2)
			go func() { failed <- change(ctx, s, l) }()
			<-fs.began
			go func() { failed <- change(ctx, s, l) }() // waits for its turn
			cancel()
			for range 2 {
				require.ErrorIs(t, <-failed, context.Canceled)
			}
			close(fs.released)
			require.NoError(t, l.Room(t.Context(), 1))
			if suffix == endSuffix {
				state, err := l.State(t.Context())
				require.NoError(t, err)
				assert.Greater(t, state.First, store.Pos(1))
			} else {
				rev, err := s.Table().Put(t.Context(), "key", []byte("newer"), store.If{Key: "key", Rev: 1})
				require.NoError(t, err)
				assert.EqualValues(t, 2, rev)
			}
			require.NoError(t, s.Close())
		})
	}
}
