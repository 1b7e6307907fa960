package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/kafkatest"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// scene is what surrounds a relay process, and outlives its crashes: the simulated workspace,
// and three destinations, two of them reached through proxies.
type scene struct {
	t            *trial
	sim          *workspacesim.Simulator
	kafkaProxy   *proxy
	natsProxy    *proxy
	kafka        *kafkatest.Topic
	nats         *natstest.Stream
	file         *readback.File
	ingest       string // HOST:PORT of the relay's push listener
	admin        string // HOST:PORT of the relay's private listener
	environments []workspacesim.Environment
	api          string // URL of the simulated workspace
	dataDir      string
	config       string   // the file
	binary       string   // the relay's file
	env          []string // in addition to the machine's own, from the next start on
	relay        *process
	ledgers      []workspacesim.Ledger // of clients other than the simulator
	peak         int                   // the relay's peak in its last run, in MiB; set by settle
	closers      []func()
}

// setting is a scenario's own choice.
type setting struct {
	dataDir     string        // default: under the trial's folder
	rate        float64       // default: --rate
	sinkTimeout time.Duration // default 5s
	rotate      string        // YAML of the file sink's; default never
	ingest      string        // YAML of further fields of the ingest section, each preceded by a comma
	first       string        // YAML of further fields of the first environment, each preceded by a comma
	more        string        // YAML to append at the top level; it begins after the last sink
}

// newScene sets up everything except the relay.
func (t *trial) newScene(ctx context.Context, o setting) (s *scene, err error) {
	s = &scene{t: t, binary: t.binary, dataDir: o.dataDir, config: filepath.Join(t.dir, "relay.yaml")}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dataDir == "" {
		s.dataDir = filepath.Join(t.dir, "data")
	}
	if o.rate == 0 {
		o.rate = t.rate
	}
	if o.sinkTimeout == 0 {
		o.sinkTimeout = 5 * time.Second
	}
	if o.rotate == "" {
		o.rotate = "rotate_bytes: -1, rotate_every: -1s"
	}
	if err := s.startDestinations(); err != nil {
		return nil, err
	}
	if err := s.startWorkspace(ctx, o.rate); err != nil {
		return nil, err
	}
	return s, s.writeConfig(o)
}

func (s *scene) startDestinations() (err error) {
	for _, p := range []**proxy{&s.kafkaProxy, &s.natsProxy} {
		if *p, err = newProxy(); err != nil {
			return err
		}
		s.closers = append(s.closers, (*p).close)
	}
	broker, err := kafkatest.StartStandIn(s.kafkaProxy.listen)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, broker.Close)
	server, err := natstest.Start(filepath.Join(s.t.dir, "nats"))
	if err != nil {
		return err
	}
	s.closers = append(s.closers, server.Close)
	s.kafka, s.nats = broker.On("events"), server.Stream("EVENTS")
	u, err := url.Parse(s.nats.URL)
	if err != nil {
		return err
	}
	s.natsProxy.aim(u.Host)
	s.file = &readback.File{Path: filepath.Join(s.t.dir, "events.jsonl")}
	return nil
}

func (s *scene) startWorkspace(ctx context.Context, rate float64) (err error) {
	s.sim, err = workspacesim.New(workspacesim.Options{
		Seed: s.t.seed, Projects: 1, RetryMax: 200 * time.Millisecond, PushEvents: 100, QueueEvents: 5_000_000,
	})
	if err != nil {
		return err
	}
	s.environments = s.sim.Environments()
	if err := s.sim.SetRate("", "", rate/float64(len(s.environments))); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.sim.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // ends at Close
	s.sim.Start(context.WithoutCancel(ctx))
	s.closers = append(s.closers, func() { s.sim.Stop(); _ = server.Close() })
	s.api = "http://" + listener.Addr().String()
	return nil
}

// pushUser and pushPassword are a credential of the configuration's own, for clients other than
// the simulator.
const pushUser, pushPassword = "torture", "torture-has-a-password"

func (s *scene) writeConfig(o setting) error {
	free, err := rig.FreeAddresses(context.Background(), 2)
	if err != nil {
		return err
	}
	s.ingest, s.admin = free[0], free[1]
	text := fmt.Sprintf(`data_dir: %s
workspace: {base_url: "%s", key_id: %s, secret: "${SIM_SECRET}", requests_per_second: 1000}
ingest: {listen: "%s"%s}
admin: {listen: "%s"}
settings: {interval: 1s}
streaming: {interval: 1s}
sinks:
  - {name: kafka, timeout: %s, kafka: {brokers: ["%s"], topic: events, create_topic: true}}
  - {name: nats, timeout: %s, nats: {url: "nats://%s", create_stream: EVENTS}}
  - {name: file, file: {path: %s, %s}}
%s
environments:
`, s.dataDir, s.api, workspacesim.DemoKeyID, s.ingest, o.ingest, s.admin, o.sinkTimeout, s.kafkaProxy.address(), o.sinkTimeout, s.natsProxy.address(), s.file.Path, o.rotate, o.more)
	for i, e := range s.environments {
		own := ""
		if i == 0 {
			own = fmt.Sprintf(", credentials: [{username: %s, password: %s}]%s", pushUser, pushPassword, o.first)
		}
		text += fmt.Sprintf("  - {project: %s, environment: %s, stream: {relay: {hostname: %q}}%s}\n", e.Project, e.Environment, s.ingest, own)
	}
	return os.WriteFile(s.config, []byte(text), 0o600)
}

func (s *scene) destinations() []readback.Destination {
	return []readback.Destination{s.kafka, s.nats, s.file}
}

// close ends running processes, the newest first.
func (s *scene) close() {
	if s.relay != nil {
		s.relay.kill()
	}
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}

// waitAcknowledged waits until so many events were acknowledged in all.
func (s *scene) waitAcknowledged(ctx context.Context, n uint64) error {
	what := fmt.Sprintf("the relay acknowledges more on the way to %d events", n)
	for at := s.sim.Counts().Acknowledged; at < n; at = s.sim.Counts().Acknowledged {
		if err := s.until(ctx, what, func() bool { return s.sim.Counts().Acknowledged > at }); err != nil {
			return err
		}
	}
	return nil
}

// while waits for a condition, as long as the relay lives and what is left becomes less; how
// fast it does depends on the machine.
func (s *scene) while(ctx context.Context, what string, left func() int64, met func() bool) error {
	least, moved := left(), time.Now()
	for !met() {
		if now := left(); now < least {
			least, moved = now, time.Now()
		}
		switch {
		case time.Since(moved) > patience:
			return fmt.Errorf("wait until %s: %d are left, and were %s ago; the relay said: %s", what, least, patience, s.relay.tail())
		case s.relay.ended():
			return fmt.Errorf("wait until %s: the relay has ended: %s", what, s.relay.tail())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// until waits for a condition that comes about in one step, as long as the relay lives.
func (s *scene) until(ctx context.Context, what string, met func() bool) error {
	return s.while(ctx, what, func() int64 { return 1 }, met)
}
