package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/auditrelay/auditrelay/internal/streams"
)

const (
	// healthInterval is how often the embedded server is asked whether it can
	// still write; a line of its error log makes that at once.
	healthInterval = time.Second
	// diskPause is the wait between two looks at a disk that failed.
	diskPause = time.Second
)

// embedded is the JetStream server in this process.
//
// A server that met one failing write or fsync, as on a full disk, never
// writes to that stream again: it keeps serving reads, and leaves publishers
// without an answer. So it is watched, what waits is told at once, and as soon
// as the disk works it is started anew below the connection, which reconnects.
// Until then sinks read what there is.
type embedded struct {
	dataDir string
	files   *store
	log     *slog.Logger
	nudge   chan struct{} // of one place: an error was logged
	stop    context.CancelFunc
	done    chan struct{} // closed when the watch has ended

	mu   sync.Mutex     // guards what follows
	srv  *server.Server // the newest
	life *life          // of srv
}

// life is the time in which a server can be trusted to keep what it is given.
type life struct {
	over chan struct{} // closed at its end; nil for a life without one
	err  error         // why it ended; valid once over is closed
}

// ended gives the reason, or nil.
func (l *life) ended() error {
	select {
	case <-l.over:
		return l.err
	default:
		return nil
	}
}

// startEmbedded waits until the disk can be written to, and starts the server.
func startEmbedded(ctx context.Context, files *store, log *slog.Logger) (*embedded, []Mending, error) {
	dataDir := files.dataDir
	e := &embedded{dataDir: dataDir, files: files, log: log, nudge: make(chan struct{}, 1), done: make(chan struct{})}
	if err := tryDisk(dataDir); err != nil {
		log.Error("the journal's disk cannot be written to; the start waits until it can", "error", err)
		if err := waitForDisk(ctx, dataDir); err != nil {
			return nil, nil, err
		}
	}
	mended, err := e.start(ctx)
	if err != nil {
		return nil, nil, err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stop = stop
	go e.watch(watching)
	return e, mended, nil
}

// start sets the files right, and starts a server and a life.
func (e *embedded) start(ctx context.Context) ([]Mending, error) {
	dir := filepath.Join(e.dataDir, "jetstream")
	mended, err := e.files.mend(e.log)
	if err != nil {
		return mended, err
	}
	srv, err := startServer(ctx, dir, serverLog{e.log, e.nudge})
	if err != nil {
		return mended, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.srv, e.life = srv, &life{over: make(chan struct{})}
	return mended, nil
}

// InProcessConn implements nats.InProcessConnProvider.
func (e *embedded) InProcessConn() (net.Conn, error) {
	srv, _ := e.current()
	return srv.InProcessConn()
}

// current gives the server, and how it fares.
func (e *embedded) current() (*server.Server, *life) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.srv, e.life
}

func (e *embedded) watch(ctx context.Context) {
	defer close(e.done)
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-e.nudge:
		}
		srv, life := e.current()
		if err := writeError(srv); err != nil {
			life.err = err
			close(life.over)
			e.mend(ctx, srv)
		}
	}
}

// writeError asks a server whether a stream of its met an error that it will
// not write after.
func writeError(srv *server.Server) error {
	if !srv.JetStreamEnabled() {
		return errors.New("the embedded JetStream has turned itself off")
	}
	for _, problem := range srv.Healthz(&server.HealthzOptions{Details: true}).Errors {
		// There is no code for it; a test holds the wording.
		if strings.Contains(problem.Error, "write error") {
			return errors.New(problem.Error)
		}
	}
	return nil
}

// mend replaces a server that has met a write error, when its disk works
// again. What that server had not acknowledged may be found by the next one,
// and is delivered; nobody was told that it is durable.
func (e *embedded) mend(ctx context.Context, broken *server.Server) {
	since := time.Now()
	_, life := e.current()
	e.log.Error("the journal cannot be written to; pushes are refused until it can", "error", life.err)
	for shown := ""; ctx.Err() == nil; {
		if waitForDisk(ctx, e.dataDir) != nil {
			return
		}
		broken.Shutdown() // again is harmless
		broken.WaitForShutdown()
		_, err := e.start(ctx)
		if err == nil {
			e.log.Info("the journal can be written to again", "after", time.Since(since).Round(time.Millisecond))
			return
		}
		if text := err.Error(); text != shown && ctx.Err() == nil {
			shown = text
			e.log.Error("starting the journal again failed; it is tried until it succeeds", "error", err)
		}
		_ = streams.Pause(ctx, diskPause)
	}
}

// close ends the watch and the server.
func (e *embedded) close() {
	e.stop()
	<-e.done
	srv, _ := e.current()
	srv.Shutdown()
	srv.WaitForShutdown()
	e.keepDescriptions()
}

// keepDescriptions is done as often as the journal looks for losses: a server
// that is killed leaves those of the last look.
func (e *embedded) keepDescriptions() {
	if err := e.files.keepDescriptions(); err != nil {
		e.log.Warn("copying the descriptions of streams failed; older copies stand", "error", err)
	}
}

func startServer(ctx context.Context, dir string, log serverLog) (*server.Server, error) {
	srv, err := server.NewServer(serverOptions(dir))
	if err != nil {
		return nil, fmt.Errorf("configure embedded nats-server: %w", err)
	}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	deadline, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !srv.ReadyForConnections(100 * time.Millisecond) {
		if err := deadline.Err(); err != nil {
			srv.Shutdown()
			return nil, fmt.Errorf("start embedded nats-server on %s: %w", dir, err)
		}
	}
	if !srv.JetStreamEnabled() {
		srv.Shutdown()
		return nil, fmt.Errorf("start JetStream on %s: it did not start, see the log", dir)
	}
	return srv, nil
}

// serverLog hands the embedded server's lines to slog. Its notices are of no
// use to the relay's operators, so they are debug lines.
type serverLog struct {
	log   *slog.Logger
	nudge chan<- struct{}
}

func (l serverLog) Noticef(f string, v ...any) { l.log.Debug("nats: " + fmt.Sprintf(f, v...)) }
func (l serverLog) Warnf(f string, v ...any)   { l.log.Warn("nats: " + fmt.Sprintf(f, v...)) }
func (l serverLog) Fatalf(f string, v ...any)  { l.Errorf(f, v...) }
func (l serverLog) Debugf(string, ...any)      {}
func (l serverLog) Tracef(string, ...any)      {}

// Errorf is called with the server's locks held: the look is the watch's.
func (l serverLog) Errorf(f string, v ...any) {
	l.log.Error("nats: " + fmt.Sprintf(f, v...))
	select {
	case l.nudge <- struct{}{}:
	default: // it is to look already
	}
}
