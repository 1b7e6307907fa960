package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// madeRelay is a stopped relay with a trail, spans and the trail's files.
type madeRelay struct {
	dir    string // data_dir, and the sink's file
	older  string // a copy of dir with fewer entries
	public string // the key
	size   int64  // entries signed
}

const madeOrigin = "example.com/trail"

func configOf(dir string) *config.Config {
	cfg := &config.Config{
		DataDir: filepath.Join(dir, "data"),
		Journal: config.Journal{MaxBytes: 64 << 20}, // for small files: tests copy the directory
		Environments: []config.Environment{{Project: "acme", Environment: "live", Credentials: []config.Credential{
			{Username: "u", Password: secret.New("a-password-of-some-length")},
		}}},
		Ingest: config.Ingest{Listen: "127.0.0.1:0"},
		Admin:  config.Admin{Listen: "127.0.0.1:0"},
		Audit:  config.Audit{Origin: madeOrigin, Spans: config.Spans{Interval: time.Second}},
		Sinks:  []config.Sink{{Name: "file", File: &config.File{Path: filepath.Join(dir, "out", "events.jsonl")}}},
	}
	cfg.SetDefaults()
	return cfg
}

// makeRelay makes a trail of 60 entries under a key of its own.
func makeRelay(t *testing.T, below string) *madeRelay {
	t.Helper()
	m := &madeRelay{dir: filepath.Join(below, "now"), older: filepath.Join(below, "older")}
	cfg := configOf(m.dir)
	require.NoError(t, cfg.Validate())
	require.NoError(t, os.MkdirAll(cfg.DataDir, 0o700))
	for round, entries := range []int{13, 16} {
		if round == 1 {
			require.NoError(t, os.CopyFS(m.older, os.DirFS(m.dir)))
		}
		appendTo(t, cfg, entries)
		appendTo(t, cfg, entries)
		at := startRelay(t, cfg)
		at.push(fmt.Sprintf("made-%d", round))
		at.settled(m.size + 2*int64(entries) + 2) // the start, and a span; on a slow machine there may be two
		at.stop()
		m.size = signed(cfg)
	}
	m.public = publicKey(t, m.dir)
	return m
}

// publicKey is the trail's key in its history of checkpoints.
func publicKey(t *testing.T, dir string) string {
	t.Helper()
	history, err := os.ReadFile(filepath.Join(dir, "data/tlog/0/checkpoints"))
	require.NoError(t, err)
	var line proof.Line
	first, _, _ := strings.Cut(string(history), "\n")
	require.NoError(t, json.Unmarshal([]byte(first), &line))
	return line.Key
}

// appendTo adds entries to the trail of a stopped relay, and a checkpoint.
func appendTo(t *testing.T, cfg *config.Config, n int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(cfg.DataDir, 0o700))
	files, err := app.OpenStore(t.Context(), cfg, app.StoreOptions{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	trail, err := audit.Open(t.Context(), files, app.TrailOptions(cfg))
	require.NoError(t, err)
	for i := range n {
		_, err := trail.Append(t.Context(), audit.Entry{
			Type: "settings.changed", Project: "acme", Environment: "live", Subject: "rbac_policy", Time: time.Now(),
			After: json.RawMessage(fmt.Sprintf(`{"value":%d}`, i)),
		})
		require.NoError(t, err)
	}
	require.NoError(t, trail.Close(t.Context()))
	require.NoError(t, files.Close())
}

// startedRelay is a relay in this process.
type startedRelay struct {
	app.Addresses
	t    *testing.T
	cfg  *config.Config
	stop func()
}

func startRelay(t *testing.T, cfg *config.Config) *startedRelay {
	t.Helper()
	require.NoError(t, cfg.Validate())
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan app.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- app.Run(ctx, cfg, app.Options{Logger: slog.New(slog.DiscardHandler), Started: func(a app.Addresses) { started <- a }})
	}()
	select {
	case a := <-started:
		return &startedRelay{a, t, cfg, func() { cancel(); require.NoError(t, <-ended) }}
	case err := <-ended:
		cancel()
		t.Fatalf("the relay does not start: %v", err)
		return nil
	}
}

// push pushes an event, and waits until the sink has it.
func (r *startedRelay) push(id string) {
	r.t.Helper()
	body := fmt.Sprintf(`{"streams":[{"stream":{},"values":[["%d","{\"event_id\":\"%s\"}"]]}]}`, time.Now().UnixNano(), id)
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.Ingest+"/loki/api/v1/push", strings.NewReader(body))
	require.NoError(r.t, err)
	req.SetBasicAuth("u", "a-password-of-some-length")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	require.NoError(r.t, resp.Body.Close())
	require.Equal(r.t, http.StatusNoContent, resp.StatusCode)
	waiting.Until(r.t, func() bool {
		for rec, err := range readback.Records(r.cfg.Sinks[0].File.Path) {
			if err == nil && rec.ID() == id {
				return true
			}
		}
		return false
	}, "the event %s does not arrive", id)
}

// settled waits until the trail's files have at least so many entries, and the sink has all
// except the newest.
func (r *startedRelay) settled(entries int64) {
	r.t.Helper()
	waiting.Until(r.t, func() bool {
		size, newest := signed(r.cfg), int64(-1)
		for _, e := range trailEvents(r.cfg) {
			newest = max(newest, e.place)
		}
		return size >= entries && newest+1 >= size-1
	}, "the trail's files and the sink do not get all entries")
}

// signed is how many entries the checkpoint in the trail's files covers.
func signed(cfg *config.Config) int64 {
	note, _ := os.ReadFile(filepath.Join(cfg.DataDir, "tlog/0/checkpoint"))
	text, _, _ := strings.Cut(string(note), "\n\n")
	c, err := proof.ParseCheckpoint(text + "\n")
	if err != nil {
		return 0
	}
	return c.Size
}

// trailEvent is an entry of the trail at the sink.
type trailEvent struct {
	id, kind string
	place    int64
	body     []byte
}

// trailEvents are the trail's entries at the sink, each once.
func trailEvents(cfg *config.Config) (all []trailEvent) {
	seen := map[string]bool{}
	for rec, err := range readback.Records(cfg.Sinks[0].File.Path) {
		kind := fmt.Sprint(rec.Attributes["type"])
		if err != nil || !strings.Contains(rec.ID(), "@") || kind == audit.TypeCheckpoint || seen[rec.ID()] {
			continue
		}
		seen[rec.ID()] = true
		e := trailEvent{id: rec.ID(), kind: kind, place: -1, body: rec.Body}
		if place, _, _ := audit.ReadEvent(rec.Body); place != nil {
			e.place = place.Index
		}
		all = append(all, e)
	}
	return all
}

// namings are the problems named by the trail's own entries at the sink.
func namings(t *testing.T, cfg *config.Config) (all []string) {
	t.Helper()
	for _, e := range trailEvents(cfg) {
		if e.kind != audit.TypeDamaged && e.kind != audit.TypeRestored && e.kind != audit.TypeGeneration {
			continue
		}
		var body struct {
			Detail struct {
				Reason   string
				Problems []proof.Finding
			}
		}
		require.NoError(t, json.Unmarshal(e.body, &body))
		if body.Detail.Reason != "" {
			all = append(all, e.id+" "+body.Detail.Reason)
		}
		for _, p := range body.Detail.Problems {
			all = append(all, p.Kind+" "+p.String())
		}
	}
	return all
}
