package meaning

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// OfEntry returns the sentence of a trail's entry, and how urgently a person should look.
// They are those in its detail ("summary", "severity"), or else follow from its type.
// kind is the type, such as "settings.failed".
func OfEntry(kind, subject string, detail json.RawMessage) (string, Severity) {
	var told struct {
		Summary  string   `json:"summary"`
		Severity Severity `json:"severity"`
		Outcome  string   `json:"outcome"`
	}
	if json.Unmarshal(detail, &told) == nil && told.Summary != "" {
		return told.Summary, told.Severity
	}
	s := entrySentences[kind]
	if strings.HasPrefix(kind, "action.") {
		return actionSentence(kind, detail), actionRule(kind, detail).Severity
	}
	if kind == "streaming.put_ended" {
		s.text += ": " + told.Outcome
	}
	s.text = cmp.Or(s.text, strings.NewReplacer(".", " ", "_", " ").Replace(kind))
	return subject + ": " + s.text, cmp.Or(s.severity, Info)
}

// entrySentences are those of the entries without two states, by type.
var entrySentences = map[string]struct {
	text     string
	severity Severity
}{
	"settings.baseline":       {"first look", Info},
	"streaming.baseline":      {"first look", Info},
	"settings.failed":         {"it cannot be read", Medium},
	"settings.recovered":      {"it can be read again", Info},
	"streaming.failed":        {"it cannot be read", Medium},
	"streaming.recovered":     {"it can be read again", Info},
	"streaming.put_intended":  {"the relay is about to set it", Info},
	"streaming.put_ended":     {"the relay's attempt to set it has ended", Info},
	"streaming.put_failed":    {"the relay could not set it", High},
	"streaming.checked":       {"it was read, and nothing more than the entries say has changed", Info},
	"workspace.unreachable":   {"the API cannot be used: nothing is seen meanwhile", High},
	"workspace.reachable":     {"the API can be used again", Info},
	"settings.checked":        {"the settings were read, and nothing more than the entries say has changed", Info},
	"deadletters.discarded":   {"dead letters were discarded: they will not reach their sink", Medium},
	"deadletters.replayed":    {"dead letters are handed to a sink again", Low},
	"journal.replayed":        {"events of a time are handed to a sink again", Low},
	"sink.retired":            {"the sink was retired: the journal keeps nothing for it any more", Medium},
	"journal.damage_accepted": {"damage to the journal was accepted: the sinks pass over it", High},
	"events.span":             {"the events received since the span before were hashed", Info},
	"journal.quarantined":     {"damaged or lost records were found, and are named in the quarantine", High},
	"credential.revoked":      {"a push credential was revoked", Low},
	"console.session_revoked": {"people were logged out of the console", Low},
	"console.work_stopped":    {"a replay or a removal of dead letters was stopped", Low},
	"health.changed":          {"whether the event log flows has changed", Medium},
	"health.gap":              {"events were lost in a gap of the event log", High},
	"silence.added":           {"an environment raises no alarm for a while", Medium},
	"silence.ended":           {"a silence was ended before its time", Low},
	"policy.violated":         {"a policy is violated", High},
	"policy.ended":            {"a violation of a policy has ended, or is excepted", Info},
	"migration.started":       {"a migration into the project began", High},
	"migration.ended":         {"a migration into the project has ended", High},
	"environment.gone":        {"the environment does not exist any more", High},
	"environment.back":        {"the environment that was gone can be read again", Medium},
	"credentials.damaged":     {"stored push credentials were damaged", High},
	"relay.started":           {"the relay started", Info},
	"relay.reloaded":          {"the relay reloaded its configuration", Info},
	"relay.stopped":           {"the relay stopped", Info},
	"trail.damaged":           {"damage to the audit trail was found", High},
	"trail.restored":          {"entries lost or damaged in the audit trail's log are read from its files", High},
	"trail.generation":        {"the audit trail begins a new generation", High},
	"trail.archived":          {"old entry bundles of the audit trail were moved to an archive", Low},
	"trail.key_rotated":       {"the key of the audit trail names its successor", Medium},
	"trail.witness_refused":   {"it knows another history of the audit trail: the trail was set back, or shown in two versions", Critical},
	"trail.witness_agreed":    {"it signs the audit trail again, after it had refused", High},
}

// action is the part of an action's entry that its sentence and rule need: see
// internal/workspace.
type action struct {
	Operation string            `json:"operation"`
	Arguments map[string]string `json:"arguments"`
	Person    struct {
		User    string `json:"user"`
		Host    string `json:"host"`
		Claimed string `json:"claimed"`
		By      string `json:"by"`
	} `json:"person"`
	Reason  string `json:"reason"`
	Outcome string `json:"outcome"`
}

// OfAction returns the direction of an entry about a person's action on the workspace.
func OfAction(kind string, detail json.RawMessage) Direction {
	return actionRule(kind, detail).Direction
}

// actionRule judges an action by what it may break or open. The entry of the intent is
// routine, so that one deletion rings once: the end follows, if only at the next start.
func actionRule(kind string, detail json.RawMessage) Rule {
	var a action
	_ = json.Unmarshal(detail, &a) // an unreadable one is routine
	switch {
	case kind != "action.ended":
	case a.Outcome == "refused":
		return rules["action.refused"]
	case a.Operation == "secret.delete", a.Operation == "public_token.delete":
		return rules["action.credential_deleted"]
	case a.Operation == "redirect_urls.set_types" && strings.Trim(a.Arguments["types"]+a.Arguments["default_types"], ", ") == "":
		return rules["action.redirect_closed"]
	case a.Operation == "redirect_urls.set_types":
		return rules["action.redirect_opened"]
	}
	return rules["action.routine"]
}

// actionSentence tells of a person's action on the workspace.
func actionSentence(kind string, detail json.RawMessage) string {
	var a action
	if json.Unmarshal(detail, &a) != nil {
		return kind
	}
	text := fmt.Sprintf("%s on %s", visible(a.Person.User, maxName), visible(a.Person.Host, maxName))
	if a.Person.By != "" {
		text = fmt.Sprintf("%s (by %s of %s)", visible(a.Person.User, maxName), visible(a.Person.By, maxName), visible(a.Person.Host, maxName))
	}
	if a.Person.Claimed != "" {
		text += ", who claims to be " + quote(a.Person.Claimed)
	}
	text += ": " + visible(a.Operation, maxName)
	for _, name := range slices.Sorted(maps.Keys(a.Arguments)) {
		text += fmt.Sprintf(", %s %s", visible(name, maxName), quote(a.Arguments[name]))
	}
	text += ": " + cmp.Or(visible(a.Outcome, maxName), "intended")
	if a.Reason != "" {
		text += ", because " + visible(a.Reason, maxText)
	}
	return text
}

var actionRules = []Rule{
	{"action.routine", Neutral, Low, "A person's action whose effect is in the entry of a setting, or none.", "The setting's entry says what it means."},
	{"action.refused", Neutral, Low, "The API refused a person's action.", "Nothing changed."},
	{"action.credential_deleted", Stronger, High, "A person deleted a secret or a public token, or may have.", "Whoever uses it is locked out, and no setting shows it: this entry is its only trace."},
	{"action.redirect_opened", Unknown, High, "A person set the uses of a redirect URL, or may have.", "Log-ins may be sent there, and others no longer; the API does not show what was before: this entry is its only trace."},
	{"action.redirect_closed", Stronger, Medium, "A person left a redirect URL without any use, or may have.", "Log-ins that return there fail; this entry is its only trace."},
}
