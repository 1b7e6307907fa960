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
	// maxPayload is the greatest message of the embedded server.
	maxPayload = 8 << 20
	// startTimeout bounds the embedded server's start. It reads back all that
	// it holds, so a large journal after a crash takes its time.
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
		// The budget is the stream's own. The server's default is a share of
		// what is free at the start, and refuses to recover on a full disk.
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

// writeError asks a server whether one of its streams met an error that it will
// not write after.
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
