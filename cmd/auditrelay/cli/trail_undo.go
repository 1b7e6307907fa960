package cli

import (
	"encoding/json"
	"strings"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// undos say how a change of another kind than those in internal/workspace/kinds is undone, by its name.
var undos = map[string]string{
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
	for _, kind := range kinds.All() {
		if kind.Name == e.Setting {
			return kind.Undo
		}
	}
	return undos[e.Setting]
}
