package workspacesim

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A shape is a value's form in the document: "string", "integer", "boolean", an object of
// fields, or a list of one kind of item.
type (
	fields map[string]any
	listOf struct{ item any }
)

var (
	permissionsShape  = listOf{fields{"resource_id": "string", "actions": listOf{"string"}}}
	grantsShape       = fields{"permissions": permissionsShape}
	rbacResourceShape = listOf{fields{"resource_id": "string", "description": "string", "available_actions": listOf{"string"}}}
	projectShape      = fields{"project_slug": "string", "name": "string", "vertical": "string", "created_at": "string"}
	policyShape       = fields{
		"service_resources": rbacResourceShape, "custom_resources": rbacResourceShape,
		"custom_roles":   listOf{fields{"role_id": "string", "description": "string", "permissions": permissionsShape}},
		"custom_scopes":  listOf{fields{"scope": "string", "description": "string", "permissions": permissionsShape}},
		"service_member": grantsShape, "service_admin": grantsShape, "service_user": grantsShape,
	}
	templateShape = fields{
		"template_id": "string", "name": "string",
		"sender_information": fields{
			"from_local_part": "string", "from_domain": "string", "from_name": "string",
			"reply_to_local_part": "string", "reply_to_name": "string",
		},
		"prebuilt_customization": fields{
			"button_border_radius": "integer", "button_color": "string", "button_text_color": "string",
			"font_family": "string", "text_alignment": "string",
		},
		"custom_html_customization": fields{
			"template_type": "string", "html_content": "string", "plaintext_content": "string", "subject": "string",
		},
	}
	profileShape = fields{
		"profile_id": "string", "name": "string", "audience": "string", "issuer": "string",
		"pem_files":         listOf{fields{"pem_file_id": "string", "public_key": "string"}},
		"can_jit_provision": "boolean", "jwks_url": "string", "attribute_mapping": "string", "public_key_type": "string",
	}
	passwordShape = fields{
		"check_breach_on_creation": "boolean", "check_breach_on_authentication": "boolean", "validate_on_authentication": "boolean",
		"validation_policy": "string", "luds_min_password_length": "integer", "luds_min_password_complexity": "integer",
	}
)

func streamingShape(key string, destination fields) fields {
	return fields{
		"destination_type": "string", "destination_config": fields{key: destination}, "streaming_status": "string",
	}
}

// fits fails if v has not exactly the shape.
func fits(t *testing.T, path string, shape, v any) {
	t.Helper()
	switch shape := shape.(type) {
	case fields:
		object, ok := v.(map[string]any)
		require.True(t, ok, "%s is no object: %v", path, v)
		for name, inner := range shape {
			require.Contains(t, object, name, path)
			fits(t, path+"."+name, inner, object[name])
		}
		assert.Len(t, object, len(shape), "%s has more than the document: %v", path, object)
	case listOf:
		list, ok := v.([]any)
		require.True(t, ok, "%s is no array: %v", path, v)
		for i, item := range list {
			fits(t, fmt.Sprintf("%s[%d]", path, i), shape.item, item)
		}
	case string:
		assert.Equal(t, shape, jsonType(v), path)
	}
}

func jsonType(v any) string {
	switch v := v.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case json.Number:
		if _, err := v.Int64(); err == nil {
			return "integer"
		}
	}
	return fmt.Sprintf("%T", v)
}

const (
	lokiBody    = `{"destination_config":{"grafana_loki":{"hostname":"logs.example.com","username":"u","password":"pass-word-1234"}}}`
	datadogBody = `{"destination_config":{"datadog":{"api_key":"0123456789abcdef","site":"US"}}}`
)

func TestEveryOperationHasItsShape(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{Seed: 7})
	e := a.sim.Environments()[0]
	for _, op := range []struct {
		name, method, path, body string
		shape                    fields
	}{
		{"1", "GET", proj, "", fields{"project": projectShape}},
		{"2", "PATCH", proj, `{"name":"Renamed"}`, fields{"project": projectShape}},
		{
			"3", "PUT", env + "/redirect_urls?url=" + e.RedirectURLs[0],
			`{"valid_types":[{"is_default":true,"type":"LOGIN"}],"do_not_promote_defaults":true}`,
			fields{"redirect_url": fields{"url": "string", "valid_types": listOf{fields{"is_default": "boolean", "type": "string"}}}},
		},
		{"4", "GET", env + "/rbac_policy", "", fields{"policy": policyShape}},
		{"5", "GET", proj + "/email_templates", "", fields{"email_templates": listOf{templateShape}}},
		{"6", "GET", proj + "/default_email_templates/LOGIN", "", fields{"template_id": "string"}},
		{"7", "DELETE", proj + "/default_email_templates/LOGIN", "", fields{}},
		{"8", "GET", env + "/trusted_token_profiles", "", fields{"profiles": listOf{profileShape}}},
		{"9", "GET", env + "/password_strength_config", "", fields{"password_strength_config": passwordShape}},
		{"10", "GET", env + "/allowed_country_codes/sms", "", fields{"country_codes": listOf{"string"}}},
		{"11", "DELETE", env + "/secrets/" + e.Secrets[0], "", fields{}},
		{"12", "DELETE", env + "/public_tokens/" + e.PublicTokens[0], "", fields{}},
		{"14 datadog", "PUT", env + "/event_log_streaming/DATADOG", datadogBody, fields{
			"event_log_streaming_config": streamingShape("datadog", fields{"api_key": "string", "site": "string"}),
		}},
		{"13 datadog", "GET", env + "/event_log_streaming/DATADOG", "", fields{
			"event_log_streaming_config": streamingShape("datadog", fields{"api_key_last_four": "string", "site": "string"}),
		}},
		{"14 loki", "PUT", env + "/event_log_streaming/GRAFANA_LOKI", lokiBody, fields{
			"event_log_streaming_config": streamingShape("grafana_loki", fields{"hostname": "string", "username": "string", "password": "string"}),
		}},
		{"13 loki", "GET", env + "/event_log_streaming/GRAFANA_LOKI", "", fields{
			"event_log_streaming_config": streamingShape("grafana_loki", fields{"hostname": "string", "username": "string", "password_last_four": "string"}),
		}},
		{"create", "POST", "/v1/projects", `{"project_name":"New One","vertical":"B2B"}`, fields{"project": projectShape}},
	} {
		r := a.call(op.method, op.path, op.body)
		require.Equal(t, 200, r.status, "operation %s: %v", op.name, r.body)
		op.shape["request_id"], op.shape["status_code"] = "string", "integer"
		fits(t, "operation "+op.name, op.shape, r.body)
	}
}

// An empty list has any shape, so the seeded ones must not be empty.
func TestSeededDataIsRich(t *testing.T) {
	t.Parallel()
	sim, err := New(Options{Seed: 7})
	require.NoError(t, err)
	require.Len(t, sim.projects, 3)
	for _, p := range sim.projects {
		assert.NotEmpty(t, p.templates[5].CustomHTML.HTMLContent)
		assert.GreaterOrEqual(t, len(p.defaults), 2)
		require.Len(t, p.environments, 2)
		for _, e := range p.environments {
			assert.NotEmpty(t, e.policy.customRoles)
			assert.NotEmpty(t, e.policy.customScopes)
			assert.Contains(t, e.profiles[1].PEMFiles[0].PublicKey, "BEGIN PUBLIC KEY")
			assert.NotEmpty(t, e.countryCodes)
		}
	}
}

func TestSameSeedSameWorkspace(t *testing.T) {
	t.Parallel()
	dump := func(seed uint64) string {
		sim, err := New(Options{Seed: seed})
		require.NoError(t, err)
		for range 20 {
			_, err = sim.ChangeSomething()
			require.NoError(t, err)
		}
		var all []any
		for _, p := range sim.projects {
			all = append(all, p.project, p.templates, p.defaults)
			for _, e := range p.environments {
				all = append(all, e.policy, e.profiles, e.password, e.countryCodes, e.redirects, e.secrets)
			}
		}
		return string(mustJSON(all))
	}
	assert.Equal(t, dump(3), dump(3))
	assert.NotEqual(t, dump(3), dump(4))
}

func TestRBACPrefix(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{RBACPrefix: "brand"})
	policy, ok := a.call("GET", env+"/rbac_policy", "").body["policy"].(map[string]any)
	require.True(t, ok)
	for _, name := range []string{"brand_resources", "brand_member", "brand_admin", "brand_user"} {
		assert.Contains(t, policy, name)
	}
	assert.NotContains(t, policy, "service_resources")
}
