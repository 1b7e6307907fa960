package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// The relay is killed in the middle of a flood of refusals: each acknowledged event is
// at the destination, or a dead letter, by id.
func TestKilledInAFloodOfRefusals(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	f := newFlood(t)
	relay := f.start(t)
	for round := range lives(6, testing.Short()) {
		goal := f.acknowledged.Load() + 800 + rng.Int64N(1200)
		for f.acknowledged.Load() < goal {
			f.push(t)
		}
		require.NoError(t, relay.Process.Kill())
		_ = relay.Wait() // it was killed
		t.Logf("round %d: killed with %d events acknowledged", round, f.acknowledged.Load())
		relay = f.start(t)
	}
	delivered, letters := map[string]int{}, map[string]int{}
	missing := func() (n int) {
		for id := range f.acknowledgedIDs {
			if delivered[id] == 0 && letters[id] == 0 {
				n++
			}
		}
		return n
	}
	waiting.While(t, func() any { return missing() }, func() bool {
		clear(delivered)
		clear(letters)
		for rec, err := range readback.Records(f.sink) {
			if err == nil {
				delivered[rec.ID()]++
			}
		}
		err := console.NewClient(f.dataDir).Letters(t.Context(), console.ListLetters{}, func(l *console.Letter) error {
			letters[l.ID]++
			return nil
		})
		return err == nil && missing() == 0
	})
	again := 0
	for id, n := range letters {
		again += n - 1
		assert.Zero(t, delivered[id], "%s is refused, and was delivered", id)
	}
	t.Logf("%d acknowledged, %d delivered, %d dead letters and %d of them twice", f.acknowledged.Load(), len(delivered), len(letters), again)
	assert.NoError(t, relay.Process.Kill())
	_ = relay.Wait() // it was killed
}

// flood is a relay whose one sink withholds two of three events.
type flood struct {
	config, dataDir, sink, ingest string
	acknowledged                  atomic.Int64
	acknowledgedIDs               map[string]bool
	next                          int
}

func newFlood(t *testing.T) *flood {
	t.Helper()
	dir := t.TempDir()
	f := &flood{
		config: filepath.Join(dir, "relay.yaml"), dataDir: filepath.Join(dir, "data"), sink: filepath.Join(dir, "out.jsonl"),
		ingest: freeAddress(t), acknowledgedIDs: map[string]bool{},
	}
	text := fmt.Sprintf(`data_dir: %s
ingest: {listen: "%s"}
admin: {listen: "%s"}
sinks: [{name: strict, batch_events: 300, redact: {remove: [/email], missing: withhold}, file: {path: %s}}]
environments: [{project: acme, environment: live, credentials: [{username: u, password: "${PUSH_PASSWORD}"}]}]
`, f.dataDir, f.ingest, freeAddress(t), f.sink)
	require.NoError(t, os.WriteFile(f.config, []byte(text), 0o600))
	return f
}

const floodPassword = "correct-horse-battery-staple"

func (f *flood) start(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("auditrelay", "run", "--config", f.config)
	cmd.Env = append(os.Environ(), "PUSH_PASSWORD="+floodPassword)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// push pushes 200 events, and notes them if they are acknowledged. A missing relay
// is no failure yet.
func (f *flood) push(t *testing.T) {
	t.Helper()
	var ids, values []string
	for range 200 {
		f.next++
		id := fmt.Sprintf("e%d", f.next)
		body := fmt.Sprintf(`{"event_id":%q,"action":"login"}`, id)
		if f.next%3 == 0 {
			body = fmt.Sprintf(`{"event_id":%q,"action":"login","email":"a@example.com"}`, id)
		}
		line, err := json.Marshal(body)
		require.NoError(t, err)
		ids, values = append(ids, id), append(values, fmt.Sprintf(`["%d",%s]`, time.Now().UnixNano(), line))
	}
	body := `{"streams":[{"stream":{"app":"idp"},"values":[` + strings.Join(values, ",") + `]}]}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+f.ingest+"/loki/api/v1/push", strings.NewReader(body))
	require.NoError(t, err)
	req.SetBasicAuth("u", floodPassword)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		f.acknowledged.Add(int64(len(ids)))
		for _, id := range ids {
			f.acknowledgedIDs[id] = true
		}
	}
}
