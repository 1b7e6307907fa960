package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

const (
	// lookEvery is the relay's interval between two looks at the streaming config.
	lookEvery = time.Second
	// rate is of the one environment, in events a second.
	rate = 50
	// patience bounds one wait.
	patience = 5 * time.Minute
	// warmUp is a time of health, before the incident.
	warmUp = 12 * time.Second
)

// stage is a relay and its workspace, for one incident.
type stage struct {
	workspace *rig.Workspace
	relay     *rig.Relay
	second    *rig.Relay // of a fight; nil: none
	binary    string
	dir       string

	project, environment string
	setup
}

// setup is an incident's part of the stage.
type setup struct {
	simulator func(*workspacesim.Options)
	// sinks, journal, settings and more are YAML of the relay's configuration; %[1]s is the stage's
	// folder. No settings are watched unless settings says so.
	sinks, journal, settings, more string
	// before prepares the data directory.
	before func(s *stage) error
	close  func()
}

func newStage(ctx context.Context, binary, dir string, with setup) (*stage, error) {
	o := workspacesim.Options{Projects: 1, RetryMax: time.Second}
	if with.simulator != nil {
		with.simulator(&o)
	}
	workspace, err := rig.StartWorkspace(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &stage{workspace: workspace, binary: binary, dir: dir, setup: with}
	s.project, s.environment = workspace.Environments()[0].Project, workspace.Environments()[0].Environment
	if s.relay, err = rig.NewRelay(ctx, binary, filepath.Join(dir, "relay")); err != nil {
		return s, err
	}
	if with.before != nil {
		if err := os.MkdirAll(s.relay.DataDir(), 0o700); err != nil {
			return s, err
		}
		if err := with.before(s); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *stage) start(ctx context.Context) error {
	return s.relay.Start(ctx, s.config(s.relay), patience, s.workspace.Env())
}

// config is a relay's configuration in YAML.
func (s *stage) config(r *rig.Relay) string {
	sinks := s.sinks
	if sinks == "" {
		sinks = `[{name: file, file: {path: "%[1]s/events.jsonl"}}]`
	}
	text := fmt.Sprintf(`data_dir: %q
workspace: {base_url: %q, key_id: %s, secret: "${SIM_SECRET}", requests_per_second: 1000}
ingest: {listen: %q}
admin: {listen: %q}
settings: %s
streaming: {interval: %s}
environments:
  - {project: %s, environment: %s, stream: {relay: {hostname: %q}}}
`, r.DataDir(), s.workspace.URL, workspacesim.DemoKeyID, r.Ingest, r.Admin, cmp.Or(s.settings, "{disabled: true}"), lookEvery,
		s.project, s.environment, r.Ingest)
	text += "sinks: " + strings.ReplaceAll(sinks, "%[1]s", s.dir) + "\n"
	if s.journal != "" {
		text += "journal: " + s.journal + "\n"
	}
	return text + strings.ReplaceAll(s.more, "%[1]s", s.dir)
}

func (s *stage) end() {
	if s.second != nil {
		s.second.Close()
	}
	if s.relay != nil {
		s.relay.Close()
	}
	s.workspace.Close()
	if s.close != nil {
		s.close()
	}
}

// until waits for a state of the relay's own report.
func (s *stage) until(ctx context.Context, what string, met func(*status) bool) error {
	var last string
	err := rig.Until(ctx, patience, what, func() bool {
		st, err := s.status(ctx)
		if err != nil {
			last = err.Error()
			return false
		}
		last = st.one().State + ": " + st.one().Reason
		return met(&st)
	}, s.relay.Process())
	if err != nil {
		return fmt.Errorf("%w; it reports %s", err, last)
	}
	return nil
}

// healthy waits until events flow, and a while more.
func (s *stage) healthy(ctx context.Context) error {
	if err := s.workspace.SetRate(s.project, s.environment, rate); err != nil {
		return err
	}
	if err := s.until(ctx, "the event log flows", (*status).arrives); err != nil {
		return err
	}
	return hold(ctx, warmUp)
}

// hold lets a situation last. It does not wait for anything.
func hold(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lost is how many events the provider will never deliver.
func (s *stage) lost() int64 {
	for _, l := range s.workspace.Ledgers() {
		if l.Project == s.project && l.Environment == s.environment {
			return int64(l.Counts.Dropped + l.Unstreamed)
		}
	}
	return 0
}

// person edits the streaming config in the dashboard.
func (s *stage) person(edit workspacesim.StreamingEdit) error {
	return s.workspace.EditStreaming(s.project, s.environment, edit)
}

func (s *stage) setStatus(status string) error {
	return s.workspace.SetStreamingStatus(s.project, s.environment, status)
}

func (s *stage) stream(f workspacesim.StreamFaults) error {
	return s.workspace.SetStreamFaults(s.project, s.environment, f)
}
