package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
)

// runningWitness is a witness in this process, served by its real listener.
type runningWitness struct {
	config.Witness
	options WitnessOptions
	stop    func() error
}

// newWitness makes a witness of these logs, and starts it.
func newWitness(t *testing.T, name string, logs ...string) *runningWitness {
	t.Helper()
	dir := t.TempDir()
	key, err := witness.GenerateKey(filepath.Join(dir, "key"), name)
	require.NoError(t, err)
	require.NoError(t, witness.Create(WitnessState(dir), key))
	w := &runningWitness{options: WitnessOptions{
		Logger: slog.New(slog.DiscardHandler), DataDir: dir, KeyFile: filepath.Join(dir, "key"),
		Logs: logs, Listen: "127.0.0.1:0", Admin: config.Admin{Listen: "127.0.0.1:0"},
	}}
	w.Key = key.Public()
	w.start(t)
	return w
}

func (w *runningWitness) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan string, 1), make(chan error, 1)
	w.options.Started = func(listen, _ string) { started <- listen }
	go func() { ended <- RunWitness(ctx, w.options) }()
	select {
	case w.options.Listen = <-started:
	case err := <-ended:
		require.NoError(t, err)
	}
	w.URL = "http://" + w.options.Listen
	w.stop = func() error { cancel(); return <-ended }
	t.Cleanup(cancel)
}

// trailKey starts a relay without witnesses, once, and asks for its trail's public key.
func trailKey(t *testing.T, cfg *config.Config) string {
	t.Helper()
	r := start(t, cfg)
	_, body := r.get("/status")
	require.NoError(t, r.stop())
	var status struct {
		Trail struct {
			PublicKey string `json:"public_key"`
		} `json:"trail"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &status))
	require.NotEmpty(t, status.Trail.PublicKey)
	return status.Trail.PublicKey
}

func watchedBy(cfg *config.Config, witnesses ...*runningWitness) *config.Config {
	for _, w := range witnesses {
		cfg.Audit.Witnesses = append(cfg.Audit.Witnesses, w.Witness)
	}
	cfg.Audit.Quorum = len(witnesses)
	return cfg
}

// awaitReady waits for a text in /readyz.
func (r *running) awaitReady(text string) {
	r.t.Helper()
	var body string
	waiting.Until(r.t, func() bool {
		_, body = r.get("/readyz")
		return strings.Contains(body, text)
	})
	code, _ := r.get("/readyz")
	assert.Equal(r.t, http.StatusOK, code, "no witness makes a relay unready: %s", body)
}

// annotate appends an entry to the relay's trail, and returns its index.
func annotate(t *testing.T, cfg *config.Config) int {
	t.Helper()
	done, err := console.NewClient(cfg.DataDir).Annotate(t.Context(), timeline.Annotation{Index: 0, Reviewer: "ada", Person: audit.Person{User: "u", Host: "h"}})
	require.NoError(t, err)
	return int(done.Entry)
}

// cosignedWhole waits until a witness has cosigned the relay's whole trail, with the entry.
func (r *running) cosignedWhole(witness string, entry int) {
	r.t.Helper()
	waiting.Until(r.t, func() bool {
		_, checkpoint := r.get("/tlog/latest/checkpoint")
		if !strings.Contains(checkpoint, "\n— "+witness+" ") {
			return false
		}
		size := sizeOf(r.t, checkpoint)
		return size > entry && r.metric(`auditrelay_audit_witness_cosigned_size{witness="`+witness+`"}`) == strconv.Itoa(size)
	})
}

// refusals counts the entries about them at the file sink.
func refusals(path string) (n int) {
	for _, rec := range auditEvents(path) {
		if rec.Attributes["type"] == audit.TypeWitnessRefused {
			n++
		}
	}
	return n
}

// cosignedCheckpoints counts those at the file sink with a witness's signature.
func cosignedCheckpoints(path string) (n int) {
	for rec, err := range readback.Records(path) {
		if err == nil && rec.Attributes["type"] == audit.TypeCheckpoint && strings.Contains(string(rec.Body), "— other.example.com/w ") {
			n++
		}
	}
	return n
}

// A data directory is restored from an older backup. The relay cannot know, the witness does:
// at once, and before anything is appended. The alarm reaches every sink, once, and pushes go on.
func TestARestoredBackupIsRefused(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	cfg := d.copied(t)
	w := newWitness(t, "witness.example.com/w", trailKey(t, cfg))
	r := start(t, watchedBy(cfg, w))
	r.awaitReady("1 of 1 witnesses cosign")
	annotate(t, cfg)
	r.cosignedWhole("witness.example.com/w", annotate(t, cfg))
	require.NoError(t, r.stop())
	published := tiles.Open(filepath.Join(cfg.DataDir, tiles.Dir)).Published()
	require.Len(t, published, 1)
	whole := sizeOf(t, published[0].Checkpoint) // with the entry of the stop

	backup := watchedBy(d.copied(t), w)
	r = start(t, backup)
	r.awaitReady("warning: a witness knows another history of the trail")
	for last := 0; last < whole; { // until it has more entries than the witness knows
		last = annotate(t, backup)
	}
	waiting.Until(t, func() bool { return refusals(r.path) == 1 })
	code, body := r.push("a")
	require.Equal(t, http.StatusNoContent, code, body)
	r.arrived("a")
	require.NoError(t, r.stop())

	r = start(t, backup)
	r.awaitReady("no part of this one")
	last := fmt.Sprintf("@%d", annotate(t, backup))
	waiting.Until(t, func() bool {
		return slices.ContainsFunc(auditEvents(r.path), func(rec readback.Record) bool { return strings.HasSuffix(rec.ID(), last) })
	})
	assert.Equal(t, 1, refusals(r.path), "once, over restarts")
	_, body = r.get("/status")
	assert.Contains(t, body, `"refused": true`)
	require.NoError(t, r.stop())

	r = start(t, cfg) // the whole one is cosigned as before
	r.awaitReady("1 of 1 witnesses cosign")
	require.NoError(t, r.stop())
	require.NoError(t, w.stop())
}

// Two teams watch each other. One's witness is away for a while: its relay goes on, and
// catches up.
func TestTwoRelaysWatchEachOther(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	one, other := d.copied(t), d.copied(t)
	for _, file := range []string{other.Audit.KeyFile, other.Audit.KeyFile + ".checkpoint"} {
		require.NoError(t, os.Remove(file)) // a lost key: another trail from here on
	}
	ofOne, ofOther := newWitness(t, "one.example.com/w", trailKey(t, other)), newWitness(t, "other.example.com/w", trailKey(t, one))
	first, second := start(t, watchedBy(one, ofOther)), start(t, watchedBy(other, ofOne))
	first.awaitReady("1 of 1 witnesses cosign")
	second.awaitReady("1 of 1 witnesses cosign")

	require.NoError(t, ofOther.stop())
	annotated := annotate(t, one)
	first.awaitReady("0 of 1 witnesses cosign")
	code, body := first.push("a")
	require.Equal(t, http.StatusNoContent, code, body)
	ofOther.start(t)
	first.awaitReady("1 of 1 witnesses cosign")
	annotate(t, other)
	second.awaitReady("1 of 1 witnesses cosign")
	first.cosignedWhole("other.example.com/w", annotated) // whoever verifies the trail gets the signature, and so do the sinks
	waiting.Until(t, func() bool { return cosignedCheckpoints(first.path) > 0 })
	require.NoError(t, first.stop())
	require.NoError(t, second.stop())
}
