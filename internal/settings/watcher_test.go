package settings

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/looks"
	"github.com/auditrelay/auditrelay/internal/management"
)

// memoryTrail is a trail that fails on demand. The real one is used by
// TestWithTheRealTrail.
type memoryTrail struct {
	mu      sync.Mutex
	entries []audit.Entry
	refuse  error // before an entry is added
	lose    error // behind: the entry is there, the answer is not
	damaged map[int64]bool
	// between is called once, between a comparison and its append.
	between func()
}

func (m *memoryTrail) Last(_ context.Context, project, environment, subject string) (audit.Entry, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, found := m.last(project, environment, subject)
	return e, found, nil
}

func (m *memoryTrail) last(project, environment, subject string) (audit.Entry, bool) {
	none := audit.Entry{Index: -1}
	for i := len(m.entries) - 1; i >= 0; i-- {
		if m.damaged[int64(i)] {
			none.Unsure = true
		} else if e := m.entries[i]; e.Project == project && e.Environment == environment && e.Subject == subject {
			e.Unsure = none.Unsure
			return e, true
		}
	}
	return none, false
}

func (m *memoryTrail) AppendIf(_ context.Context, e audit.Entry, newest int64) (int64, error) {
	m.mu.Lock()
	if between := m.between; between != nil {
		m.between = nil
		m.mu.Unlock()
		between()
		m.mu.Lock()
	}
	defer m.mu.Unlock()
	last, found := m.last(e.Project, e.Environment, e.Subject)
	if m.refuse != nil {
		return 0, m.refuse
	}
	if found && last.Index != newest || !found && newest != -1 {
		return 0, audit.ErrConflict
	}
	e.Unsure = false
	e.Index = int64(len(m.entries))
	m.entries = append(m.entries, e)
	return e.Index, m.lose
}

// states counts the entries about settings, without those about failing reads.
func (m *memoryTrail) states() int { return len(m.entries) - len(m.of(typeFailed, typeRecovered)) }

func (m *memoryTrail) of(types ...string) []audit.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []audit.Entry
	for _, e := range m.entries {
		for _, want := range types {
			if e.Type == want {
				out = append(out, e)
			}
		}
	}
	return out
}

func TestBaselineThenChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		w := newWatcher(t, space, trail)
		require.NoError(t, w.Snapshot(t.Context()))
		require.Len(t, trail.of("settings.baseline"), 3+4+4)
		require.Equal(t, 1, space.reads[ofProject(EmailTemplates)], "a project is read once")
		defaults, found, err := trail.Last(t.Context(), "p", "", string(DefaultEmailTemplates))
		require.NoError(t, err)
		require.True(t, found)
		require.Contains(t, string(defaults.After), `"LOGIN":"t1"`)
		require.Contains(t, string(defaults.After), `"UNLOCK":null`)

		time.Sleep(time.Minute)
		agreed := time.Now()
		space.set(at(SMSCountryCodes, "live"), `["CA","US"]`) // reordered only
		require.NoError(t, w.Snapshot(t.Context()))
		require.Empty(t, trail.of("settings.changed"))

		time.Sleep(time.Minute)
		space.set(at(SMSCountryCodes, "live"), `["CA","DE"]`)
		for range 3 {
			require.NoError(t, w.Snapshot(t.Context()))
		}
		changed := trail.of("settings.changed")
		require.Len(t, changed, 1)
		require.Equal(t, "live", changed[0].Environment)
		require.JSONEq(t, `["US","CA"]`, string(changed[0].Before))
		require.JSONEq(t, `["CA","DE"]`, string(changed[0].After))
		require.True(t, agreed.Equal(changed[0].Window.After))
		require.True(t, agreed.Add(time.Minute).Equal(changed[0].Window.Until))
		require.Contains(t, string(changed[0].Detail), `"changes":[{"path":"","new":"DE"},{"path":"","old":"US"}]`)
	})
}

// TestRestart: a new process finds the change that was made in between, with
// the window from the last attested look.
func TestRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		ctx, cancel := context.WithCancel(t.Context())
		go newWatcher(t, space, trail).Run(ctx)
		time.Sleep(time.Hour + time.Second)
		cancel() // attests what was looked at
		synctest.Wait()
		checks := trail.of("settings.checked")
		require.Len(t, checks, 3)
		require.Equal(t, 13, checkOf(checks[0]).Looks)

		time.Sleep(time.Hour)
		space.set(at(PasswordStrength, "test"), `{"validation_policy":"LUDS"}`)
		require.NoError(t, newWatcher(t, space, trail).Snapshot(t.Context()))
		changed := trail.of("settings.changed")
		require.Len(t, changed, 1)
		require.Equal(t, time.Hour+time.Second, changed[0].Window.Until.Sub(changed[0].Window.After))
		require.NoError(t, newWatcher(t, space, trail).Snapshot(t.Context()))
		require.Len(t, trail.of("settings.changed"), 1)
	})
}

func TestFailingTrail(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	w := newWatcher(t, space, trail)
	require.NoError(t, w.Snapshot(t.Context()))
	space.set(at(SMSCountryCodes, "live"), `[]`)

	trail.refuse = errors.New("no quorum")
	require.ErrorContains(t, w.Snapshot(t.Context()), "no quorum")
	trail.refuse, trail.lose = nil, errors.New("timeout") // it is added, and nobody hears of it
	require.ErrorContains(t, w.Snapshot(t.Context()), "timeout")
	trail.lose = nil
	require.NoError(t, w.Snapshot(t.Context()))
	require.Len(t, trail.of("settings.changed"), 1)
}

// TestDamagedNewestEntry: the newest sound entry is what a look is compared with. A
// change whose entry is lost is entered again; one there and back cannot be seen, so
// that what stands is entered once more, and says so. Neither is done twice.
func TestDamagedNewestEntry(t *testing.T) {
	t.Parallel()
	for now, want := range map[string]string{`["DE"]`: "settings.changed", `["US","CA"]`: "settings.restated"} {
		space, trail := newWorkspace(), &memoryTrail{damaged: map[int64]bool{}}
		w := newWatcher(t, space, trail)
		require.NoError(t, w.Snapshot(t.Context()))
		space.set(at(SMSCountryCodes, "live"), `["DE"]`)
		require.NoError(t, w.Snapshot(t.Context()))
		trail.damaged[int64(len(trail.entries)-1)] = true
		space.set(at(SMSCountryCodes, "live"), now)
		before := len(trail.entries)
		for range 2 {
			require.NoError(t, w.Snapshot(t.Context()))
		}
		require.Len(t, trail.entries, before+11, "each of the 11 settings is entered once more")
		for _, e := range trail.entries[before:] {
			require.Contains(t, string(e.Detail), `"unsure":true`)
			if e.Subject == string(SMSCountryCodes) && e.Environment == "live" {
				require.Equal(t, want, e.Type)
				require.JSONEq(t, `["US","CA"]`, string(e.Before))
				require.JSONEq(t, now, string(e.After))
			} else {
				require.Equal(t, "settings.restated", e.Type, "a false change")
			}
		}
	}
}

// TestTwoWatchers: another relay enters the same change after this one has
// compared, and before it appends.
func TestTwoWatchers(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	one, other := newWatcher(t, space, trail), newWatcher(t, space, trail)
	for _, codes := range []string{`["DE"]`, `["FR"]`} {
		space.set(at(SMSCountryCodes, "live"), codes)
		trail.between = func() { require.NoError(t, other.Snapshot(t.Context())) }
		require.NoError(t, one.Snapshot(t.Context()))
		require.Nil(t, trail.between)
	}
	require.Len(t, trail.of("settings.baseline"), 11)
	require.Len(t, trail.of("settings.changed"), 1)
}

func TestFailuresAreNoChanges(t *testing.T) {
	t.Parallel()
	project := ofProject(Project)
	for name, tc := range map[string]struct {
		resource Resource
		answer   string
		fault    fault
		failures int
	}{
		"read error":              {at(RBACPolicy, "live"), "", fault{status: 500}, 1},
		"a proxy's 404":           {at(RBACPolicy, "live"), "", fault{status: 404, body: "<html>Not Found</html>"}, 1},
		"an unknown path":         {at(RBACPolicy, "live"), "", fault{status: 404, kind: "route_not_found"}, 1},
		"environment not found":   {at(RBACPolicy, "live"), "", fault{status: 404, kind: "environment_not_found"}, 1},
		"a stranger's empty 200":  {at(RBACPolicy, "live"), "", fault{status: 200, body: "{}"}, 1},
		"null":                    {at(SMSCountryCodes, "live"), "null", fault{}, 1},
		"object for array":        {at(SMSCountryCodes, "live"), "{}", fault{}, 1},
		"wrong elements":          {at(SMSCountryCodes, "live"), "[1]", fault{}, 1},
		"missing member":          {at(RBACPolicy, "live"), `{"custom_roles":[]}`, fault{}, 1},
		"null member":             {at(RBACPolicy, "live"), `{"custom_roles":null,"custom_resources":[],"custom_scopes":[]}`, fault{}, 1},
		"empty object":            {at(PasswordStrength, "live"), `{}`, fault{}, 1},
		"lone surrogate":          {project, `{"project_slug":"p","name":"\ud800"}`, fault{}, 1},
		"elements not objects":    {ofProject(EmailTemplates), `["t1"]`, fault{}, 1},
		"one type cannot be read": {defaultOf("LOGIN"), "", fault{status: 403}, 1},
		"one type behind a proxy": {defaultOf("LOGIN"), "", fault{status: 404, body: `{"error":"not_found"}`}, 1},
		"template id a number":    {defaultOf("LOGIN"), "7", fault{}, 1},
		// Where the project cannot be read, a type's 404 proves nothing either.
		"project not JSON":  {project, `<html>`, fault{}, 2},
		"project not found": {project, "", fault{status: 404, kind: "project_not_found"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			space, trail := newWorkspace(), &memoryTrail{}
			registry := prometheus.NewRegistry()
			o := space.options(t, trail, "live")
			o.Registerer = registry
			w := New(o)
			require.NoError(t, w.Snapshot(t.Context()))
			entered, was := len(trail.entries), maps.Clone(space.state)
			space.setFault(tc.resource, tc.fault)
			if tc.answer != "" {
				space.set(tc.resource, tc.answer)
			}
			require.Error(t, w.Snapshot(t.Context()))
			require.Error(t, w.Snapshot(t.Context()))
			require.Equal(t, entered, trail.states())
			failed := trail.of(typeFailed)
			require.Len(t, failed, 1, "one entry by cause")
			require.Equal(t, tc.failures, strings.Count(string(failed[0].After), `":"`))
			failing := 0
			for _, s := range w.Status() {
				if s.Error != "" {
					failing++
				}
			}
			require.Equal(t, tc.failures, failing)
			count, err := testutil.GatherAndCount(registry, "auditrelay_settings_failures_total")
			require.NoError(t, err)
			require.Equal(t, tc.failures, count)

			space.setFault(tc.resource, fault{})
			space.state = was
			require.NoError(t, w.Snapshot(t.Context()))
			require.Equal(t, entered, trail.states(), "the old state still stands")
			require.Len(t, trail.of(typeRecovered), 1)
			require.Len(t, trail.of(typeFailed), 1)
		})
	}
}

// TestRevokedProject: the key cannot see the project any more, and every read answers
// that there is none. Nobody removed anything as far as anyone can tell.
func TestRevokedProject(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	w := newWatcher(t, space, trail)
	require.NoError(t, w.Snapshot(t.Context()))
	entered := len(trail.entries)
	for r := range space.state {
		space.setFault(r, fault{status: 404, kind: "not_found"})
	}
	require.ErrorIs(t, w.Snapshot(t.Context()), management.ErrUnproven)
	require.Equal(t, entered, trail.states())
}

// TestRemovedEnvironment is one entry when it goes, and one when it is back, over a
// restart too. Nothing is said of its settings.
func TestRemovedEnvironment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		w := newWatcher(t, space, trail)
		require.NoError(t, w.Snapshot(t.Context()))
		seen := time.Now()
		time.Sleep(time.Minute)
		space.remove("live")
		for range 2 {
			require.Error(t, w.Snapshot(t.Context()))
		}
		again := newWatcher(t, space, trail)
		require.Error(t, again.Snapshot(t.Context()))
		require.Len(t, trail.entries, 11+1)
		gone := trail.of(looks.TypeGone)
		require.Len(t, gone, 1)
		require.Equal(t, "live", gone[0].Environment)
		require.Equal(t, looks.SubjectEnvironment, gone[0].Subject)
		require.True(t, seen.Equal(gone[0].Window.After), "the last look that saw it")
		require.Contains(t, string(gone[0].Detail), `"cause":"outside","actor":"unknown","actor_reason":`)
		require.Contains(t, string(gone[0].Detail), `"error_type":"environment_not_found","request_ids":{"after":["r-`)
		for _, s := range w.Status() {
			require.Equal(t, s.Environment == "live", s.Error != "", "%+v", s)
		}

		space.restore("live")
		space.set(at(SMSCountryCodes, "live"), `["KP"]`)
		for _, w := range []*Watcher{again, w} {
			require.NoError(t, w.Snapshot(t.Context()))
		}
		require.Len(t, trail.of(looks.TypeBack), 1)
		changed := trail.of(typeChanged)
		require.Len(t, changed, 1, "what changed meanwhile is compared with the state before")
		require.JSONEq(t, `["US","CA"]`, string(changed[0].Before))
	})
}

// TestRemovedSetting: the environment stands, and has no such setting any more.
func TestRemovedSetting(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	w := newWatcher(t, space, trail)
	require.NoError(t, w.Snapshot(t.Context()))
	policy := space.state[at(RBACPolicy, "live")]
	delete(space.state, at(RBACPolicy, "live"))
	for range 2 {
		require.NoError(t, w.Snapshot(t.Context()))
	}
	gone := trail.of(typeGone)
	require.Len(t, gone, 1)
	require.JSONEq(t, policy, string(gone[0].Before))
	require.Equal(t, null, string(gone[0].After))
	space.set(at(RBACPolicy, "live"), policy)
	for range 2 {
		require.NoError(t, w.Snapshot(t.Context()))
	}
	require.Len(t, trail.of(typeChanged), 1)
	require.Len(t, trail.entries, 11+2)
}

// TestEntriesNameTheirReads: a change has the ids of the look that last agreed, and of
// the look that found it, after a restart too.
func TestEntriesNameTheirReads(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	w := newWatcher(t, space, trail)
	ids := func(e audit.Entry) looks.Requests {
		var d detail
		require.NoError(t, json.Unmarshal(e.Detail, &d))
		return d.Requests
	}
	require.NoError(t, w.Snapshot(t.Context()))
	codes := at(SMSCountryCodes, "live")
	baseline, _, err := trail.Last(t.Context(), "p", "live", string(codes.Kind))
	require.NoError(t, err)
	first := ids(baseline)
	require.Len(t, first.After, 1)
	require.Empty(t, first.Before)
	require.NoError(t, w.Snapshot(t.Context()))
	w.attestLast(t.Context())
	agreed := w.groups[1].watches[3].agreed.requests
	require.NotEqual(t, first.After, agreed)

	space.set(codes, `["DE"]`)
	require.NoError(t, newWatcher(t, space, trail).Snapshot(t.Context()))
	e := trail.of(typeChanged)[0]
	require.Equal(t, agreed, ids(e).Before)
	require.Len(t, ids(e).After, 1)
	require.Contains(t, string(e.Detail), `{"cause":"outside","actor":"unknown","actor_reason":"the API names no actor of a change",`)
}

func TestDefaultTemplateUnset(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	w := newWatcher(t, space, trail)
	require.NoError(t, w.Snapshot(t.Context()))
	delete(space.state, defaultOf("LOGIN"))
	require.NoError(t, w.Snapshot(t.Context()))
	changed := trail.of("settings.changed")
	require.Len(t, changed, 1)
	require.Contains(t, string(changed[0].Detail), `{"path":"/LOGIN","old":"t1","new":null}`)
}

func TestChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := newWatcher(t, space, trail)
		start := time.Now()
		space.setFault(at(RBACPolicy, "live"), fault{status: 500})
		go w.Run(ctx)
		time.Sleep(23 * time.Hour)
		require.Empty(t, trail.of("settings.checked"))
		time.Sleep(2 * time.Hour)
		checks := trail.of("settings.checked")
		require.Len(t, checks, 3)
		for _, e := range checks {
			c := checkOf(e)
			require.Equal(t, checksSubject, e.Subject)
			require.Equal(t, 24*12+1, c.Looks)
			require.Equal(t, start.UTC(), c.From.UTC())
			require.Equal(t, 24*time.Hour, c.Until.Sub(c.From))
			if e.Environment == "live" {
				require.Equal(t, checkResource{Every: "5m0s", Failures: 24*12 + 1}, c.Resources[RBACPolicy])
				continue
			}
			for kind, r := range c.Resources {
				last, _, _ := trail.Last(ctx, e.Project, e.Environment, string(kind))
				require.Equal(t, hashOf(last.After), r.SHA256)
				require.Equal(t, 24*12+1, r.Looks)
			}
		}
		time.Sleep(24 * time.Hour)
		require.Len(t, trail.of("settings.checked"), 6)
		require.Len(t, trail.of("settings.baseline", "settings.changed"), 10, "checks are in nobody's way")
		cancel()
		synctest.Wait()
	})
}

func TestDetailIsBounded(t *testing.T) {
	t.Parallel()
	var changes jsondiff.Changes
	for range 2 * maxChanges {
		changes.List = append(changes.List, jsondiff.Change{Path: "/x", Old: encode(strings.Repeat("ä", 10_000)), New: encode(make([]int, 10_000))})
	}
	d := detail{}.with(changes)
	require.Equal(t, maxChanges, d.Omitted)
	require.Contains(t, string(d.Changes[0].Old), "… (20000 bytes)")
	require.Equal(t, `"(20001 bytes of JSON)"`, string(d.Changes[0].New))
}

// TestARevokedKey is one log line and one entry, and so is its end, however many looks
// there are meanwhile.
func TestARevokedKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		var logs bytes.Buffer
		o := space.options(t, trail, "live", "test")
		o.Logger = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
		o.Interval = time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go looks.FollowReach(ctx, o.Client, trail, o.Logger)
		w := New(o)
		go w.Run(ctx)
		time.Sleep(time.Second)
		synctest.Wait()
		entered := len(trail.entries)
		space.refuse(401)
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(logs.String(), "\n"), logs.String())
		require.Contains(t, logs.String(), "check workspace.key_id")
		require.Len(t, trail.entries, entered+1)
		require.Contains(t, string(trail.of(looks.TypeUnreachable)[0].Detail), `"cause":"unauthorized"`)
		for _, s := range w.Status() {
			require.Contains(t, s.Error, "unauthorized")
		}
		require.Less(t, space.since(), 150, "questions in ten hours")

		go looks.FollowReach(ctx, o.Client, trail, slog.New(slog.DiscardHandler)) // as after a restart
		space.refuse(0)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Len(t, trail.of(looks.TypeReachable), 1)
		require.Len(t, trail.entries, entered+2)
		for _, s := range w.Status() {
			require.Empty(t, s.Error)
		}
		cancel()
		synctest.Wait()
	})
}

// TestIntervals: each kind has its own, and the looks of 100 environments keep to them
// at 20 requests a second.
func TestIntervals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		var logs bytes.Buffer
		o := space.options(t, trail)
		o.Logger = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
		o.Client = space.clientWith(t, 20)
		for i := range 100 {
			project := fmt.Sprint("p", i/2)
			o.Targets = append(o.Targets, Target{project, fmt.Sprint("e", i)})
			space.fill(project, fmt.Sprint("e", i))
		}
		o.Interval = time.Minute
		o.Intervals = map[Kind]time.Duration{DefaultEmailTemplates: 5 * time.Minute, EmailTemplates: 5 * time.Minute}
		ctx, cancel := context.WithCancel(t.Context())
		go New(o).Run(ctx)
		time.Sleep(5 * time.Minute)
		space.since()
		time.Sleep(30 * time.Minute)
		requests := space.since()
		// By the minute 100 x 4 settings of environments and 50 projects; by five minutes the
		// templates, the nine defaults, and the project once more behind the missing defaults.
		require.InDelta(t, 30*(400+50)+6*50*(1+9+1), requests, 300)
		require.Less(t, requests, 30*60*20)
		cancel()
		synctest.Wait()
		require.Empty(t, logs.String())
	})
}

// TestLateLooksAreTold: at one request a second the same takes ten minutes.
func TestLateLooksAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		var logs bytes.Buffer
		o := space.options(t, trail, "live", "test")
		o.Logger = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
		o.Client, o.Interval = space.clientWith(t, 1), 5*time.Second
		ctx, cancel := context.WithCancel(t.Context())
		go New(o).Run(ctx)
		time.Sleep(5 * time.Minute)
		cancel()
		synctest.Wait()
		require.Equal(t, 1, strings.Count(logs.String(), "\n"), logs.String())
		require.Contains(t, logs.String(), "raise workspace.requests_per_second")
	})
}
