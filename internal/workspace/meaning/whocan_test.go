package meaning

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const whoCanPolicy = `{
	"custom_resources": [{"resource_id": "documents", "available_actions": ["read", "delete"]}, {"resource_id": "empty", "available_actions": []}],
	"brand_admin": {"permissions": [{"resource_id": "documents", "actions": ["*"]}]},
	"custom_roles": [
		{"role_id": "editor", "permissions": [{"resource_id": "documents", "actions": ["read", "delete"]}]},
		{"role_id": "reader", "permissions": [{"resource_id": "documents", "actions": ["read", "archive"]}]}
	],
	"custom_scopes": [{"scope": "full", "permissions": [{"resource_id": "documents", "actions": ["delete", "*"]}]}]
}`

func called(list []Permit) []string {
	names := []string{}
	for _, p := range list {
		names = append(names, p.Holder+" by "+p.By)
	}
	return names
}

func TestWhoCan(t *testing.T) {
	t.Parallel()
	named := "permission for `delete` on `documents`"
	a, err := WhoCan(json.RawMessage(whoCanPolicy), "delete", "documents")
	require.NoError(t, err)
	var got [][2]string
	for _, p := range a.Who {
		got = append(got, [2]string{p.Holder, p.By})
	}
	assert.Equal(t, [][2]string{{"default role `admin`", "wildcard `*` on `documents`"}, {"role `editor`", named}, {"scope `full`", named}}, got)
	assert.Empty(t, a.Nobody)

	wild := `{"custom_resources":[{"resource_id":"d","available_actions":["read"]}],"custom_roles":[
		{"role_id":"a","permissions":[{"resource_id":"*","actions":["*"]}]},{"role_id":"b","permissions":[{"resource_id":"d","actions":["fly"]}]},{"role_id":"c","permissions":[{"resource_id":"d","actions":["*"]}]}]}`
	for action, want := range map[string]string{
		"fly":  "[] [role `a` by wildcard `*` on `*`, if the service takes that for every resource role `b` by permission for `fly` on `d`, which no list has role `c` by wildcard `*` on `d`, which no list has]",
		"*":    "[role `c` by wildcard `*` on `d`] [role `a` by wildcard `*` on `*`, if the service takes that for every resource]",
		"read": "[role `c` by wildcard `*` on `d`] [role `a` by wildcard `*` on `*`, if the service takes that for every resource]",
	} {
		a, err := WhoCan(json.RawMessage(wild), action, "d")
		require.NoError(t, err)
		assert.Equal(t, want, fmt.Sprint(called(a.Who), called(a.Perhaps)), action)
	}

	for want, ask := range map[string][3]string{
		"no role and no scope has a permission for `read` on `documents`": {`{"custom_resources":[{"resource_id":"documents","available_actions":["read"]}]}`, "read", "documents"},
		"lists no action `archive`; it lists `delete` and `read`":         {whoCanPolicy, "archive", "documents"},
		"defines no resource `folders`; it has `documents` and `empty`":   {whoCanPolicy, "read", "folders"},
		"the resource `empty` lists no actions":                           {whoCanPolicy, "read", "empty"},
		"the policy defines no resources":                                 {``, "read", "documents"},
	} {
		a, err := WhoCan(json.RawMessage(ask[0]), ask[1], ask[2])
		require.NoError(t, err)
		assert.Empty(t, a.Who)
		assert.Contains(t, a.Nobody, want)
	}
	_, err = WhoCan(json.RawMessage(`{`), "read", "documents")
	require.ErrorContains(t, err, "read the policy")
}
