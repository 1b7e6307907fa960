package timeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/meaning"
)

// The severities and directions by their numbers in a file; only their ends may grow.
// Severities ascend.
var (
	severities = []string{string(meaning.Info), string(meaning.Low), string(meaning.Medium), string(meaning.High), string(meaning.Critical)}
	directions = []string{string(meaning.Unknown), string(meaning.Neutral), string(meaning.Stronger), string(meaning.Mixed), string(meaning.Weaker)}
)

// told is the part of an entry's Detail for people.
type told struct {
	Summary   string `json:"summary"`
	Severity  string `json:"severity"`
	Direction string `json:"direction"`
	Cause     string `json:"cause"`
}

// lineOf is the row of an entry. An entry without a sentence of its own gets it here.
func lineOf(e audit.Recorded) line {
	var t told
	if json.Unmarshal(e.Detail, &t) != nil {
		t = told{} // a Detail of another form says nothing of it
	}
	if t.Summary == "" {
		t = describe(e.Entry, t.Cause)
	}
	l := line{
		time: e.Time, kind: e.Type, project: e.Project, environment: e.Environment, subject: e.Subject,
		cause: t.Cause, severity: place(severities, t.Severity), direction: place(directions, t.Direction), summary: t.Summary,
	}
	if hasState(&e.Entry) {
		l.flags |= isState
	}
	if recordsChange(e.Type) {
		l.flags |= needsReview
	}
	if of, ok := annotationOf(&e.Entry); ok {
		l.flags |= isAnnotation
		l.reviews = of.Index
	}
	return l
}

// place is a name's number, 0 for an unknown name.
func place(names []string, name string) uint8 { return uint8(max(0, slices.Index(names, name))) }

// describe makes the sentence of an entry without one.
func describe(e audit.Entry, cause string) told {
	if len(e.Before) == 0 || !hasState(&e) {
		return told{Summary: sentence(&e), Severity: severityOf(e.Type), Direction: string(meaning.Neutral), Cause: cause}
	}
	// Relays up to now changed the streaming config only, and said so.
	cause = cmp.Or(cause, "outside")
	r, err := meaning.Read(e.Subject, e.Before, e.After)
	if err != nil {
		return told{Summary: e.Subject + " changed: " + err.Error(), Severity: string(meaning.Medium), Direction: string(meaning.Unknown), Cause: cause}
	}
	if r.Summary == "" {
		r.Summary = e.Subject + ": the state is the same as before"
	}
	return told{Summary: r.Summary, Severity: string(r.Severity), Direction: string(r.Direction), Cause: cause}
}

// hasState reports whether an entry shows the state of a setting: After, or nothing where
// it is gone.
func hasState(e *audit.Entry) bool {
	room, what, _ := strings.Cut(e.Type, ".")
	return (room == "settings" || room == "streaming") && (len(e.Before) > 0 || len(e.After) > 0 || what == "baseline")
}

// recordsChange tells the entries for a reviewer: all except first looks, attestations,
// repetitions, annotations, and notes about what can be read.
func recordsChange(kind string) bool {
	_, what, _ := strings.Cut(kind, ".")
	return !slices.Contains([]string{"baseline", "checked", "restated", "status_changed", "annotated", "intended", "put_intended", "put_ended", "failed", "recovered", "unreachable", "reachable", "back", "span"}, what)
}

// sentences are those of the entries without two states, by type.
var sentences = map[string]struct{ text, severity string }{
	"settings.baseline":       {"first look", "info"},
	"streaming.baseline":      {"first look", "info"},
	"settings.failed":         {"it cannot be read", "medium"},
	"settings.recovered":      {"it can be read again", "info"},
	"streaming.failed":        {"it cannot be read", "medium"},
	"streaming.recovered":     {"it can be read again", "info"},
	"streaming.put_intended":  {"the relay is about to set it", "info"},
	"streaming.put_ended":     {"the relay's attempt to set it has ended", "info"},
	"streaming.put_failed":    {"the relay could not set it", "high"},
	"streaming.checked":       {"it was read, and nothing more than the entries say has changed", "info"},
	"workspace.unreachable":   {"the API cannot be used: nothing is seen meanwhile", "high"},
	"workspace.reachable":     {"the API can be used again", "info"},
	"settings.checked":        {"the settings were read, and nothing more than the entries say has changed", "info"},
	"deadletters.discarded":   {"dead letters were discarded: they will not reach their sink", "medium"},
	"sink.retired":            {"the sink was retired: the journal keeps nothing for it any more", "medium"},
	"journal.damage_accepted": {"damage to the journal was accepted: the sinks pass over it", "high"},
	"events.span":             {"the events received since the span before were hashed", "info"},
	"credential.revoked":      {"a push credential was revoked", "low"},
	"action.intended":         {"", "low"},
	"action.ended":            {"", "low"},
	"environment.gone":        {"the environment does not exist any more", "high"},
	"environment.back":        {"the environment that was gone can be read again", "medium"},
	"credentials.damaged":     {"stored push credentials were damaged", "high"},
	audit.TypeDamaged:         {"damage to the audit trail was found", "high"},
	audit.TypeGeneration:      {"the audit trail begins a new generation", "high"},
}

func sentence(e *audit.Entry) string {
	if of, ok := annotationOf(e); ok {
		return of.sentence()
	}
	if e.Type == "action.intended" || e.Type == "action.ended" {
		return actionSentence(e)
	}
	s, known := sentences[e.Type]
	var end struct {
		Outcome string `json:"outcome"`
	}
	if e.Type == "streaming.put_ended" && json.Unmarshal(e.Detail, &end) == nil {
		s.text += ": " + end.Outcome
	}
	if !known {
		s.text = strings.NewReplacer(".", " ", "_", " ").Replace(e.Type)
	}
	return e.Subject + ": " + s.text
}

// actionSentence tells of a person's action on the workspace: see internal/workspace.
func actionSentence(e *audit.Entry) string {
	var a struct {
		Operation string `json:"operation"`
		Person    struct {
			User string `json:"user"`
			Host string `json:"host"`
		} `json:"person"`
		Reason  string `json:"reason"`
		Outcome string `json:"outcome"`
	}
	if json.Unmarshal(e.Detail, &a) != nil {
		return e.Type
	}
	text := fmt.Sprintf("%s on %s: %s, %s", a.Person.User, a.Person.Host, a.Operation, cmp.Or(a.Outcome, "intended"))
	if a.Reason != "" {
		text += ", because " + a.Reason
	}
	return text
}

func severityOf(kind string) string { return cmp.Or(sentences[kind].severity, string(meaning.Info)) }
