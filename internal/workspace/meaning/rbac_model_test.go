package meaning

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// TestRBACPerhapsIsNeverStronger has the cases in which a permission only may have gone or
// come, by name.
func TestRBACPerhapsIsNeverStronger(t *testing.T) {
	t.Parallel()
	star := `{"custom_resources":[{"resource_id":"*","available_actions":["read"]},{"resource_id":"documents","available_actions":["read"]}],"custom_roles":[{"role_id":"admin","permissions":[%]}]}`
	onStar, onDocuments := `{"resource_id":"*","actions":["read"]}`, `{"resource_id":"documents","actions":["read"]}`
	for _, c := range []struct {
		name, before, after string
		want                Direction
		severity            Severity
	}{
		{"an action taken off the list, while the role keeps it", holds(`"read","delete"`), swap(holds(`"read","delete"`), `"write","delete"]`, `"write"]`), Unknown, Medium},
		{"the resource taken away, while the role keeps it", holds(`"read"`), swap(holds(`"read"`), rbacLists, `"custom_resources":[]`), Unknown, Medium},
		{"an unlisted permission gained", holds(`"read"`), holds(`"read","fly"`), Unknown, Medium},
		{"an unlisted permission removed", holds(`"read","fly"`), holds(`"read"`), Unknown, Low},
		{"a permission taken, while one on * stays", swap(star, "%", onStar+","+onDocuments), swap(star, "%", onStar), Unknown, Medium},
		{"a permission on a listed * gained", swap(star, "%", onDocuments), swap(star, "%", onStar+","+onDocuments), Weaker, High},
		{"a permission on a listed * removed", swap(star, "%", onStar+","+onDocuments), swap(star, "%", onDocuments), Unknown, Low},
		{"a named action taken", holds(`"read","delete"`), holds(`"read"`), Stronger, Low},
		{"a wildcard narrowed", holds(`"*"`), holds(`"read"`), Stronger, Low},
	} {
		r, err := Read(kinds.RBACPolicy.Name, json.RawMessage(c.before), json.RawMessage(c.after))
		require.NoError(t, err)
		assert.Equal(t, []any{c.want, c.severity}, []any{r.Direction, r.Severity}, "%s: %s", c.name, r.Summary)
	}
}

func TestRBACRolesKeepTheirNames(t *testing.T) {
	t.Parallel()
	a, err := WhoCan(json.RawMessage(`{`+rbacLists+`,"service_super_admin":{"permissions":[{"resource_id":"documents","actions":["*"]}]},"service_admin":{"permissions":[{"resource_id":"documents","actions":["*"]}]}}`), "read", "documents")
	require.NoError(t, err)
	assert.Equal(t, []string{"default role `admin` by wildcard `*` on `documents`", "default role `super_admin` by wildcard `*` on `documents`"}, called(a.Who))
}
