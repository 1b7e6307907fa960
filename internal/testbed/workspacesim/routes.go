package workspacesim

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// operation is one of the API's operations. handle runs with the state locked, and its
// result is encoded before the lock is released.
type operation struct {
	method  string
	pattern string // segments beginning with ":" are parameters
	body    bool   // takes a JSON object
	handle  func(*Simulator, *call) (map[string]any, *apiError)
}

const (
	projectPath     = "/pwa/v3/projects/:project_slug"
	environmentPath = projectPath + "/environments/:environment_slug"
	defaultPath     = projectPath + "/default_email_templates/:email_template_type"
	streamingPath   = environmentPath + "/event_log_streaming/:destination_type"
)

// operations are in the order of the document's table. Project creation has no number
// there. The last five are of the second API, for migrations.
var operations = []operation{
	{method: http.MethodGet, pattern: projectPath, handle: (*Simulator).getProject},
	{method: http.MethodPatch, pattern: projectPath, body: true, handle: (*Simulator).updateProject},
	{method: http.MethodPut, pattern: environmentPath + "/redirect_urls", body: true, handle: (*Simulator).updateRedirectURL},
	{method: http.MethodGet, pattern: environmentPath + "/rbac_policy", handle: (*Simulator).getPolicy},
	{method: http.MethodGet, pattern: projectPath + "/email_templates", handle: (*Simulator).getEmailTemplates},
	{method: http.MethodGet, pattern: defaultPath, handle: (*Simulator).getDefaultTemplate},
	{method: http.MethodDelete, pattern: defaultPath, handle: (*Simulator).unsetDefaultTemplate},
	{method: http.MethodGet, pattern: environmentPath + "/trusted_token_profiles", handle: (*Simulator).getProfiles},
	{method: http.MethodGet, pattern: environmentPath + "/password_strength_config", handle: (*Simulator).getPasswordStrength},
	{method: http.MethodGet, pattern: environmentPath + "/allowed_country_codes/sms", handle: (*Simulator).getCountryCodes},
	{method: http.MethodDelete, pattern: environmentPath + "/secrets/:secret_id", handle: (*Simulator).deleteSecret},
	{method: http.MethodDelete, pattern: environmentPath + "/public_tokens/:public_token", handle: (*Simulator).deletePublicToken},
	{method: http.MethodGet, pattern: streamingPath, handle: (*Simulator).getStreaming},
	{method: http.MethodPut, pattern: streamingPath, body: true, handle: (*Simulator).setStreaming},
	{method: http.MethodPost, pattern: "/v1/projects", body: true, handle: (*Simulator).createProject},

	{method: http.MethodPost, pattern: "/v1/b2b/organizations", body: true, handle: (*Simulator).migrateOrganization},
	{method: http.MethodPost, pattern: "/v1/b2b/organizations/:organization_id/members", body: true, handle: (*Simulator).migrateMember},
	{method: http.MethodPost, pattern: "/v1/b2b/passwords/migrate", body: true, handle: (*Simulator).migratePassword},
	{method: http.MethodPost, pattern: "/v1/b2b/sessions/migrate", body: true, handle: (*Simulator).migrateMemberSession},
	{method: http.MethodPost, pattern: "/v1/sessions/migrate", body: true, handle: (*Simulator).migrateSession},
}

// route finds the operation of a request and its path parameters. It takes the path as
// sent: it cleans nothing, and unescapes each segment by itself.
func route(method, escapedPath string) (*operation, map[string]string, *apiError) {
	var allow []string
	for i := range operations {
		params, ok := matchPath(operations[i].pattern, escapedPath)
		if !ok {
			continue
		}
		if operations[i].method == method {
			return &operations[i], params, nil
		}
		allow = append(allow, operations[i].method)
	}
	if allow == nil {
		return nil, nil, notFound("route_not_found", "There is no such path.")
	}
	slices.Sort(allow)
	return nil, nil, &apiError{
		status: http.StatusMethodNotAllowed, kind: "method_not_allowed",
		message: "The path takes " + strings.Join(allow, " and ") + ".", allow: strings.Join(allow, ", "),
	}
}

func matchPath(pattern, path string) (map[string]string, bool) {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return nil, false
	}
	params := map[string]string{}
	for i, w := range want {
		value, err := url.PathUnescape(got[i])
		if err != nil {
			return nil, false
		}
		name, isParam := strings.CutPrefix(w, ":")
		switch {
		case isParam && value != "":
			params[name] = value
		case isParam || value != w:
			return nil, false
		}
	}
	return params, true
}
