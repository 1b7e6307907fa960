package workspace

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// What an answer is refused for is told in a line, whatever the answer is made of, and in the same
// words at each look.
func TestARefusedAnswerIsToldInALine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\u202ex", 1<<16)
	for name, tc := range map[string]struct {
		resource Resource
		answer   string
	}{
		"a branded member": {at(RBACPolicy, "live"), `{"custom_roles":[],"` + long + `_member":"x"}`},
		"several members":  {at(RBACPolicy, "live"), `{"custom_roles":{},"custom_resources":{},"custom_scopes":{},"a_member":7,"b_member":7,"c_admin":7}`},
		"another project":  {ofProject(Project), `{"project_slug":"` + long + `","name":"Theirs"}`},
		"a name twice":     {at(RBACPolicy, "live"), `{"custom_roles":[],"` + long + `":1,"` + long + `":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			space, trail := newWorkspace(), &memoryTrail{}
			w := newWatcher(t, space, trail)
			require.NoError(t, w.Snapshot(t.Context()))
			space.set(tc.resource, tc.answer)
			told := map[string]bool{}
			for range 10 {
				require.Error(t, w.Snapshot(t.Context()))
				for _, s := range w.Status() {
					require.Less(t, len(s.Error), 2000)
					require.NotContains(t, s.Error, "\u202e")
					if s.Subject == tc.resource.Kind {
						told[s.Error] = true
					}
				}
			}
			delete(told, "")
			require.Len(t, told, 1)
		})
	}
}

func TestFailuresAreNoChanges(t *testing.T) {
	t.Parallel()
	project := ofProject(Project)
	for name, tc := range map[string]struct {
		resource Resource
		answer   string
		answered badAnswer
		failures int
	}{
		"read error":              {at(RBACPolicy, "live"), "", badAnswer{status: 500}, 1},
		"a proxy's 404":           {at(RBACPolicy, "live"), "", badAnswer{status: 404, body: "<html>Not Found</html>"}, 1},
		"an unknown path":         {at(RBACPolicy, "live"), "", badAnswer{status: 404, kind: "route_not_found"}, 1},
		"environment not found":   {at(RBACPolicy, "live"), "", badAnswer{status: 404, kind: "environment_not_found"}, 1},
		"a stranger's empty 200":  {at(RBACPolicy, "live"), "", badAnswer{status: 200, body: "{}"}, 1},
		"a stranger's list":       {at(SMSCountryCodes, "live"), "", badAnswer{status: 200, body: "{}"}, 1},
		"an answer without it":    {at(RBACPolicy, "live"), "", badAnswer{status: 200, body: `{"request_id":"r-1","status_code":200}`}, 1},
		"one without a config":    {at(PasswordStrength, "live"), "", badAnswer{status: 200, body: `{"request_id":"r-1"}`}, 1},
		"object for array":        {at(SMSCountryCodes, "live"), "{}", badAnswer{}, 1},
		"wrong elements":          {at(SMSCountryCodes, "live"), "[1]", badAnswer{}, 1},
		"null for a policy":       {at(RBACPolicy, "live"), `null`, badAnswer{}, 1},
		"an empty policy":         {at(RBACPolicy, "live"), `{}`, badAnswer{}, 1},
		"nothing of a policy":     {at(RBACPolicy, "live"), `{"roles":[]}`, badAnswer{}, 1},
		"object for a member":     {at(RBACPolicy, "live"), `{"custom_roles":{},"custom_resources":[],"custom_scopes":[]}`, badAnswer{}, 1},
		"null for an element":     {at(TrustedTokenProfiles, "live"), `[null]`, badAnswer{}, 1},
		"empty object":            {at(PasswordStrength, "live"), `{}`, badAnswer{}, 1},
		"lone surrogate":          {project, `{"project_slug":"p","name":"\ud800"}`, badAnswer{}, 1},
		"elements not objects":    {ofProject(EmailTemplates), `["t1"]`, badAnswer{}, 1},
		"a profile without an id": {at(TrustedTokenProfiles, "live"), `[{"profile_id":"a"},{"name":"x"}]`, badAnswer{}, 1},
		"an empty template":       {ofProject(EmailTemplates), `[{}]`, badAnswer{}, 1},
		"a text for a role":       {at(RBACPolicy, "live"), `{"custom_roles":["x"]}`, badAnswer{}, 1},
		"a text for the member":   {at(RBACPolicy, "live"), `{"custom_roles":[],"service_member":"x"}`, badAnswer{}, 1},
		"an object for resources": {at(RBACPolicy, "live"), `{"custom_roles":[],"service_resources":{}}`, badAnswer{}, 1},
		"one type cannot be read": {defaultOf("LOGIN"), "", badAnswer{status: 403}, 1},
		"one type behind a proxy": {defaultOf("LOGIN"), "", badAnswer{status: 404, body: `{"error":"not_found"}`}, 1},
		"template id a number":    {defaultOf("LOGIN"), "7", badAnswer{}, 1},
		// Where the project cannot be read, a type's 404 proves nothing either.
		"project not JSON":  {project, `<html>`, badAnswer{}, 2},
		"another project":   {project, `{"project_slug":"q","name":"Theirs"}`, badAnswer{}, 2},
		"project not found": {project, "", badAnswer{status: 404, kind: "project_not_found"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			space, trail := newWorkspace(), &memoryTrail{}
			registry := prometheus.NewRegistry()
			o := space.options(t, trail, "live")
			o.Registerer = registry
			w := NewWatcher(o)
			require.NoError(t, w.Snapshot(t.Context()))
			entered, was := len(trail.entries), maps.Clone(space.state)
			space.setFault(tc.resource, tc.answered)
			if tc.answer != "" {
				space.set(tc.resource, tc.answer)
			}
			require.Error(t, w.Snapshot(t.Context()))
			require.Error(t, w.Snapshot(t.Context()))
			require.Equal(t, entered, trail.states())
			failed := trail.of(typeReadsFailed)
			require.Len(t, failed, 1, "one entry by cause")
			require.Contains(t, string(failed[0].Detail), `"summary":"cannot be read, so changes are not seen meanwhile: `)
			require.Contains(t, string(failed[0].Detail), `"severity":"medium","direction":"neutral"`)
			require.Equal(t, tc.failures, strings.Count(string(failed[0].After), `":"`))
			failing := 0
			for _, s := range w.Status() {
				if s.Error != "" {
					failing++
				}
			}
			require.Equal(t, tc.failures, failing)
			require.Equal(t, tc.failures, counted(t, registry, "auditrelay_settings_failures_total"))

			space.setFault(tc.resource, badAnswer{})
			space.state = was
			require.NoError(t, w.Snapshot(t.Context()))
			require.Equal(t, entered, trail.states(), "the old state still stands")
			require.Len(t, trail.of(typeReadsRecovered), 1)
			require.Len(t, trail.of(typeReadsFailed), 1)
		})
	}
}

// TestRevokedProject: the key no longer sees the project, and every read finds nothing.
// As far as anyone can tell, nobody removed anything.
func TestRevokedProject(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	w := newWatcher(t, space, trail)
	require.NoError(t, w.Snapshot(t.Context()))
	entered := len(trail.entries)
	for r := range space.state {
		space.setFault(r, badAnswer{status: 404, kind: "not_found"})
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
		gone := trail.of(TypeGone)
		require.Len(t, gone, 1)
		require.Equal(t, "live", gone[0].Environment)
		require.Equal(t, SubjectEnvironment, gone[0].Subject)
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
		require.Len(t, trail.of(TypeBack), 1)
		changed := trail.of(typeSettingChanged)
		require.Len(t, changed, 1, "what changed meanwhile is compared with the state before")
		require.JSONEq(t, `["US","CA"]`, string(changed[0].Before))
	})
}

// An environment that is back before its 404 was confirmed is read once more, and is no failure.
func TestAnEnvironmentThatIsBackAtOnceIsRead(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	w := newWatcher(t, space, trail)
	require.NoError(t, w.Snapshot(t.Context()))
	entered := len(trail.entries)
	space.set(at(RBACPolicy, "live"), `{"custom_roles":[],"custom_scopes":[],"custom_resources":[{"resource_id":"d","available_actions":["read"]}]}`)
	space.setFault(at(RBACPolicy, "live"), badAnswer{status: 404, kind: "environment_not_found", once: true})
	require.NoError(t, w.Snapshot(t.Context()))
	require.Len(t, trail.of(typeSettingChanged), 1)
	require.Len(t, trail.entries, entered+1)
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
	gone := trail.of(typeSettingGone)
	require.Len(t, gone, 1)
	require.JSONEq(t, policy, string(gone[0].Before))
	require.Equal(t, null, string(gone[0].After))
	space.set(at(RBACPolicy, "live"), `{"custom_roles":[],"custom_scopes":[],"custom_resources":[{"resource_id":"d","available_actions":["read"]}],"brand_member":{"permissions":[{"resource_id":"d","actions":["*"]}]}}`)
	for range 2 {
		require.NoError(t, w.Snapshot(t.Context()))
	}
	changed := trail.of(typeSettingChanged)
	require.Len(t, changed, 1)
	require.Contains(t, string(changed[0].Detail), `"direction":"weaker","severity":"high"`, "it is compared with the state before it went")
	require.Len(t, trail.entries, 11+2)
}

// TestAnAbsentListIsEmpty: null, or a list that is left out of an answer in the API's form,
// is an empty list, and the entry notes it. See plausible for where this ends.
func TestAnAbsentListIsEmpty(t *testing.T) {
	t.Parallel()
	const whole, leftOut = `{"custom_roles":[{"role_id":"a"}],"custom_resources":[],"custom_scopes":[]}`, `{"request_id":"r-1","status_code":200}`
	for name, tc := range map[string]struct {
		resource             Resource
		before, answer, body string
		after, note          string
	}{
		"null for countries":    {at(SMSCountryCodes, "live"), `["US"]`, `null`, "", `[]`, "country_codes"},
		"nothing but an id":     {at(SMSCountryCodes, "live"), `["US"]`, "", `{"request_id":"r-1"}`, `[]`, "country_codes"},
		"countries left out":    {at(SMSCountryCodes, "live"), `["US"]`, "", leftOut, `[]`, "country_codes"},
		"null for profiles":     {at(TrustedTokenProfiles, "live"), `[{"profile_id":"a"}]`, `null`, "", `[]`, "profiles"},
		"profiles left out":     {at(TrustedTokenProfiles, "live"), `[{"profile_id":"a"}]`, "", leftOut, `[]`, "profiles"},
		"templates left out":    {ofProject(EmailTemplates), `[{"template_id":"a"}]`, "", leftOut, `[]`, "email_templates"},
		"null for roles":        {at(RBACPolicy, "live"), whole, `{"custom_roles":null,"custom_resources":[],"custom_scopes":[]}`, "", "", "custom_roles"},
		"nothing but null":      {at(RBACPolicy, "live"), whole, `{"custom_roles":null,"custom_resources":null,"custom_scopes":null}`, "", "", "custom_resources"},
		"only the service's":    {at(RBACPolicy, "live"), whole, `{"brand_admin":{"permissions":[]},"brand_resources":null}`, "", "", "custom_roles"},
		"roles left out":        {at(RBACPolicy, "live"), whole, `{"custom_resources":[],"custom_scopes":[]}`, "", "", "custom_roles"},
		"null for pem_files":    {at(TrustedTokenProfiles, "live"), `[{"profile_id":"a","pem_files":[{"pem_file_id":"k","public_key":"x"}]}]`, `[{"profile_id":"a","pem_files":null}]`, "", "", ""},
		"null for permissions":  {at(RBACPolicy, "live"), `{"custom_roles":[],"custom_resources":[],"custom_scopes":[],"brand_admin":{"permissions":[{"resource_id":"a","actions":["b"]}]}}`, `{"custom_roles":[],"custom_resources":[],"custom_scopes":[],"brand_admin":{"permissions":null}}`, "", "", ""},
		"null for its own list": {at(RBACPolicy, "live"), whole, `{"custom_roles":[],"custom_resources":[],"custom_scopes":[],"brand_resources":null}`, "", "", "brand_resources"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			space, trail := newWorkspace(), &memoryTrail{}
			space.set(tc.resource, tc.before)
			w := NewWatcher(space.options(t, trail, "live"))
			require.NoError(t, w.Snapshot(t.Context()))
			if tc.body != "" {
				space.setFault(tc.resource, badAnswer{status: 200, body: tc.body})
			} else {
				space.set(tc.resource, tc.answer)
			}
			for range 2 {
				require.NoError(t, w.Snapshot(t.Context()))
			}
			require.Empty(t, trail.of(typeSettingGone))
			changed := trail.of(typeSettingChanged)
			require.Len(t, changed, 1, "once")
			if tc.after != "" {
				require.Equal(t, tc.after, string(changed[0].After))
			}
			var d detail
			require.NoError(t, json.Unmarshal(changed[0].Detail, &d))
			require.Contains(t, strings.Join(d.Notes, "\n"), tc.note)
			require.Equal(t, tc.note == "", len(d.Notes) == 0)
		})
	}
}

// counted is how many series of a counter are above 0.
func counted(t *testing.T, registry *prometheus.Registry, name string) (n int) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, series := range f.GetMetric() {
			if f.GetName() == name && series.GetCounter().GetValue() > 0 {
				n++
			}
		}
	}
	return n
}
