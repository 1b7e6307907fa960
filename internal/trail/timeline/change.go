package timeline

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// Who is the actor of an entry; of an unknown one it is the cause.
func (r Row) Who() string {
	if r.Actor == "unknown" {
		return cmp.Or(r.Cause, r.Actor)
	}
	return cmp.Or(r.Actor, r.Cause)
}

// Statements tell an entry's differences, as it was signed, or else as they are read now. There are
// none in an entry without two states.
func (e Entry) Statements() []meaning.Statement {
	if len(e.Before) == 0 || OfReads(e.Type) {
		return nil
	}
	var told meaning.Reading
	if json.Unmarshal(e.Detail, &told) == nil && len(told.Statements) > 0 {
		return told.Statements
	}
	read, _ := meaning.Read(e.Setting, e.Before, e.After) // of states that are no JSON, nothing
	return read.Statements
}

// undos say how a change of another kind than those in internal/workspace/kinds is undone, by its name.
var undos = map[string]string{
	"event_log_streaming":        "'auditrelay streaming apply' sets the desired config, 'auditrelay workspace streaming set' another one",
	"event_log_streaming_second": "the API has no operation that removes a config: remove it in the dashboard",

	"workspace_actions/project.create":      "the API has no operation that deletes a project: delete it in the dashboard",
	"workspace_actions/secret.delete":       "the API has no operation that makes a secret: make another one in the dashboard",
	"workspace_actions/public_token.delete": "the API has no operation that makes a public token: make another one in the dashboard",
}

// Undo says how the change of an entry is undone; empty where the entry changed nothing.
func (e Entry) Undo() string {
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
