package cli

import (
	"encoding/json"
	"strings"

	"github.com/auditrelay/auditrelay/internal/timeline"
)

// inTheDashboard is the way back for everything that the API can only read.
const inTheDashboard = "the API has no operation that sets it: put it back in the dashboard"

// undos say how a setting is put back to the state before, by its name.
var undos = map[string]string{
	"project":                    "'auditrelay workspace project rename' sets the name; the API has no operation for the rest",
	"email_templates":            inTheDashboard,
	"default_email_templates":    "the API can unset a default template, and has no operation that sets one: put it back in the dashboard",
	"rbac_policy":                inTheDashboard,
	"trusted_token_profiles":     inTheDashboard,
	"password_strength_config":   inTheDashboard,
	"sms_country_codes":          inTheDashboard,
	"event_log_streaming":        "'auditrelay streaming apply' sets the desired config, 'auditrelay workspace streaming set' another one",
	"event_log_streaming_second": "the API has no operation that removes a config: remove it in the dashboard",

	"workspace_actions/project.create":      "the API has no operation that deletes a project: delete it in the dashboard",
	"workspace_actions/secret.delete":       "the API has no operation that makes a secret: make another one in the dashboard",
	"workspace_actions/public_token.delete": "the API has no operation that makes a public token: make another one in the dashboard",
}

// undoOf says how the change of an entry is undone; empty where the entry changed nothing.
func undoOf(e timeline.Entry) string {
	if strings.HasPrefix(e.Setting, "workspace_actions/") {
		var ended struct{ Outcome string }
		if json.Unmarshal(e.Detail, &ended) != nil || ended.Outcome == "" || ended.Outcome == "refused" {
			return ""
		}
		return undos[e.Setting]
	}
	if _, what, _ := strings.Cut(e.Type, "."); what != "changed" && what != "gone" {
		return ""
	}
	return undos[e.Setting]
}
