package workspacesim

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The second API has a key of its own, its rule of passwords, and its limit in any second.
func TestTheSecondAPI(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, err := New(Options{Projects: 1})
		require.NoError(t, err)
		ask := func(method, path, body, id, key string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			r.SetBasicAuth(id, key)
			w := httptest.NewRecorder()
			sim.Handler().ServeHTTP(w, r)
			checkAnswer(t, w)
			return w
		}
		post := func(path, body string) *httptest.ResponseRecorder {
			return ask("POST", path, body, DemoProjectID, DemoProjectSecret)
		}
		const organization = `{"organization_name":"A","organization_slug":%q,"mfa_policy":"REQUIRED_FOR_ALL"}`
		assert.Equal(t, 401, ask("POST", "/v1/b2b/organizations", fmt.Sprintf(organization, "a"), DemoKeyID, DemoSecret).Code, "a management key")
		assert.Equal(t, 401, ask("GET", "/pwa/v3/projects/"+sim.Environments()[0].Project, "", DemoProjectID, DemoProjectSecret).Code, "a project key")

		for _, slug := range []string{"a", "b"} {
			assert.Equal(t, 200, post("/v1/b2b/organizations", fmt.Sprintf(organization, slug)).Code)
		}
		assert.Contains(t, post("/v1/b2b/organizations", fmt.Sprintf(organization, "a")).Body.String(), "duplicate_organization_slug")
		ids := sim.Migrated().IDs
		const member, password = `{"email_address":"Ann@b.example"}`, `{"email_address":"ann@b.example","hash":"h","hash_type":"scrypt","organization_id":%q}`
		assert.Contains(t, post("/v1/b2b/passwords/migrate", fmt.Sprintf(password, ids["a"])).Body.String(), "member_not_found")
		for _, id := range ids {
			assert.Equal(t, 200, post("/v1/b2b/organizations/"+id+"/members", member).Code)
		}
		assert.Contains(t, post("/v1/b2b/organizations/"+ids["a"]+"/members", member).Body.String(), "duplicate_member_email")
		assert.Contains(t, post("/v1/b2b/organizations/none/members", member).Body.String(), "organization_not_found")

		require.NoError(t, sim.SharePasswords(true))
		assert.Equal(t, 200, post("/v1/b2b/passwords/migrate", fmt.Sprintf(password, ids["a"])).Code)
		assert.Contains(t, post("/v1/b2b/passwords/migrate", fmt.Sprintf(password, ids["b"])).Body.String(), "duplicate_password", "shared by both organizations")
		require.ErrorContains(t, sim.SharePasswords(false), "cannot be changed")
		require.NoError(t, sim.SharePasswords(true))

		time.Sleep(time.Second)
		for i := range consumerLimit {
			assert.Equal(t, 200, post("/v1/sessions/migrate", fmt.Sprintf(`{"session_token":"t%d"}`, i)).Code)
		}
		assert.Equal(t, 429, post("/v1/sessions/migrate", `{"session_token":"t"}`).Code)
		time.Sleep(time.Second)
		assert.Contains(t, post("/v1/sessions/migrate", `{"session_token":"t1"}`).Body.String(), "duplicate_session")
		assert.Equal(t, 1, sim.Migrated().TooMany)
	})
}
