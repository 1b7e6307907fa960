package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// shutdownTimeout bounds how long open requests may take at the end.
const shutdownTimeout = 5 * time.Second

// start makes the simulator and serves it until ctx ends.
func (s *settings) start(ctx context.Context, stdout, stderr io.Writer) error {
	level := slog.LevelInfo
	if s.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	o, err := s.options(os.Getenv)
	if err != nil {
		return err
	}
	o.Logger = log
	sim, err := workspacesim.New(o)
	if err != nil {
		return err
	}
	if err := s.serve(ctx, sim, stdout, log); err != nil {
		return &serveError{err}
	}
	return nil
}

func (s *settings) serve(ctx context.Context, sim *workspacesim.Simulator, stdout io.Writer, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	api, err := listen(ctx, "api", s.listen, sim.Handler())
	if err != nil {
		return err
	}
	defer api.close(log)
	var admin *server
	if s.adminListen != "" {
		if admin, err = listen(ctx, "admin", s.adminListen, sim.Admin()); err != nil {
			return err
		}
		defer admin.close(log)
	}
	s.greet(stdout, sim, api, admin)
	sim.Start(ctx)
	defer sim.Stop()
	background.Go(func() { s.changeSettings(ctx, sim, log) })
	background.Go(func() { report(ctx, sim, log) })
	select {
	case <-ctx.Done():
	case err = <-api.failed:
	case err = <-admin.failure():
	}
	log.Info("shutting down", countsAttr(sim))
	return err
}

// greet says where everything is, and the key if it is the demo's.
func (s *settings) greet(w io.Writer, sim *workspacesim.Simulator, api, admin *server) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	say("api     http://%s", api.addr)
	if admin != nil {
		say("admin   http://%s", admin.addr)
	}
	say("key id  %s", s.sim.KeyID)
	if s.secret == workspacesim.DemoSecret {
		say("secret  %s (the demo's)", s.secret)
	} else {
		say("secret  as given")
	}
	for _, e := range sim.Environments() {
		say("environment  %s/%s", e.Project, e.Environment)
	}
}

// changeSettings changes a setting now and then, until ctx ends.
func (s *settings) changeSettings(ctx context.Context, sim *workspacesim.Simulator, log *slog.Logger) {
	if s.changeEvery <= 0 {
		return
	}
	each(ctx, s.changeEvery, func() {
		if _, err := sim.ChangeSomething(); err != nil {
			log.Error("change a setting", slog.Any("error", err))
		}
	})
}

// report logs the counts while they grow.
func report(ctx context.Context, sim *workspacesim.Simulator, log *slog.Logger) {
	var last uint64
	each(ctx, 10*time.Second, func() {
		if n := sim.Counts().Generated; n != last {
			last = n
			log.Info("streaming", countsAttr(sim))
		}
	})
}

func countsAttr(sim *workspacesim.Simulator) slog.Attr {
	c := sim.Counts()
	return slog.Group("events", slog.Uint64("generated", c.Generated), slog.Uint64("acknowledged", c.Acknowledged),
		slog.Uint64("dropped", c.Dropped), slog.Uint64("in_flight", c.InFlight), slog.Uint64("unstreamed", c.Unstreamed))
}

func each(ctx context.Context, every time.Duration, do func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			do()
		}
	}
}

// server is one listener.
type server struct {
	http   *http.Server
	name   string
	addr   net.Addr
	failed chan error
}

func listen(ctx context.Context, name, addr string, h http.Handler) (*server, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", name, err)
	}
	s := &server{
		http: &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute},
		name: name, addr: l.Addr(), failed: make(chan error, 1),
	}
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("serve %s: %w", name, err)
		}
	}()
	return s, nil
}

// failure is nil, and never ready, without a server.
func (s *server) failure() <-chan error {
	if s == nil {
		return nil
	}
	return s.failed
}

func (s *server) close(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		log.Warn("shut down", slog.String("server", s.name), slog.Any("error", err))
		_ = s.http.Close()
	}
}
