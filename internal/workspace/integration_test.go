package workspace

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

func TestWithTheRealTrail(t *testing.T) {
	t.Parallel()
	dir, space := t.TempDir(), newWorkspace()
	trail, closeTrail := trailtest.Serve(t, dir)
	require.NoError(t, newWatcher(t, space, trail).Snapshot(t.Context()))
	require.EqualValues(t, 11, trail.Size())
	page := strings.Repeat("<p>Dear {{name}}, we are pleased &amp; sorry</p>\n", 20_000) // 1 MB, over max_payload with its before
	space.set(ofProject(EmailTemplates), fmt.Sprintf(`[{"template_id":"t1","custom_html_customization":{"html_content":%q}}]`, page))
	require.NoError(t, newWatcher(t, space, trail).Snapshot(t.Context()))
	closeTrail()

	trail, closeTrail = trailtest.Serve(t, dir)
	defer closeTrail()
	w := newWatcher(t, space, trail)
	require.NoError(t, w.Snapshot(t.Context()))
	require.EqualValues(t, 12, trail.Size(), "nothing new after the restart")
	space.set(ofProject(EmailTemplates), fmt.Sprintf(`[{"template_id":"t1","custom_html_customization":{"html_content":%q}}]`, page+"!"))
	require.NoError(t, w.Snapshot(t.Context()))
	last, _, err := trail.Last(t.Context(), "p", "", EmailTemplates)
	require.NoError(t, err)
	require.Equal(t, "settings.changed", last.Type)
	changed, err := trail.Get(t.Context(), last.Index)
	require.NoError(t, err)
	require.Greater(t, len(changed.Before), 1_000_000)
	require.Contains(t, string(last.Detail), "/template_id=t1/custom_html_customization/html_content")
	report := trailtest.Verify(t, trail, nil)
	require.Empty(t, report.Problems)
}

// TestWithTheClient reads by the real client: the envelope is no part of a
// state, and a 404 is told from other failures.
func TestWithTheClient(t *testing.T) {
	t.Parallel()
	const project, env = "/pwa/v3/projects/p", "/pwa/v3/projects/p/environments/live"
	answers := map[string]string{
		project:                      `"project":{"project_slug":"p","name":"Acme","new_field":[1]}`,
		project + "/email_templates": `"email_templates":[{"template_id":"t1","sender_information":7}]`,
		project + "/default_email_templates/LOGIN": `"template_id":"t1"`,
		env + "/rbac_policy":                       `"policy":{"custom_roles":[],"custom_resources":[],"custom_scopes":[]}`,
		env + "/trusted_token_profiles":            `"profiles":[{"profile_id":"x","attribute_mapping":{"a":"b"}}]`,
		env + "/password_strength_config":          `"password_strength_config":{"validation_policy":"LUDS"}`,
		env + "/allowed_country_codes/sms":         `"country_codes":["DE"]`,
	}
	var calls atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			rw.WriteHeader(http.StatusNotFound)
			answer = `"error_type":"not_found"`
		}
		_, _ = fmt.Fprintf(rw, `{"request_id":"req-%d","status_code":200,%s}`, calls.Add(1), answer)
	}))
	defer api.Close()
	client, err := management.New(management.Options{BaseURL: api.URL, KeyID: "key", Secret: secret.New("s3cret-s3cret"), RequestsPerSecond: 1000})
	require.NoError(t, err)
	trail := &memoryTrail{}
	w := NewWatcher(WatcherOptions{
		Client: client, Trail: trail, Presence: NewPresence(trail, slog.New(slog.DiscardHandler)),
		Environments: []config.Environment{{Project: "p", Environment: "live"}},
	})
	for range 3 {
		require.NoError(t, w.Snapshot(t.Context()))
	}
	require.Len(t, trail.entries, 7)
	state := func(kind Kind) string {
		environment := "live"
		if slices.Contains(projectKinds(), kind) {
			environment = ""
		}
		e, _, err := trail.Last(t.Context(), "p", environment, kind)
		require.NoError(t, err)
		return string(e.After)
	}
	require.JSONEq(t, `{"project_slug":"p","name":"Acme","new_field":[1]}`, state(Project))
	require.Contains(t, state(DefaultEmailTemplates), `"LOGIN":"t1"`)
	require.JSONEq(t, `[{"profile_id":"x","attribute_mapping":{"a":"b"}}]`, state(TrustedTokenProfiles))

	delete(answers, env+"/rbac_policy")
	require.NoError(t, w.Snapshot(t.Context()))
	require.Len(t, trail.of(typeSettingGone), 1)
	delete(answers, project)
	err = w.Snapshot(t.Context())
	require.ErrorIs(t, err, management.ErrUnproven)
	require.Equal(t, 8, trail.states())
}

// BenchmarkUnchangedRounds reads all settings of a project with two environments, and
// twenty templates of 5 KB, over and over. Nothing changes.
func BenchmarkUnchangedRounds(b *testing.B) {
	trail, stop := trailtest.Serve(b, b.TempDir())
	defer stop()
	space := newWorkspace()
	var templates []string
	for i := range 20 {
		page := strings.Repeat("<p>Dear {{name}}, we are pleased &amp; sorry</p>\n", 100)
		templates = append(templates, fmt.Sprintf(`{"template_id":"t%d","custom_html_customization":{"html_content":%q}}`, i, page))
	}
	space.set(ofProject(EmailTemplates), "["+strings.Join(templates, ",")+"]")
	w := newWatcher(b, space, trail)
	for range 3 {
		require.NoError(b, w.Snapshot(b.Context()))
	}
	for b.Loop() {
		require.NoError(b, w.Snapshot(b.Context()))
	}
}
