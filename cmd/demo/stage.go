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
	"strconv"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/testbed/kafkatest"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// stage is everything in the demo.
type stage struct {
	flags
	dir          string // of the demo's own, removed at the end
	sim          *workspacesim.Simulator
	environments []workspacesim.Environment
	nats         *natstest.Stream
	kafka        *kafkatest.Topic
	file         *readback.File
	changes      *changes
	addresses    app.Addresses
	logFile      string

	changesFailed atomic.Int64 // changes the simulator could not make
	stopRelay     func() error
	closers       []func()
}

func (s *stage) destinations() []readback.Destination {
	return []readback.Destination{s.kafka, s.nats, s.file}
}

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
	server, err := natstest.Start(filepath.Join(s.dir, "nats"))
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, server.Close)
	s.nats = server.Stream(demoStream)
	if s.changes, err = followChanges(s.nats.URL); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.changes.close)
	if err := s.startKafka(); err != nil {
		return nil, err
	}
	s.file = &readback.File{Path: filepath.Join(s.dir, "events.jsonl")}
	cfg, err := s.config(apiURL)
	if err != nil {
		return nil, err
	}
	return s, s.startRelay(ctx, cfg)
}

// startKafka connects to the broker of --kafka, or else starts a stand-in.
func (s *stage) startKafka() error {
	topic := "auditrelay.demo." + strconv.FormatInt(time.Now().Unix(), 36)
	if s.flags.kafka != "" {
		broker, err := kafkatest.Connect(s.flags.kafka)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, broker.Close)
		s.kafka = broker.On(topic)
		return nil
	}
	broker, err := kafkatest.StartStandIn(nil)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, broker.Close)
	s.kafka = broker.On(topic)
	return nil
}

// describeKafka names the kind of broker.
func (s *stage) describeKafka() string {
	text := fmt.Sprintf("%s, topic %s", s.kafka.Brokers[0], s.kafka.Topic)
	if s.flags.kafka == "" {
		text += "\n                  (a stand-in in this process; --kafka HOST:PORT uses a real one)"
	}
	return text
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
	listener, err := listenLoopback()
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: s.sim.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // ends at Close
	s.closers = append(s.closers, func() { s.sim.Stop(); _ = server.Close() })
	return "http://" + listener.Addr().String(), nil
}

// config is a user's, with the intervals shortened for the show.
func (s *stage) config(apiURL string) (*config.Config, error) {
	// The relay's own address must be in its configuration before it listens, as it is set at
	// the provider.
	free, err := rig.FreeAddresses(context.Background(), 1)
	if err != nil {
		return nil, err
	}
	listen := free[0]
	cfg := &config.Config{
		DataDir: filepath.Join(s.dir, "relay"),
		Workspace: &config.Workspace{
			BaseURL: apiURL, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 1000,
		},
		Ingest:    config.Ingest{Listen: listen},
		Admin:     config.Admin{Listen: "127.0.0.1:0"},
		Streaming: config.Streaming{Interval: 5 * time.Second},
		Settings:  config.Settings{Interval: 500 * time.Millisecond},
		Sinks: []config.Sink{
			{Name: "kafka", Kafka: &config.Kafka{Brokers: s.kafka.Brokers, Topic: s.kafka.Topic, CreateTopic: true}},
			{Name: "nats", NATS: &config.NATS{URL: s.nats.URL, Subject: demoSubject, CreateStream: demoStream}},
			{Name: "file", File: &config.File{Path: s.file.Path, RotateBytes: -1}},
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

func listenLoopback() (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
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

// changeSettings changes settings one after the other until ctx ends. It goes through the
// resources in turn, so that none is changed again before the relay looks.
func (s *stage) changeSettings(ctx context.Context) {
	if s.changeEvery <= 0 {
		return
	}
	tick := time.NewTicker(s.changeEvery)
	defer tick.Stop()
	resources := workspacesim.Resources()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		e := s.environments[i/len(resources)%len(s.environments)]
		if _, err := s.sim.ChangeSetting(e.Project, e.Environment, resources[i%len(resources)]); err != nil {
			s.changesFailed.Add(1)
		}
	}
}

func (s *stage) describe() string {
	return fmt.Sprintf(`A simulated workspace with %d environments streams %.0f events/s to the relay.
  push endpoint   http://%s/loki/api/v1/push
  health, metrics http://%s/readyz /metrics /status
  Kafka           %s
  NATS            nats sub -s %s '%s.>'
  file            tail -f \
                  %s
  relay's log     %s

`, len(s.environments), s.rate, s.addresses.Ingest, s.addresses.Admin, s.describeKafka(), s.nats.URL, demoSubjectPrefix, s.file.Path, s.logFile)
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
