package datadir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

const (
	// maxPayload is the size of the embedded server's largest message.
	maxPayload = 8 << 20
	// startTimeout bounds the embedded server's start. The server may read all of its
	// blocks, so a large journal takes its time after a crash.
	startTimeout = 5 * time.Minute
)

func serverOptions(dir string) *server.Options {
	return &server.Options{
		ServerName: "auditrelay",
		DontListen: true,
		NoSigs:     true,
		JetStream:  true,
		StoreDir:   dir,
		// Promise 1 rests on this: a publish is acknowledged after its fsync.
		SyncAlways: true,
		MaxPayload: maxPayload,
		// The budget is the stream's own. The server's default is a share of the free
		// space at the start, and refuses to recover on a full disk.
		JetStreamMaxStore:  math.MaxInt64 / 2,
		JetStreamMaxMemory: 64 << 20,
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

// writeError asks a server for a stream stopped by a write error.
func writeError(srv *server.Server) error {
	if !srv.JetStreamEnabled() {
		return errors.New("the embedded JetStream has turned itself off")
	}
	for _, problem := range srv.Healthz(&server.HealthzOptions{Details: true}).Errors {
		if strings.Contains(problem.Error, natsserver.WriteError) {
			return errors.New(problem.Error)
		}
	}
	return nil
}

// serverLog hands the embedded server's lines to slog. Its notices are debug lines: they
// do not help the relay's operators.
type serverLog struct {
	log   *slog.Logger
	nudge chan<- struct{}
}

func (l serverLog) Noticef(f string, v ...any) { l.log.Debug("nats: " + fmt.Sprintf(f, v...)) }
func (l serverLog) Warnf(f string, v ...any)   { l.log.Warn("nats: " + fmt.Sprintf(f, v...)) }
func (l serverLog) Fatalf(f string, v ...any)  { l.Errorf(f, v...) }
func (l serverLog) Debugf(string, ...any)      {}
func (l serverLog) Tracef(string, ...any)      {}

// Errorf is called with the server's locks held, so it leaves the look to the watch.
func (l serverLog) Errorf(f string, v ...any) {
	l.log.Error("nats: " + fmt.Sprintf(f, v...))
	select {
	case l.nudge <- struct{}{}:
	default: // a look is due already
	}
}
