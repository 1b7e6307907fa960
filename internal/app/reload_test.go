package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// runsWith gives a process its configuration.
func runsWith(p *process, cfg *config.Config) *process {
	p.apply(cfg)
	return p
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
	assert.Contains(t, done.Changes[2].Reason, "begins with the oldest event that is stored", "a sink that was renamed is another one")
	assert.Empty(t, done.ChangingOver)
	assert.Equal(t, slog.LevelDebug, r.level.Level())
	r.mustPush("two")
	waiting.Until(t, func() bool {
		return slices.Contains(r.gates.ids("changed"), "two") && slices.Contains(r.gates.ids("b"), "two")
	})
	assert.Equal(t, []string{"two"}, r.gates.ids("changed"), "the position was kept")
	assert.Equal(t, []string{"one"}, r.gates.ids("a"), "the old edition gets nothing more")
	assert.Equal(t, []string{"one", "two"}, r.gates.ids("b"), "a new sink gets what the journal has, as after a start with it")

	done = r.mustReload(cfg, func(c *config.Config) { c.Sinks = c.Sinks[:1] })
	assert.Contains(t, done.Changes[1].Reason, "are kept until 'auditrelay sinks retire' gives them up")
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

// A reload uses the files as they are, and whoever looks at the metric right after it sees that.
func TestAReloadMendsFilesThatCouldNotBeUsed(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	r := startReloadable(t, cfg)
	wrong := "there is no ca.crt"
	r.process.reload.files.Store(&wrong)
	assert.Equal(t, "0", r.usable())
	r.mustReload(cfg, func(*config.Config) {})
	assert.Equal(t, "1", r.usable())
	require.NoError(t, r.stop())
}

// A relay that is told to stop in the middle of a reload neither waits for it nor is held up by it.
func TestAStopDuringAReload(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir(), gatedSinkNamed("a", "before"))
	cfg.ShutdownTimeout = 20 * time.Second
	r := startReloadable(t, cfg)
	open := r.gates.hold("opening slow")
	defer open()
	r.edit(cfg, func(c *config.Config) {
		c.Environments[0].Quota.EventsPerSecond = 100
		c.Sinks[1] = gatedSinkNamed("a", "slow")
	})
	reloaded := make(chan struct{})
	go func() {
		defer close(reloaded)
		_, _ = r.reload()
	}()
	waiting.Until(t, func() bool { return r.gates.underWay("opening slow") > 0 })
	began, stopped := time.Now(), make(chan error, 1)
	go func() { stopped <- r.stop() }()
	waiting.Until(t, func() bool {
		_, err := r.client.Sinks(t.Context())
		return errors.Is(err, console.ErrNoRelay)
	}, "the console does not stop")
	open()
	require.NoError(t, <-stopped)
	assert.Less(t, time.Since(began), 10*time.Second)
	<-reloaded // it was applied, or broken off
}

// What waits for a reload that waits for a sink that hangs, such as a look at the files, ends with the
// relay, and leaves the rest of the stop its time.
func TestAStopDuringAReloadThatWaits(t *testing.T) {
	t.Parallel()
	load := func(string) (Loaded, error) { return Loaded{}, errors.New("it was not told to stop") }
	p := newProcess(testConfig(t.TempDir()), Options{Logger: slog.New(slog.DiscardHandler), Reloads: Reloads{Load: load}})
	close(p.up)
	require.NoError(t, p.reload.take(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	(&follower{process: p}).look(ctx)
	_, err := p.Reload(ctx, console.Reload{})
	require.ErrorIs(t, err, context.Canceled)
	p.reload.giveBack()
	_, err = p.Reload(t.Context(), console.Reload{})
	require.ErrorContains(t, err, "it was not told to stop")
}

// A replay to a sink that hangs leaves the rest of a stop the time that it needs.
func TestAStopDuringAReplayThatHangs(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir(), gatedSinkNamed("hangs", "stuck"))
	cfg.ShutdownTimeout = 3 * time.Second
	r := startReloadable(t, cfg)
	r.mustPush("one")
	waiting.Until(t, func() bool { return slices.Contains(r.gates.ids("stuck"), "one") })
	open := r.gates.hold("stuck")
	defer open()
	go func() {
		_ = r.client.ReplaySpan(t.Context(), console.ReplaySpan{Sink: "hangs", Since: time.Now().Add(-time.Hour)}, func(*console.Progress) {}) // it is broken off
	}()
	waiting.Until(t, func() bool { return r.gates.underWay("stuck") > 0 })
	err := r.stop()
	require.ErrorContains(t, err, "stop console: ")
	assert.NotContains(t, err.Error(), "audit trail", "it was not signed to its end")
}

// Sinks that exchange what only one may write, such as their files, never write it at once.
func TestReloadExchangesPlaces(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir(), placedSinkNamed("a", "a", "x"), placedSinkNamed("b", "b", "y"))
	r := startPatient(t, cfg, 50*time.Millisecond)
	open := r.gates.hold("a")
	defer open()
	r.mustPush("one")
	waiting.Until(t, func() bool { return r.gates.underWay("a") > 0 && slices.Contains(r.gates.ids("b"), "one") })

	done := r.mustReload(cfg, func(c *config.Config) {
		c.Sinks[1], c.Sinks[2] = placedSinkNamed("a", "a", "y"), placedSinkNamed("b", "b at x", "x")
	})
	assert.Contains(t, done.ChangingOver, "b", "it writes x at the same time as a")
	waiting.Until(t, func() bool { // its old edition may just be ending
		err := r.client.ReplaySpan(t.Context(), console.ReplaySpan{Sink: "b", Since: time.Now().Add(-time.Hour)}, func(*console.Progress) {})
		return err != nil && strings.Contains(err.Error(), "which a reload is changing at present")
	})
	done = r.mustReload(cfg, func(c *config.Config) { c.Sinks = append(c.Sinks[:1:1], placedSinkNamed("c", "c at x", "x")) })
	assert.Equal(t, []string{"c"}, done.ChangingOver)
	open()
	r.mustPush("two")
	waiting.Until(t, func() bool { return slices.Contains(r.gates.ids("c at x"), "two") })
	assert.Empty(t, r.gates.ids("b at x"))
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
		plan, planErr := r.client.Reload(t.Context(), console.Reload{DryRun: true})
		done, err := r.reload()
		if c.restart != "" {
			require.NoError(t, err, name)
			require.Len(t, done.Restarts(), 1, name)
			assert.Equal(t, c.restart, done.Restarts()[0].Field)
			assert.Equal(t, done.Changes, plan.Changes, "a dry run tells of it, too")
			assert.Empty(t, plan.Refused)
		} else {
			require.ErrorContains(t, err, c.message, name)
			assert.Contains(t, fmt.Sprint(plan.Refused, planErr), c.message, "a dry run tells of it, too")
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

// Reloads that are asked for at once are applied one after the other, and dry runs come between them.
func TestReloadsAtOnce(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir(), gatedSinkNamed("a", "before"))
	r := startReloadable(t, cfg)
	r.edit(cfg, func(c *config.Config) { c.Sinks[1] = gatedSinkNamed("a", "after") })
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			done, err := r.client.Reload(t.Context(), console.Reload{DryRun: n%2 == 0})
			assert.NoError(t, err)
			assert.Equal(t, n%2 != 0, done.Applied)
		})
	}
	all.Wait()
	r.mustPush("one")
	waiting.Until(t, func() bool { return slices.Contains(r.gates.ids("after"), "one") })
	assert.Equal(t, []string{"one"}, r.gates.ids("after"))
	assert.Empty(t, r.gates.ids("before"))
	require.NoError(t, r.stop())
}

// A signal during the start is not lost, and its reload begins when the start has been told.
func TestASignalDuringTheStart(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir(), gatedSinkNamed("a", "a"))
	asked, told := make(chan os.Signal, 1), make(chan string, 3)
	asked <- syscall.SIGHUP
	r := startWith(t, cfg, Options{
		Logger: slog.New(slog.DiscardHandler), Kinds: newGates().kinds(), Started: func(Addresses) { told <- "the start" },
		Reloads: Reloads{
			Asked: asked, Load: func(string) (Loaded, error) { return Loaded{Config: cfg}, nil },
			Begun: func() func(string) {
				told <- "a reload"
				return func(refused string) { told <- refused }
			},
		},
	})
	assert.Equal(t, "the start", <-told)
	assert.Equal(t, "a reload", <-told)
	assert.Empty(t, <-told)
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
