package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// relayVariable in the environment makes the test's binary one relay.
const relayVariable = "AUDITRELAY_TEST_RELAY"

// member is one of several relays on a cluster, in a process of its own.
type member struct {
	Dir, Name, URL, Ingest, Admin string
	Sinks                         map[string]string // addresses of receivers, by name
}

func (m *member) config() *config.Config {
	cfg := inCluster(m.Dir, m.Name, m.URL)
	cfg.Ingest.Listen, cfg.Admin.Listen = m.Ingest, m.Admin
	for name, url := range m.Sinks {
		cfg.Sinks = append(cfg.Sinks, config.Sink{Name: name, Webhook: &config.Webhook{URL: secret.New(url)}})
	}
	slices.SortFunc(cfg.Sinks, func(a, b config.Sink) int { return strings.Compare(a.Name, b.Name) })
	cfg.SetDefaults()
	return cfg
}

func beRelay(spec string) int {
	var m member
	if err := json.Unmarshal([]byte(spec), &m); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := Run(ctx, m.config(), Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process runs a relay.
func (m *member) process(t *testing.T) (*running, *exec.Cmd) {
	t.Helper()
	m.Ingest, m.Admin = freeAddress(t), freeAddress(t)
	spec, err := json.Marshal(m)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self) //nolint:gosec,noctx // the test's own binary, which the test ends
	cmd.Env = append(os.Environ(), relayVariable+"="+string(spec))
	log, err := os.Create(filepath.Join(m.Dir, m.Name+".log"))
	require.NoError(t, err)
	cmd.Stderr = log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("log of %s:\n%s", m.Name, text)
		}
	})
	r := &running{t: t, data: m.config().DataDir, Addresses: Addresses{Ingest: m.Ingest, Admin: m.Admin}}
	waiting.Until(t, func() bool {
		resp, err := http.Get("http://" + m.Admin + "/readyz") //nolint:noctx // loopback
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}, m.Name+" does not take pushes")
	return r, cmd
}

// hooks counts the events that webhooks bring, by sink.
type hooks struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string]map[string]int
	odd []string // types of entries that tell of damage
}

func receive(t *testing.T) *hooks {
	t.Helper()
	r := &hooks{got: map[string]map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var events []struct{ ID, Type string }
		if err == nil {
			err = json.Unmarshal(body, &events)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		sink := strings.TrimPrefix(req.URL.Path, "/")
		if r.got[sink] == nil {
			r.got[sink] = map[string]int{}
		}
		for _, e := range events {
			r.got[sink][e.ID]++
			if slices.Contains([]string{"journal.quarantined", "trail.damaged", "trail.generation"}, e.Type) {
				r.odd = append(r.odd, e.Type)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// has reports whether each sink has all of the events.
func (r *hooks) has(sinks map[string]string, ids []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sink := range sinks {
		for _, id := range ids {
			if r.got[sink][id] == 0 {
				return false
			}
		}
	}
	return true
}

// sender pushes events to the relays in turn, and to the next one where one does not take them.
type sender struct {
	mu    sync.Mutex
	to    []*running // guarded by mu
	acked []string   // guarded by mu
	stop  chan struct{}
	done  sync.WaitGroup
}

func (s *sender) run() {
	s.stop = make(chan struct{})
	s.done.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-s.stop:
				return
			default:
			}
			id := fmt.Sprintf("e%d", i)
			for try := i; !s.push(try, id); try++ { //nolint:revive // until one takes it
			}
		}
	})
}

func (s *sender) push(try int, id string) bool {
	s.mu.Lock()
	to := s.to[try%len(s.to)]
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), waiting.Stall/10)
	defer cancel()
	body := fmt.Sprintf(`{"streams":[{"stream":{"app":"idp"},"values":[["1700000000000000000","{\"event_id\":\"%s\"}"]]}]}`, id)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.Ingest+"/loki/api/v1/push", strings.NewReader(body))
	if err != nil {
		return false
	}
	req.SetBasicAuth("u", "a-password-of-some-length")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusNoContent {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = append(s.acked, id)
	return true
}

func (s *sender) use(to ...*running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = to
}

func (s *sender) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acked)
}

// Relays are killed, frozen and told to leave while pushes come. Nothing that was acknowledged is
// lost, the trail has no fork, and what was frozen moves no position when it comes back.
func TestRelaysOutliveEachOther(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits for relays to be declared dead")
	}
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	dir, destination := t.TempDir(), receive(t)
	sinks := map[string]string{}
	for _, sink := range []string{"s1", "s2", "s3", "s4", "s5"} {
		sinks[sink] = destination.URL + "/" + sink
	}
	join := func(name string) (*running, *exec.Cmd) {
		return (&member{Dir: dir, Name: name, URL: srv.ClientURL(), Sinks: sinks}).process(t)
	}
	a, killed := join("a")
	waiting.Until(t, func() bool { return slices.Contains(a.jobs(), "control") })
	b, frozen := join("b")
	c, other := join("c")
	all := append([]string{"control"}, "sink/s1", "sink/s2", "sink/s3", "sink/s4", "sink/s5")
	done := func(relays ...*running) bool {
		var jobs []string
		for _, r := range relays {
			jobs = append(jobs, r.jobs()...)
		}
		return slices.Equal(all, slices.Sorted(slices.Values(jobs)))
	}
	waiting.Until(t, func() bool { return len(a.jobs()) == 2 && len(b.jobs()) == 2 && len(c.jobs()) == 2 }, "the jobs are not spread")

	pushes := &sender{}
	pushes.use(a, b, c)
	pushes.run()
	more := func() {
		t.Helper()
		n := pushes.count() + 50
		waiting.Until(t, func() bool { return pushes.count() >= n }, "no pushes are taken")
	}
	more()
	require.NoError(t, killed.Process.Kill())
	pushes.use(b, c)
	more()
	waiting.Until(t, func() bool { return done(b, c) }, "the killed relay's jobs are not done")
	if slices.Contains(b.jobs(), "control") { // its holder would end after it was frozen
		b, c, frozen = c, b, other
	}
	require.NoError(t, frozen.Process.Signal(syscall.SIGSTOP))
	pushes.use(c)
	more()
	waiting.Until(t, func() bool { return done(c) }, "the frozen relay's jobs are not done")
	more()
	require.NoError(t, frozen.Process.Signal(syscall.SIGCONT))
	waiting.Until(t, func() bool { return done(b, c) && len(b.jobs()) == 3 }, "the frozen relay does not come back")
	pushes.use(b, c)
	more()
	d, _ := join("d")
	require.NoError(t, frozen.Process.Signal(syscall.SIGTERM))
	pushes.use(c, d)
	waiting.Until(t, func() bool { return done(c, d) }, "who leaves does not give its jobs away")
	more()
	close(pushes.stop)
	pushes.done.Wait()
	waiting.Until(t, func() bool { return destination.has(sinks, pushes.acked) }, "acknowledged events are missing")
	destination.mu.Lock()
	defer destination.mu.Unlock()
	twice := 0
	for sink := range sinks {
		for id, n := range destination.got[sink] {
			assert.LessOrEqual(t, n, 4, "%s at %s", id, sink)
			twice += n - 1
		}
	}
	t.Logf("%d pushes acknowledged, %d further copies at %d sinks", len(pushes.acked), twice, len(sinks))
	assert.Empty(t, destination.odd, "positions were lost, or the trail has a fork")
	for _, r := range []*running{c, d} {
		if slices.Contains(r.jobs(), "control") {
			_, body := r.get("/readyz")
			assert.NotContains(t, body, "not_ready")
			t.Log(body)
		}
	}
	assert.Equal(t, "0", c.metric("auditrelay_journal_positions_distrusted_total"))
	assert.Equal(t, "0", d.metric("auditrelay_journal_positions_distrusted_total"))
}

// A frozen holder of control is replaced. When it comes back it ends, and its supervisor restarts
// it: it has entered nothing into the trail, and trimmed nothing.
func TestAFrozenHolderOfControlEnds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits for a relay to be declared dead")
	}
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	dir, destination := t.TempDir(), receive(t)
	sinks := map[string]string{"s1": destination.URL + "/s1"}
	a, frozen := (&member{Dir: dir, Name: "a", URL: srv.ClientURL(), Sinks: sinks}).process(t)
	waiting.Until(t, func() bool { return len(a.jobs()) == 2 })
	b, _ := (&member{Dir: dir, Name: "b", URL: srv.ClientURL(), Sinks: sinks}).process(t)
	waiting.Until(t, func() bool { return slices.Equal(b.jobs(), []string{"sink/s1"}) })
	code, body := b.push("before")
	require.Equal(t, http.StatusNoContent, code, body)
	require.NoError(t, frozen.Process.Signal(syscall.SIGSTOP))
	waiting.Until(t, func() bool { return len(b.jobs()) == 2 }, "the frozen relay's control is not taken over")
	code, body = b.push("during")
	require.Equal(t, http.StatusNoContent, code, body)
	require.NoError(t, frozen.Process.Signal(syscall.SIGCONT))
	var exit *exec.ExitError
	require.ErrorAs(t, frozen.Wait(), &exit)
	log, err := os.ReadFile(filepath.Join(dir, "a.log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), errTurnLost.Error())
	code, body = b.push("after")
	require.Equal(t, http.StatusNoContent, code, body)
	waiting.Until(t, func() bool { return destination.has(sinks, []string{"before", "during", "after"}) })
	destination.mu.Lock()
	defer destination.mu.Unlock()
	for id, n := range destination.got["s1"] {
		assert.Equal(t, 1, n, "%s", id)
	}
	assert.Empty(t, destination.odd)
}

// A relay is frozen, and its journal is moved away. When it goes on, it takes no push, delivers
// nothing, and ends.
func TestAFrozenRelayOfAMovedJournalEnds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a move waits for relays that are frozen")
	}
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	dir, destination := t.TempDir(), receive(t)
	sinks := map[string]string{"s1": destination.URL + "/s1", "s2": destination.URL + "/s2"}
	a, stopped := (&member{Dir: dir, Name: "a", URL: srv.ClientURL(), Sinks: sinks}).process(t)
	waiting.Until(t, func() bool { return len(a.jobs()) == 3 })
	b, frozen := (&member{Dir: dir, Name: "b", URL: srv.ClientURL(), Sinks: sinks}).process(t)
	waiting.Until(t, func() bool { return len(b.jobs()) == 1 }, "it does no sink's job")
	code, body := b.push("before")
	require.Equal(t, http.StatusNoContent, code, body)
	waiting.Until(t, func() bool { return destination.has(sinks, []string{"before"}) })
	require.NoError(t, frozen.Process.Signal(syscall.SIGSTOP))
	require.NoError(t, stopped.Process.Kill())
	_ = stopped.Wait() // it was killed
	config := inCluster(dir, "a", srv.ClientURL())
	_, err := MoveJournal(t.Context(), config, Home{}, moveOptions())
	require.NoError(t, err)
	ends := func() (all []uint64) {
		for _, log := range []string{"EVENTS", "TRAIL-ENTRIES", "TRAIL-CHECKPOINTS", "QUARANTINE"} {
			stream, err := natstest.JetStream(t, srv).Stream(t.Context(), "AUDITRELAY_"+log)
			require.NoError(t, err)
			all = append(all, stream.CachedInfo().State.LastSeq)
		}
		return all
	}
	before := ends()
	destination.mu.Lock()
	had := len(destination.got["s1"]) + len(destination.got["s2"])
	destination.mu.Unlock()

	ended := make(chan error, 1)
	require.NoError(t, frozen.Process.Signal(syscall.SIGCONT))
	go func() { ended <- frozen.Wait() }()
	late := &sender{}
	late.use(b)
	for alive := true; alive; {
		select {
		case err = <-ended:
			alive = false
		default:
			assert.False(t, late.push(0, "late"))
		}
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	log, err := os.ReadFile(filepath.Join(dir, "b.log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), "this journal was moved to the data directory")
	assert.Equal(t, before, ends())
	destination.mu.Lock()
	defer destination.mu.Unlock()
	assert.Equal(t, had, len(destination.got["s1"])+len(destination.got["s2"]))
	for id, n := range destination.got["s1"] {
		assert.Equal(t, 1, n, id)
	}
}
