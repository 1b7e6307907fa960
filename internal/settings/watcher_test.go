package settings

import (
	"context"
	"encoding/json"
	"errors"
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
)

// workspace is a Reader over plain values.
type workspace struct {
	mu    sync.Mutex
	state map[Resource]string
	fail  map[Resource]error
	reads map[Resource]int
}

func newWorkspace() *workspace {
	w := &workspace{state: map[Resource]string{}, fail: map[Resource]error{}, reads: map[Resource]int{}}
	w.set(Resource{Kind: Project, Project: "p"}, `{"project_slug":"p","name":"Acme","vertical":"B2B"}`)
	w.set(Resource{Kind: EmailTemplates, Project: "p"}, `[{"template_id":"t1","name":"Welcome"}]`)
	w.set(Resource{Kind: DefaultEmailTemplates, Project: "p", TemplateType: "LOGIN"}, `"t1"`)
	for _, env := range []string{"live", "test"} {
		w.set(at(RBACPolicy, env), `{"custom_roles":[],"custom_resources":[],"custom_scopes":[]}`)
		w.set(at(TrustedTokenProfiles, env), `[]`)
		w.set(at(PasswordStrength, env), `{"validation_policy":"ZXCVBN","luds_min_password_length":null}`)
		w.set(at(SMSCountryCodes, env), `["US","CA"]`)
	}
	return w
}

func at(kind Kind, env string) Resource {
	return Resource{Kind: kind, Project: "p", Environment: env}
}

func (w *workspace) set(r Resource, state string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state[r] = state
}

func (w *workspace) setError(r Resource, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail[r] = err
}

func (w *workspace) Read(ctx context.Context, r Resource) (json.RawMessage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads[r]++
	if err := errors.Join(ctx.Err(), w.fail[r]); err != nil {
		return nil, err
	}
	state, ok := w.state[r]
	if !ok {
		return nil, ErrNotFound
	}
	return json.RawMessage(state), nil
}

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
	none := audit.Entry{Index: -1}
	for i := len(m.entries) - 1; i >= 0; i-- {
		if m.damaged[int64(i)] {
			none.Unsure = true
		} else if e := m.entries[i]; e.Project == project && e.Environment == environment && e.Subject == subject {
			e.Unsure = none.Unsure
			return e, true, nil
		}
	}
	return none, false, nil
}

func (m *memoryTrail) AppendIf(ctx context.Context, e audit.Entry, newest int64) (int64, error) {
	if between := m.between; between != nil {
		m.between = nil
		between()
	}
	last, found, _ := m.Last(ctx, e.Project, e.Environment, e.Subject)
	m.mu.Lock()
	defer m.mu.Unlock()
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

func newWatcher(w *workspace, trail audit.Log) *Watcher {
	return New(Options{Reader: w, Trail: trail, Targets: []Target{{"p", "live"}, {"p", "test"}, {"p", "live"}}})
}

func TestBaselineThenChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		w := newWatcher(space, trail)
		require.NoError(t, w.Snapshot(t.Context()))
		require.Len(t, trail.of("settings.baseline"), 3+4+4)
		require.Equal(t, 1, space.reads[Resource{Kind: Project, Project: "p"}], "a project is read once")
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
		go newWatcher(space, trail).Run(ctx)
		time.Sleep(time.Hour + time.Second)
		cancel() // attests what was looked at
		synctest.Wait()
		checks := trail.of("settings.checked")
		require.Len(t, checks, 3)
		require.Equal(t, 13, checkOf(checks[0]).Looks)

		time.Sleep(time.Hour)
		space.set(at(PasswordStrength, "test"), `{"validation_policy":"LUDS"}`)
		require.NoError(t, newWatcher(space, trail).Snapshot(t.Context()))
		changed := trail.of("settings.changed")
		require.Len(t, changed, 1)
		require.Equal(t, time.Hour+time.Second, changed[0].Window.Until.Sub(changed[0].Window.After))
		require.NoError(t, newWatcher(space, trail).Snapshot(t.Context()))
		require.Len(t, trail.of("settings.changed"), 1)
	})
}

func TestFailingTrail(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	w := newWatcher(space, trail)
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
		w := newWatcher(space, trail)
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
	one, other := newWatcher(space, trail), newWatcher(space, trail)
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
	login := Resource{Kind: DefaultEmailTemplates, Project: "p", TemplateType: "LOGIN"}
	for name, tc := range map[string]struct {
		resource Resource
		answer   string
		err      error
		failures int
	}{
		"read error":              {at(RBACPolicy, "live"), "", errors.New("500"), 1},
		"environment not found":   {at(RBACPolicy, "live"), "", ErrNotFound, 1},
		"null":                    {at(SMSCountryCodes, "live"), "null", nil, 1},
		"object for array":        {at(SMSCountryCodes, "live"), "{}", nil, 1},
		"wrong elements":          {at(SMSCountryCodes, "live"), "[1]", nil, 1},
		"missing member":          {at(RBACPolicy, "live"), `{"custom_roles":[]}`, nil, 1},
		"null member":             {at(RBACPolicy, "live"), `{"custom_roles":null,"custom_resources":[],"custom_scopes":[]}`, nil, 1},
		"empty object":            {at(PasswordStrength, "live"), `{}`, nil, 1},
		"not JSON":                {Resource{Kind: Project, Project: "p"}, `<html>`, nil, 2},
		"lone surrogate":          {Resource{Kind: Project, Project: "p"}, `{"project_slug":"p","name":"\ud800"}`, nil, 2},
		"elements not objects":    {Resource{Kind: EmailTemplates, Project: "p"}, `["t1"]`, nil, 1},
		"one type cannot be read": {login, "", errors.New("429"), 1},
		"template id a number":    {login, "7", nil, 1},
		// Where the project cannot be read, a type's 404 proves nothing either.
		"project not found": {Resource{Kind: Project, Project: "p"}, "", ErrNotFound, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			space, trail := newWorkspace(), &memoryTrail{}
			registry := prometheus.NewRegistry()
			w := New(Options{Reader: space, Trail: trail, Targets: []Target{{"p", "live"}}, Registerer: registry})
			require.NoError(t, w.Snapshot(t.Context()))
			entered, was := len(trail.entries), maps.Clone(space.state)
			space.setError(tc.resource, tc.err)
			if tc.err == nil {
				space.set(tc.resource, tc.answer)
			}
			require.Error(t, w.Snapshot(t.Context()))
			require.Error(t, w.Snapshot(t.Context()))
			require.Len(t, trail.entries, entered)
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

			space.setError(tc.resource, nil)
			space.state = was
			require.NoError(t, w.Snapshot(t.Context()))
			require.Len(t, trail.entries, entered, "the old state still stands")
		})
	}
}

func TestDefaultTemplateUnset(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	w := newWatcher(space, trail)
	require.NoError(t, w.Snapshot(t.Context()))
	delete(space.state, Resource{Kind: DefaultEmailTemplates, Project: "p", TemplateType: "LOGIN"})
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
		w := newWatcher(space, trail)
		start := time.Now()
		space.setError(at(RBACPolicy, "live"), errors.New("500"))
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
				require.Equal(t, checkResource{Failures: 24*12 + 1}, c.Resources[RBACPolicy])
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
	var changes []jsondiff.Change
	for range 2 * maxChanges {
		changes = append(changes, jsondiff.Change{Path: "/x", Old: encode(strings.Repeat("ä", 10_000)), New: encode(make([]int, 10_000))})
	}
	d := detail{}.with(changes)
	require.Equal(t, maxChanges, d.Omitted)
	require.Contains(t, string(d.Changes[0].Old), "… (20000 bytes)")
	require.Equal(t, `"(20001 bytes of JSON)"`, string(d.Changes[0].New))
}
