package management_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// says is a 404 in the API's form.
func says(kind string) string {
	return fmt.Sprintf(`404 {"status_code":404,"request_id":"r-404","error_type":%q,"error_message":"no"}`, kind)
}

const (
	proxyPage = "404 <html>Not Found</html>"
	proxyJSON = `404 {"error":"not_found"}`
	noID      = `404 {"error_type":"rbac_policy_not_found"}`
	fault     = `500 {"request_id":"r-500","error_type":"internal_server_error"}`
	refused   = `401 {"request_id":"r-401","error_type":"unauthorized_credentials"}`
	fine      = ""
)

// TestOneRuleFor404: a read of the policy fails as given, while operations 9 (environment)
// and 10 (other) and 1 (project) answer as given.
func TestOneRuleFor404(t *testing.T) {
	t.Parallel()
	const missing, gone, unproven = "missing", "gone", "unproven"
	for name, tc := range map[string]struct{ answer, environment, other, project, want string }{
		"a resource":                           {says("rbac_policy_not_found"), fine, fine, fine, missing},
		"a resource, type in general":          {says("not_found"), fine, fine, fine, missing},
		"a resource, one probe missing too":    {says("rbac_policy_not_found"), says("password_config_not_found"), fine, fine, missing},
		"an environment":                       {says("environment_not_found"), says("environment_not_found"), says("environment_not_found"), fine, gone},
		"an environment, type in general":      {says("not_found"), says("not_found"), says("not_found"), fine, gone},
		"an environment that can be read":      {says("environment_not_found"), fine, fine, fine, unproven},
		"a project":                            {says("project_not_found"), says("project_not_found"), says("project_not_found"), says("project_not_found"), unproven},
		"a project, types in general":          {says("not_found"), says("not_found"), says("not_found"), says("not_found"), unproven},
		"a project that can be read":           {says("project_not_found"), says("environment_not_found"), says("environment_not_found"), fine, unproven},
		"a proxy's page":                       {proxyPage, fine, fine, fine, unproven},
		"a proxy's JSON":                       {proxyJSON, fine, fine, fine, unproven},
		"without a request id":                 {noID, fine, fine, fine, unproven},
		"a wrong base_url":                     {says("route_not_found"), says("route_not_found"), says("route_not_found"), says("route_not_found"), unproven},
		"a path that the API does not know":    {says("route_not_found"), fine, fine, fine, unproven},
		"probes that fail":                     {says("rbac_policy_not_found"), fault, fault, fine, unproven},
		"probes behind a proxy":                {says("not_found"), proxyPage, proxyPage, fine, unproven},
		"the second probe fails":               {says("not_found"), says("not_found"), fault, fine, unproven},
		"a key withdrawn in between":           {says("not_found"), refused, refused, refused, unproven},
		"a project that fails":                 {says("environment_not_found"), says("environment_not_found"), says("environment_not_found"), fault, unproven},
		"no 404":                               {fault, fine, fine, fine, ""},
		"a 2xx without it":                     {`200 {"request_id":"r-404"}`, fine, fine, fine, missing},
		"a stranger's 2xx":                     {`200 {}`, fine, fine, fine, ""},
		"probes without anything":              {says("not_found"), `200 {"request_id":"r"}`, `200 {"request_id":"r"}`, fine, unproven},
		"2xx without anything, everywhere":     {`200 {"request_id":"r-404"}`, `200 {"request_id":"r"}`, `200 {"request_id":"r","country_codes":null}`, fine, unproven},
		"a 2xx without it, environment absent": {`200 {"request_id":"r-404"}`, says("not_found"), says("not_found"), fine, gone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim, err := workspacesim.New(workspacesim.Options{})
			require.NoError(t, err)
			srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				answer := tc.project
				switch path := r.URL.Path; {
				case strings.HasSuffix(path, "/rbac_policy"):
					answer = tc.answer
				case strings.HasSuffix(path, "/password_strength_config"):
					answer = tc.environment
				case strings.HasSuffix(path, "/allowed_country_codes/sms"):
					answer = tc.other
				}
				var status int
				if _, err := fmt.Sscanf(answer, "%d", &status); err != nil {
					sim.Handler().ServeHTTP(rw, r)
					return
				}
				rw.WriteHeader(status)
				_, _ = rw.Write([]byte(answer[4:]))
			}))
			t.Cleanup(srv.Close)
			c, err := management.New(management.Options{
				BaseURL: srv.URL, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret), RequestsPerSecond: 1000, MaxAttempts: 1,
			})
			require.NoError(t, err)
			_, err = c.RBACPolicy(t.Context(), "acme-portal", "test")
			require.Error(t, err)
			assert.Equal(t, strings.Contains(tc.answer, `:"rbac_policy_not_found"`) && tc.answer != noID, management.NamesResource(err))
			err = c.Confirm(t.Context(), "acme-portal", "test", err)
			var absence *management.Absence
			believed := errors.As(err, &absence)
			assert.Equal(t, tc.want == missing || tc.want == gone, believed, "%v", err)
			if believed {
				assert.Equal(t, tc.want == gone, absence.WholeEnvironment)
				assert.Equal(t, "r-404", absence.RequestID)
				assert.NotEmpty(t, absence.ParentRequestID)
			}
			assert.Equal(t, tc.want == unproven, errors.Is(err, management.ErrUnproven), "%v", err)
			if tc.environment == refused {
				assert.ErrorIs(t, err, management.ErrUnreachable, "one outage is one message")
			}
		})
	}
}

// TestA404OfAProjectsResource: the parent is the project.
func TestA404OfAProjectsResource(t *testing.T) {
	t.Parallel()
	w := newWalk(t, secret.New(workspacesim.DemoSecret))
	for _, kind := range []string{"LOGIN", "PREBUILT"} {
		_, err := w.Setting(t.Context(), kinds.DefaultEmailTemplates, w.env.Project, "", kind)
		if err == nil {
			_, err = w.Change(t.Context(), management.UnsetDefaultEmailTemplate, nil, w.env.Project, kind)
			require.NoError(t, err)
			_, err = w.Setting(t.Context(), kinds.DefaultEmailTemplates, w.env.Project, "", kind)
		}
		var absence *management.Absence
		require.ErrorAs(t, w.Confirm(t.Context(), w.env.Project, "", err), &absence)
		assert.Equal(t, "default_email_template_not_found", absence.Type)
	}
	_, err := w.Setting(t.Context(), kinds.EmailTemplates, "nobody", "", "")
	require.ErrorIs(t, w.Confirm(t.Context(), "nobody", "", err), management.ErrUnproven)
}
