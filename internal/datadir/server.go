package datadir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/durable"
	"github.com/auditrelay/auditrelay/internal/lasting"
	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/nats-io/nats-server/v2/server"
)

const (
	// healthInterval is the time between two checks whether the embedded server can still
	// write. A line in its error log triggers one at once.
	healthInterval = time.Second
	// diskPause is the wait between two looks at a failed disk.
	diskPause = time.Second
	// The server keeps a block in memory for blockExpire after its last use, and for up to
	// 100 ms more, as its clock ticks. A push after a longer pause makes it read the newest
	// block again, for about 0.3 ms of CPU.
	blockExpire = 20 * time.Millisecond
	// Readers and writers hold whole blocks in memory. At 200,000 events/s, blocks of 4 MiB
	// take 17 MB more than those of 1 MiB. The server's buffers have 1, 4 or 8 MiB, so
	// sizes between would save nothing.
	smallBlock, largeBlock = 1 << 20, 4 << 20
)

// Server is the JetStream server in this process, over the files of a data directory. It
// is a nats.InProcessConnProvider.
//
// After one failed write or fsync, as on a full disk, nats-server never writes to that
// stream again: it serves reads, and leaves publishers without an answer. So the relay
// watches the server. The end of the [Epoch] tells waiting publishers at once. As soon as
// the disk works, a new server starts below the connection, and the client reconnects.
// Until then sinks read the old one.
type Server struct {
	dir   *Dir
	log   *slog.Logger
	nudge chan struct{} // capacity 1: the server logged an error
	stop  context.CancelFunc
	done  chan struct{} // closed when the watch has ended
	scrub *scrub
	names *names

	mended atomic.Uint64      // pieces of files, over all epochs
	asks   chan chan struct{} // requests to mend the files; each is closed when done

	mu    sync.Mutex     // guards the fields below
	srv   *server.Server // the newest
	epoch *Epoch         // of srv
}

// Epoch is the lifetime of one server: until its end, the server can be trusted to keep its
// messages. The zero Epoch never ends.
type Epoch struct {
	over chan struct{} // closed at the end
	err  error         // the reason for the end; valid once over is closed
}

// Over is closed when the epoch ends.
func (e *Epoch) Over() <-chan struct{} { return e.over }

// Ended says why the epoch ended, or nil while it lasts.
func (e *Epoch) Ended() error {
	select {
	case <-e.over:
		return e.err
	default:
		return nil
	}
}

// Start waits for a writable disk, mends the files, and starts the server. The caller
// holds the directory's lock. ctx bounds the start only.
func (d *Dir) Start(ctx context.Context, log *slog.Logger) (*Server, []Mending, error) {
	s := &Server{dir: d, log: log, nudge: make(chan struct{}, 1), done: make(chan struct{}), asks: make(chan chan struct{}), names: newNames(d.path)}
	if err := waitForDisk(ctx, d.path, log); err != nil {
		return nil, nil, err
	}
	if err := durable.MakeDir(serverDir(d.path)); err != nil {
		return nil, nil, fmt.Errorf("make journal directory: %w", err)
	}
	s.scrub = newScrub(s)
	mended, err := s.start(ctx)
	if err != nil {
		return nil, nil, err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	go s.watch(watching)
	go s.scrub.run(watching)
	go s.boundMemory(watching)
	return s, mended, nil
}

// start mends the files, and begins an epoch with a new server.
func (s *Server) start(ctx context.Context) ([]Mending, error) {
	s.dir.begin(s.log)
	mended, err := s.dir.mend(s.log)
	s.mended.Add(uint64(len(mended)))
	if err == nil && s.srv == nil { // of this process's first server
		err = s.dir.forgetMessageIDs(s.dir.layout.Events)
	}
	if err != nil {
		return mended, err
	}
	srv, err := startServer(ctx, serverDir(s.dir.path), serverLog{s.log, s.nudge})
	if err != nil {
		return mended, err
	}
	s.names.forget()
	s.scrub.trust(s.dir.notes, s.dir.trusted) // before anybody can ask the server for a record
	s.mu.Lock()
	defer s.mu.Unlock()
	s.srv, s.epoch = srv, &Epoch{over: make(chan struct{})}
	return mended, nil
}

// InProcessConn implements nats.InProcessConnProvider.
func (s *Server) InProcessConn() (net.Conn, error) {
	srv, _ := s.Current()
	return srv.InProcessConn()
}

// Current returns the running server and its epoch.
func (s *Server) Current() (*server.Server, *Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.srv, s.epoch
}

func (s *Server) watch(ctx context.Context) {
	defer close(s.done)
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.nudge:
		case done := <-s.asks:
			s.end(ctx, errRotten)
			close(done)
			continue
		}
		srv, _ := s.Current()
		if err := writeError(srv); err != nil {
			s.end(ctx, err)
		}
	}
}

// boundMemory bounds the memory of each server, and of new streams as they come. It is no
// part of watch: it waits for locks, and a slow disk may hold them.
func (s *Server) boundMemory(ctx context.Context) {
	told, wait := false, healthInterval/32 // often at first, while the streams are made
	for ; pause.For(ctx, wait) == nil; wait = min(2*wait, healthInterval) {
		srv, _ := s.Current()
		if err := natsserver.BoundMemory(srv, natsserver.Blocks{Expire: blockExpire, Small: smallBlock, Large: largeBlock}); err != nil && !told {
			told = true
			s.log.Warn("bounding the server's memory failed; it keeps written blocks for longer", "error", err)
		}
	}
}

// end ends the epoch, and begins another.
func (s *Server) end(ctx context.Context, err error) {
	srv, epoch := s.Current()
	epoch.err = err
	close(epoch.over)
	s.replace(ctx, srv)
}

// mendNow has the files mended under a new server.
func (s *Server) mendNow(ctx context.Context) error {
	done := make(chan struct{})
	for asked := false; ; asked = true {
		asks := s.asks
		if asked {
			asks = nil
		}
		select {
		case asks <- done:
		case <-done:
			return nil
		case <-s.done:
			return errors.New("mend a block: the server has ended")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Verified verifies the blocks the server may read for the record at from and, with
// ahead, for the following ones. No further call is needed up to through. If a block is
// damaged, it is mended under a new server first.
func (s *Server) Verified(ctx context.Context, from uint64, ahead bool) (through uint64, err error) {
	return s.scrub.before(ctx, from, ahead)
}

// Mended counts the mended pieces of files, over all epochs so far.
func (s *Server) Mended() uint64 { return s.mended.Load() }

// Unscrubbed counts the bytes of the events' stream taken on trust by the start, and not
// read since.
func (s *Server) Unscrubbed() int64 { return s.scrub.unread.Load() }

// replace starts a server in place of one with a write error, once its disk works again.
// The new server may find unacknowledged messages of the old one, and deliver them.
// Nobody was told they are durable.
func (s *Server) replace(ctx context.Context, broken *server.Server) {
	since := time.Now()
	_, epoch := s.Current()
	s.log.Error("the journal cannot be written to; pushes are refused until it can", "error", epoch.err)
	for failing := (lasting.Failure{}); ctx.Err() == nil; {
		if waitForDisk(ctx, s.dir.path, s.log) != nil {
			return
		}
		broken.Shutdown() // again is harmless
		broken.WaitForShutdown()
		_, err := s.start(ctx)
		if err == nil {
			s.log.Info("the journal can be written to again", "after", time.Since(since).Round(time.Millisecond))
			return
		}
		if ctx.Err() == nil && failing.Again(err.Error()) {
			s.log.Error("starting the journal again failed; trying until it succeeds", append(failing.Fields(), "error", err)...)
		}
		_ = pause.For(ctx, diskPause)
	}
}

// Close ends the watch and the server.
func (s *Server) Close() {
	s.stop()
	<-s.done
	<-s.scrub.done
	srv, _ := s.Current()
	srv.Shutdown()
	srv.WaitForShutdown()
	s.KeepDescriptions()
}

// KeepDescriptions copies the streams' descriptions, to restore damaged ones. The journal
// calls it at each look for losses: after a kill, the copies of the last look remain.
func (s *Server) KeepDescriptions() {
	if err := s.dir.keepDescriptions(); err != nil {
		s.log.Warn("copying the descriptions of streams failed; older copies stand", "error", err)
	}
}
