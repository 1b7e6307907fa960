package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks"
)

// runsWith gives a process its configuration.
func runsWith(p *process, cfg *config.Config) *process {
	p.apply(cfg)
	return p
}

// gated is the section of a sink that a test holds up.
type gated struct {
	Gate  string `yaml:"gate"`
	Wrong bool   `yaml:"wrong"`
}

func (*gated) SetDefaults()               {}
func (*gated) Problems() []config.Problem { return nil }

// gates are the sinks of a test that it can hold up, and what they got, by their gates' names.
type gates struct {
	mu   sync.Mutex
	held map[string]chan struct{} // guarded by mu
	got  map[string][]string      // ids of pushed events; guarded by mu
	at   map[string]int           // deliveries under way; guarded by mu
}

func newGates() *gates {
	return &gates{held: map[string]chan struct{}{}, got: map[string][]string{}, at: map[string]int{}}
}

func (g *gates) kinds() sinks.Kinds {
	return sinks.Kinds{sinks.NewKind("gated", func(s *gated, _ sinks.Options) (relay.Sink, error) {
		if s.Wrong {
			return nil, errors.New("gated.wrong: it is set")
		}
		return &gatedSink{g, s.Gate}, nil
	})}
}

// hold makes deliveries through a gate wait, whatever their contexts say, until it is opened.
func (g *gates) hold(name string) (open func()) {
	wait := make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[name] = wait
	return sync.OnceFunc(func() { close(wait) })
}

func (g *gates) ids(name string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.got[name])
}

func (g *gates) underWay(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.at[name]
}

type gatedSink struct {
	gates *gates
	name  string
}

func (s *gatedSink) Deliver(_ context.Context, events []relay.Event) error {
	s.gates.mu.Lock()
	wait := s.gates.held[s.name]
	s.gates.at[s.name]++
	s.gates.mu.Unlock()
	if wait != nil {
		<-wait
	}
	s.gates.mu.Lock()
	defer s.gates.mu.Unlock()
	s.gates.at[s.name]--
	for i := range events {
		if events[i].Source != relay.TrailSource {
			s.gates.got[s.name] = append(s.gates.got[s.name], events[i].ID)
		}
	}
	return nil
}

func (*gatedSink) Close() error { return nil }

func gatedSinkNamed(name, gate string) config.Sink {
	return config.Sink{Name: name, Custom: &config.Custom{Kind: "gated", Section: &gated{Gate: gate}}}
}

// reloadable is a relay whose configuration a test edits.
type reloadable struct {
	*running
	client *console.Client
	gates  *gates
	level  *slog.LevelVar

	mu   sync.Mutex
	file func() (*config.Config, error) // guarded by mu
}

func startReloadable(t *testing.T, cfg *config.Config) *reloadable {
	t.Helper()
	return startPatient(t, cfg, time.Hour)
}

func startPatient(t *testing.T, cfg *config.Config, patience time.Duration) *reloadable {
	t.Helper()
	r := &reloadable{gates: newGates(), level: new(slog.LevelVar)}
	read := func() (*config.Config, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.file()
	}
	var source config.Source
	source.Again = func(func(string) bool) (*config.Config, config.Source, error) {
		cfg, err := read()
		return cfg, source, err
	}
	r.running = startWith(t, cfg, Options{
		Logger: slog.New(slog.DiscardHandler), Kinds: r.gates.kinds(),
		Reloads: Reloads{
			Level: r.level, Source: source, Patience: patience,
			Load: func(string) (Loaded, error) {
				cfg, err := read()
				return Loaded{Config: cfg, Source: source}, err
			},
		},
	})
	r.client = console.NewClient(cfg.DataDir)
	return r
}

// edit writes the configuration file; change is given a copy of the one that a test began with.
func (r *reloadable) edit(cfg *config.Config, change func(*config.Config)) {
	edited := *cfg
	edited.Sinks, edited.Environments = slices.Clone(cfg.Sinks), slices.Clone(cfg.Environments)
	change(&edited)
	edited.SetDefaults()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file = func() (*config.Config, error) { return &edited, edited.Validate() }
}

func (r *reloadable) reload() (console.Reloaded, error) {
	r.t.Helper()
	return r.client.Reload(r.t.Context(), console.Reload{})
}

// mustReload applies an edited configuration.
func (r *reloadable) mustReload(cfg *config.Config, change func(*config.Config)) console.Reloaded {
	r.t.Helper()
	r.edit(cfg, change)
	done, err := r.reload()
	require.NoError(r.t, err)
	require.True(r.t, done.Applied, "%+v", done.Changes)
	return done
}

func (r *reloadable) mustPush(ids ...string) {
	r.t.Helper()
	code, body := r.push(ids...)
	require.Equal(r.t, 204, code, body)
}

// Sinks are added, changed and removed while the relay runs, and each event is at each sink that
// had its turn.
func TestReloadOfSinks(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir(), gatedSinkNamed("a", "a"))
	r := startReloadable(t, cfg)
	r.mustPush("one")
	waiting.Until(t, func() bool { return slices.Contains(r.gates.ids("a"), "one") })

	done := r.mustReload(cfg, func(c *config.Config) {
		c.Sinks[1] = gatedSinkNamed("a", "changed")
		c.Sinks = append(c.Sinks, gatedSinkNamed("b", "b"))
		c.Log.Level = "debug"
	})
	var fields []string
	for _, c := range done.Changes {
		fields = append(fields, c.Field)
	}
	assert.Equal(t, []string{"log.level", "sinks[a].gated.gate", "sinks[b]"}, fields)
	assert.Empty(t, done.ChangingOver)
	assert.Equal(t, slog.LevelDebug, r.level.Level())
	r.mustPush("two")
	waiting.Until(t, func() bool {
		return slices.Contains(r.gates.ids("changed"), "two") && slices.Contains(r.gates.ids("b"), "two")
	})
	assert.Equal(t, []string{"two"}, r.gates.ids("changed"), "the position was kept")
	assert.Equal(t, []string{"one"}, r.gates.ids("a"), "the old edition gets nothing more")
	assert.Equal(t, []string{"one", "two"}, r.gates.ids("b"), "a new sink gets what the journal has, as after a start with it")

	r.mustReload(cfg, func(c *config.Config) { c.Sinks = c.Sinks[:1] })
	assert.Equal(t, "no such metric", r.metric(`auditrelay_sink_lag_events{sink="a"}`))
	// Until its delivery has ended, it may still get what is pushed.
	waiting.Until(t, func() bool { return r.metric(`auditrelay_sink_attempts_total{sink="a"}`) == "no such metric" })
	r.mustPush("three")
	r.arrived("one", "two", "three")

	r.mustReload(cfg, func(*config.Config) {})
	waiting.Until(t, func() bool { return slices.Contains(r.gates.ids("a"), "three") })
	assert.Equal(t, []string{"one", "three"}, r.gates.ids("a"), "a sink that comes back goes on from its position")
	require.NoError(t, r.stop())
}

// A sink that hangs, and does not even hear that it is to end, holds up nobody else, and is not
// dead afterwards. What it had under way may come twice.
func TestReloadWithASinkThatHangs(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir(), gatedSinkNamed("hangs", "stuck"), gatedSinkNamed("works", "before"))
	r := startPatient(t, cfg, 50*time.Millisecond)
	open := r.gates.hold("stuck")
	defer open()
	r.mustPush("one")
	waiting.Until(t, func() bool { return r.gates.underWay("stuck") > 0 && slices.Contains(r.gates.ids("before"), "one") })

	done := r.mustReload(cfg, func(c *config.Config) {
		c.Sinks[1], c.Sinks[2] = gatedSinkNamed("hangs", "free"), gatedSinkNamed("works", "after")
	})
	assert.Contains(t, done.ChangingOver, "hangs")
	r.mustPush("two")
	waiting.Until(t, func() bool { return slices.Contains(r.gates.ids("after"), "two") })
	assert.Equal(t, []string{"two"}, r.gates.ids("after"))
	assert.Empty(t, r.gates.ids("free"), "two editions of a sink never deliver at once")

	done = r.mustReload(cfg, func(c *config.Config) { // once more, while it still hangs
		c.Sinks[1], c.Sinks[2] = gatedSinkNamed("hangs", "freed"), gatedSinkNamed("works", "last")
	})
	assert.Contains(t, done.ChangingOver, "hangs")
	open()
	waiting.Until(t, func() bool { return slices.Contains(r.gates.ids("freed"), "two") })
	assert.Empty(t, r.gates.ids("free"), "the newest edition counts")
	require.NoError(t, r.stop())
}

// Either all of a configuration is applied or nothing, and the last failure is shown until a
// reload succeeds.
func TestReloadIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := testConfig(dir, gatedSinkNamed("a", "a"))
	r := startReloadable(t, cfg)
	const successful = "auditrelay_config_last_reload_successful"
	_, before := r.get("/status")
	assert.Equal(t, "1", r.metric(successful))
	for name, c := range map[string]struct {
		change  func(*config.Config)
		restart string
		message string
	}{
		"a field that takes a restart": {change: func(c *config.Config) { c.Journal.MaxBytes /= 2 }, restart: "journal.max_bytes"},
		"a sink that cannot be opened": {change: func(c *config.Config) {
			c.Sinks = append(c.Sinks, config.Sink{Name: "w", Custom: &config.Custom{Kind: "gated", Section: &gated{Wrong: true}}})
		}, message: "gated.wrong: it is set"},
		"a file with an error": {change: func(c *config.Config) { c.Log.Level = "loud" }, message: "log.level"},
	} {
		r.edit(cfg, func(e *config.Config) {
			e.Sinks[1] = gatedSinkNamed("a", "half")
			e.Log.Level = "debug"
			c.change(e)
		})
		done, err := r.reload()
		if c.restart != "" {
			require.NoError(t, err, name)
			require.Len(t, done.Restarts(), 1, name)
			assert.Equal(t, c.restart, done.Restarts()[0].Field)
		} else {
			require.ErrorContains(t, err, c.message, name)
		}
		assert.False(t, done.Applied, name)
		assert.Equal(t, "0", r.metric(successful), name)
		_, status := r.get("/status")
		assert.Contains(t, status, c.message+c.restart, name)
		assert.Equal(t, slog.LevelInfo, r.level.Level(), name)
	}
	assert.NotContains(t, before, `"failed"`)
	r.mustPush("one")
	waiting.Until(t, func() bool { return slices.Contains(r.gates.ids("a"), "one") })
	assert.Empty(t, r.gates.ids("half"))

	r.edit(cfg, func(c *config.Config) { c.Sinks[1] = gatedSinkNamed("a", "whole") })
	plan, err := r.client.Reload(t.Context(), console.Reload{DryRun: true})
	require.NoError(t, err)
	assert.Len(t, plan.Changes, 1)
	assert.False(t, plan.Applied)
	assert.Equal(t, "0", r.metric(successful), "a dry run changes nothing, not even this")
	done, err := r.reload()
	require.NoError(t, err)
	assert.True(t, done.Applied)
	assert.Equal(t, "1", r.metric(successful))
	require.NoError(t, r.stop())
}

// Events that are pushed while a sink changes over again and again all arrive, in their order, and
// of each change over at most a batch comes twice.
func TestReloadsUnderLoad(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir(), gatedSinkNamed("a", "0"))
	r := startReloadable(t, cfg)
	const reloads, each = 10, 20
	var all []string
	for n := range reloads {
		for i := range each {
			id := fmt.Sprintf("%d-%d", n, i)
			all = append(all, id)
			r.mustPush(id)
		}
		r.mustReload(cfg, func(c *config.Config) { c.Sinks[1] = gatedSinkNamed("a", fmt.Sprint(n+1)) })
	}
	got := func() (ids []string) {
		for n := range reloads + 1 {
			ids = append(ids, r.gates.ids(fmt.Sprint(n))...)
		}
		return ids
	}
	waiting.While(t, func() any { return len(got()) }, func() bool { return slices.Contains(got(), all[len(all)-1]) })
	assert.Equal(t, all, got())
	require.NoError(t, r.stop())
}
