package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

const changedType = "settings.changed"

// stage is everything in the demo.
type stage struct {
	flags
	dir          string // of the demo's own, removed at the end
	sim          *workspacesim.Simulator
	environments []workspacesim.Environment
	inbox        *inbox
	inboxURL     string
	file         *readback.File
	addresses    app.Addresses
	link         string // into the console, valid once
	logFile      string

	changesFailed atomic.Int64 // changes the simulator could not make
	stopRelay     func() error
	closers       []func()
}

// destinations are those that can be reached.
func (s *stage) destinations() []readback.Destination { return []readback.Destination{s.inbox, s.file} }

func setStage(ctx context.Context, f flags) (s *stage, err error) {
	s = &stage{flags: f}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "auditrelay-demo-"); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { _ = os.RemoveAll(s.dir) })
	apiURL, err := s.startWorkspace()
	if err != nil {
		return nil, err
	}
	if s.inbox, err = newInbox(filepath.Join(s.dir, "inbox.jsonl")); err != nil {
		return nil, err
	}
	if s.inboxURL, err = s.serve(s.inbox); err != nil {
		return nil, err
	}
	s.file = &readback.File{Path: filepath.Join(s.dir, "events.jsonl")}
	cfg, err := s.config(apiURL)
	if err != nil {
		return nil, err
	}
	if err := s.startRelay(ctx, cfg); err != nil {
		return nil, err
	}
	opened, err := console.NewClient(cfg.DataDir).OpenWeb(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the console: %w", err)
	}
	s.link = opened.URL
	return s, nil
}

func (s *stage) startWorkspace() (url string, err error) {
	s.sim, err = workspacesim.New(workspacesim.Options{Seed: s.seed})
	if err != nil {
		return "", err
	}
	s.environments = s.sim.Environments()
	if err := s.sim.SetRate("", "", s.rate/float64(len(s.environments))); err != nil {
		return "", err
	}
	s.closers = append(s.closers, s.sim.Stop)
	return s.serve(s.sim.Handler())
}

// serve serves on loopback until the end.
func (s *stage) serve(handler http.Handler) (url string, err error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // ends at Close
	s.closers = append(s.closers, func() { _ = server.Close() })
	return "http://" + listener.Addr().String(), nil
}

// config is a user's, with the intervals shortened for the show, and with a destination that is
// down.
func (s *stage) config(apiURL string) (*config.Config, error) {
	// The relay's own address must be in its configuration before it listens, as it is set at
	// the provider.
	free, err := rig.FreeAddresses(context.Background(), 3)
	if err != nil {
		return nil, err
	}
	listen, browser, nobody := free[0], free[1], free[2]
	cfg := &config.Config{
		DataDir: filepath.Join(s.dir, "relay"),
		Workspace: &config.Workspace{
			BaseURL: apiURL, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 1000,
		},
		Ingest:          config.Ingest{Listen: listen},
		Admin:           config.Admin{Listen: "127.0.0.1:0"},
		Console:         config.Console{Listen: browser},
		Streaming:       config.Streaming{Interval: 2 * time.Second},
		Settings:        config.Settings{Interval: 500 * time.Millisecond},
		Policies:        config.Policies{Packs: []string{"baseline"}},
		ShutdownTimeout: 3 * time.Second, // no longer for the destination that is down
		Sinks: []config.Sink{
			{Name: "webhook", BatchEvents: 2000, BatchBytes: 4 << 20, Webhook: &config.Webhook{URL: secret.New(s.inboxURL)}},
			{Name: "file", File: &config.File{Path: s.file.Path, RotateBytes: -1}},
			{Name: "siem", Webhook: &config.Webhook{URL: secret.New("http://" + nobody)}},
		},
	}
	for _, e := range s.environments {
		cfg.Environments = append(cfg.Environments, config.Environment{
			Project: e.Project, Environment: e.Environment,
			Stream: &config.Stream{Relay: &config.StreamRelay{Hostname: listen}},
		})
	}
	cfg.SetDefaults()
	return cfg, cfg.Validate()
}

// startRelay runs the relay as `auditrelay run` does, and waits until it takes pushes.
func (s *stage) startRelay(ctx context.Context, cfg *config.Config) error {
	s.logFile = filepath.Join(s.dir, "relay.log")
	logs, err := os.Create(s.logFile)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	started, ended := make(chan app.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- app.Run(running, cfg, app.Options{
			Logger:  slog.New(slog.NewTextHandler(logs, nil)),
			Version: "demo",
			Started: func(a app.Addresses) { started <- a },
		})
		_ = logs.Close()
	}()
	s.stopRelay = func() error { cancel(); return <-ended }
	select {
	case s.addresses = <-started:
		return nil
	case err := <-ended:
		s.stopRelay = nil
		return fmt.Errorf("start the relay: %w", err)
	case <-ctx.Done():
		return errors.Join(ctx.Err(), s.stopRelay())
	}
}

func (s *stage) describe() string {
	return fmt.Sprintf(`Open this in a browser; the link works once:

  %s

A simulated workspace with %d environments streams %.0f events/s to the relay, which
delivers them to a webhook and a file. A third destination, siem, is down.
%s
In another terminal, the first two once make build has made bin/auditrelay:

  status          bin/auditrelay status --watch --data-dir %[5]s
  changes         bin/auditrelay trail list --data-dir %[5]s
  events          tail -f %[6]s
  relay's log     %[7]s

`, s.link, len(s.environments), s.rate, s.plot(), filepath.Join(s.dir, "relay"), s.file.Path, s.logFile)
}

// close ends running parts, the newest first.
func (s *stage) close() {
	if s.stopRelay != nil {
		_ = s.stopRelay() // its error was reported by finish, or another one is under way
	}
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}
