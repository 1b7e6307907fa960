package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// running is a relay in this process.
type running struct {
	Addresses
	t       *testing.T
	process *process // nil: it is in a process of its own
	path    string   // of the file sink
	data    string   // data_dir
	stop    func() error
}

func testConfig(dir string, sinks ...config.Sink) *config.Config {
	cfg := &config.Config{
		DataDir: filepath.Join(dir, "data"),
		Environments: []config.Environment{{
			Project: "acme", Environment: "live",
			Credentials: []config.Credential{
				{Username: "u", Password: secret.New("a-password-of-some-length")},
				{APIKey: secret.New("0123456789abcdef0123456789abcdef")},
			},
		}},
		Ingest: config.Ingest{Listen: "127.0.0.1:0"},
		Admin:  config.Admin{Listen: "127.0.0.1:0"},
		Sinks:  append([]config.Sink{{Name: "file", File: &config.File{Path: filepath.Join(dir, "out", "events.jsonl")}}}, sinks...),
	}
	cfg.SetDefaults()
	return cfg
}

func start(t *testing.T, cfg *config.Config) *running {
	t.Helper()
	return startWith(t, cfg, Options{Logger: slog.New(slog.DiscardHandler)})
}

func startWith(t *testing.T, cfg *config.Config, o Options) *running {
	t.Helper()
	require.NoError(t, cfg.Validate())
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan Addresses, 1), make(chan error, 1)
	told := o.Started
	o.Started = func(a Addresses) {
		if told != nil {
			told(a)
		}
		started <- a
	}
	r := &running{t: t, data: cfg.DataDir, process: newProcess(cfg, o)}
	go func() { ended <- r.process.serveUntil(ctx, o) }() // as Run does
	if file := cfg.Sinks[0].File; file != nil {
		r.path = file.Path
	}
	r.stop = func() error { cancel(); return <-ended }
	select {
	case r.Addresses = <-started:
	case err := <-ended:
		require.NoError(t, err)
		t.Fatal("the relay ended at once")
	}
	return r
}

func (r *running) push(ids ...string) (int, string) {
	r.t.Helper()
	var values []string
	for i, id := range ids {
		line, err := json.Marshal(fmt.Sprintf(`{"event_id":%q,"action":"LOGIN"}`, id))
		require.NoError(r.t, err)
		values = append(values, fmt.Sprintf(`["%d",%s]`, time.Now().UnixNano()+int64(i), line))
	}
	return r.pushLoki(`{"streams":[{"stream":{"app":"idp"},"values":[` + strings.Join(values, ",") + `]}]}`)
}

func (r *running) pushLoki(body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+r.Ingest+"/loki/api/v1/push", strings.NewReader(body))
	require.NoError(r.t, err)
	req.SetBasicAuth("u", "a-password-of-some-length")
	req.Header.Set("Content-Type", "application/json")
	return r.do(req)
}

func (r *running) do(req *http.Request) (int, string) {
	r.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp.StatusCode, string(text)
}

// get asks the private listener, with its token.
func (r *running) get(path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+r.Admin+path, nil)
	require.NoError(r.t, err)
	rig.ShowToken(req, r.data)
	return r.do(req)
}

// incompressible is random text of n bytes.
func incompressible(n int) string {
	random := make([]byte, n/2)
	_, _ = rand.Read(random)
	return hex.EncodeToString(random)
}

// metric reads one value of /metrics.
func (r *running) metric(name string) string {
	r.t.Helper()
	_, body := r.get("/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return "no such metric"
}

// arrived waits until the file sink has the ids, and returns all it has.
func (r *running) arrived(ids ...string) map[string]readback.Record {
	r.t.Helper()
	got := map[string]readback.Record{}
	waiting.Until(r.t, func() bool {
		for rec, err := range readback.Records(r.path) {
			if err == nil {
				got[rec.ID()] = rec
			}
		}
		for _, id := range ids {
			if _, ok := got[id]; !ok {
				return false
			}
		}
		return true
	}, "events are missing at the file")
	return got
}

// written counts a file sink's pushed events, and the relay's own.
func written(path string) (pushed, own int) {
	for rec, err := range readback.Records(path) {
		switch {
		case err != nil: // it is being written
		case rec.Attributes["source"] == relay.TrailSource:
			own++
		default:
			pushed++
		}
	}
	return pushed, own
}

func TestPushedEventsArriveAsTheyWere(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t.TempDir()))
	code, body := r.push("a", "b")
	require.Equal(t, http.StatusNoContent, code, body)
	req, err := http.NewRequest(http.MethodPost, "http://"+r.Ingest+"/api/v2/logs", strings.NewReader(`[{"event_id":"c","message":"hello","ddtags":"env:x"}]`))
	require.NoError(t, err)
	req.Header.Set("DD-API-KEY", "0123456789abcdef0123456789abcdef")
	req.Header.Set("Content-Type", "application/json")
	code, body = r.do(req)
	require.Equal(t, http.StatusAccepted, code, body)

	got := r.arrived("a", "b", "c")
	assert.Equal(t, `{"event_id":"a","action":"LOGIN"}`, string(got["a"].Body))
	assert.Equal(t, "event_log.LOGIN", got["a"].Attributes["type"])
	assert.Equal(t, "/projects/acme/environments/live", got["a"].Attributes["source"])

	code, body = r.get("/readyz")
	assert.Equal(t, 200, code, body)
	code, body = r.get("/status")
	assert.Equal(t, 200, code)
	assert.Contains(t, body, "public_key")
	waiting.Until(t, func() bool {
		pushed, own := written(r.path)
		return r.metric(`auditrelay_sink_delivered_events_total{sink="file"}`) == strconv.Itoa(pushed+own)
	})
	assert.Equal(t, "1.073741824e+10", r.metric("auditrelay_journal_budget_bytes"))
	require.NoError(t, r.stop())
}

// An audit event reports a record lost on disk, once.
func TestALostRecordIsToldOfByAnAuditEvent(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	r := start(t, cfg)
	code, body := r.push("a")
	require.Equal(t, http.StatusNoContent, code, body)
	r.arrived("a")
	code, body = r.push("b")
	require.Equal(t, http.StatusNoContent, code, body)
	r.arrived("b")
	require.NoError(t, r.stop())
	lost, err := damage.Of(cfg.DataDir).FlipRecord(journal.EventsLog, 0)
	require.NoError(t, err)

	told := func() (n int) {
		for rec, err := range readback.Records(r.path) {
			if err == nil && rec.Attributes["type"] == "journal.quarantined" {
				assert.Contains(t, string(rec.Body), fmt.Sprintf(`"from":%d`, lost.Pos))
				n++
			}
		}
		return n
	}
	for range 2 {
		r = start(t, cfg)
		waiting.Until(t, func() bool { return told() > 0 })
		assert.Equal(t, "1", r.metric("auditrelay_journal_lost_records"))
		require.NoError(t, r.stop())
	}
	assert.Equal(t, 1, told())
}

func TestOneDeadSinkDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	dead := config.Sink{Name: "dead", Kafka: &config.Kafka{Brokers: []string{"127.0.0.1:1"}, Topic: "t"}}
	r := start(t, testConfig(t.TempDir(), dead))
	var ids []string
	for i := range 50 {
		ids = append(ids, fmt.Sprintf("e%d", i))
		code, body := r.push(ids[i])
		require.Equal(t, http.StatusNoContent, code, body)
	}
	r.arrived(ids...)
	r.eventually(`auditrelay_sink_failing{sink="dead"}`, "1")
	assert.Equal(t, "0", r.metric(`auditrelay_sink_failing{sink="file"}`))
	require.NoError(t, r.stop(), "a dead sink holds up the shutdown")
}

func TestASpentBudgetRefusesAloud(t *testing.T) {
	t.Parallel()
	dead := config.Sink{Name: "dead", Kafka: &config.Kafka{Brokers: []string{"127.0.0.1:1"}, Topic: "t"}}
	cfg := testConfig(t.TempDir(), dead)
	cfg.Journal.MaxBytes, cfg.Ingest.Limits.BodyBytes = 1<<20, 1<<20
	r := start(t, cfg)
	defer func() { require.NoError(t, r.stop()) }()
	var code int
	var body string
	for i := 0; code != http.StatusServiceUnavailable; i++ {
		require.Less(t, i, 100)
		code, body = r.pushLoki(fmt.Sprintf(`{"streams":[{"stream":{},"values":[["1","{\"event_id\":\"%d\",\"note\":\"%s\"}"]]}]}`, i, incompressible(40_000)))
	}
	assert.Contains(t, body, "full")
	code, body = r.get("/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code, body)
	assert.Contains(t, body, "the last push was refused: journal is full")
}

func TestAPartThatCannotStartEndsTheRelay(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	r := start(t, cfg)
	defer func() { require.NoError(t, r.stop()) }()
	err := Run(t.Context(), cfg, Options{Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, fmt.Sprintf("is in use by process %d (app.test)", os.Getpid()))

	other := testConfig(t.TempDir())
	other.Ingest.Listen = r.Ingest
	err = Run(t.Context(), other, Options{Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "ingest.listen "+r.Ingest+": ")
	require.ErrorContains(t, err, "address already in use; end the process listening there, such as another relay, or set another port")

	other.Ingest.Listen, other.Admin.Listen = "127.0.0.1:0", r.Admin
	err = Run(t.Context(), other, Options{Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "admin.listen "+r.Admin+": ")
	require.ErrorContains(t, err, "address already in use; end")
}

func TestTheStackUnwindsInOrderAndKeepsGoing(t *testing.T) {
	t.Parallel()
	var stopped []string
	s := stack{log: slog.New(slog.DiscardHandler)}
	for _, name := range []string{"a", "b", "c"} {
		s.push(name, func(context.Context) error {
			stopped = append(stopped, name)
			if name == "b" {
				return errors.New("stuck")
			}
			return nil
		})
	}
	require.EqualError(t, s.unwind(t.Context()), "stop b: stuck")
	assert.Equal(t, []string{"c", "b", "a"}, stopped)
}

func TestPushesAreRefusedAloudWhileAStartTakesLong(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Ingest.Listen = freeAddress(t)
	p := runsWith(&process{log: slog.New(slog.DiscardHandler), connections: connlimit.NewMetrics(prometheus.NewRegistry())}, cfg)
	stop := background(p.refuse)
	r := &running{t: t, Addresses: Addresses{Ingest: cfg.Ingest.Listen}}
	waiting.Until(t, func() bool {
		c, err := net.Dial("tcp", r.Ingest)
		return err == nil && c.Close() == nil
	})
	code, body := r.push("a")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, "starting")
	require.NoError(t, stop(t.Context()))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", cfg.Ingest.Listen)
	require.NoError(t, err, "the address is free for ingest itself")
	require.NoError(t, listener.Close())
}
