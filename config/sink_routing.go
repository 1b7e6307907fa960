package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/routing/match"
)

// Match chooses events: all of the given fields must match. Other events are acknowledged, and
// stay in the journal like all others.
type Match struct {
	// Types, Projects and Environments are names, of which one must match; a "*" stands for any
	// characters, or for none. An event of a whole project has the environment "".
	Types        []string `yaml:"types"`
	Projects     []string `yaml:"projects"`
	Environments []string `yaml:"environments"`
	// CEL is an expression of the Common Expression Language (https://cel.dev), true
	// for events to deliver. It knows the texts id, source, type, subject, project,
	// environment and raw, the body as received; the timestamps time and received;
	// labels, a map from a name to the list of its values; and body, its JSON, or null
	// for other texts. An integer is an int, a larger one a uint, any other number a
	// double; they compare with each other.
	//
	// An expression fails for an event on a missing key (test with has(), or write
	// body.?key.orValue("")), or when it takes too much work. OnError then decides
	// about the event. Failures are counted in auditrelay_sink_match_errors_total, and
	// now and then logged.
	CEL string `yaml:"cel"`
	// OnError is deliver (the default, since an auditor had better get too much) or withhold,
	// which sends the event to the sink's dead letters, with the reason.
	OnError string `yaml:"on_error" default:"deliver" check:"deliver|withhold"`
}

// Redact takes fields out of JSON bodies, each named by a JSON pointer (RFC 6901), such
// as /user/email or /sessions/*/ip: a "*" alone stands for each element of an array,
// and each member of an object. All other bytes of a body stay as they are. Names fit
// in any case, and all members of a repeated name are taken. A Datadog entry may hold
// its event as an object in "message": pointers lead into it too.
//
// A name with dots is a path too: /user/email takes a member user.email. Spellings that
// normalisation makes equal are equal: full-width letters, "ß" and "ss", "ı" and "i". A text
// is replaced whole, by "[redacted]", if it is JSON with a value named by a pointer, or if
// it holds JSON, or almost JSON, and has all names of a pointer in quotes.
//
// An event whose body cannot be read for certain goes to the sink's dead letters with the
// reason, and not to the sink. Such are: a body other than a JSON object, such as text,
// an array, or a string with JSON in it; invalid UTF-8, or nesting deeper than 512. The
// journal and the dead letters keep events as received; a replay redacts again.
//
// Labels count as members of the body (a loki sink sends them as structured metadata):
// /user/email takes those named user.email or user_email, or user with JSON and an
// email in it. If one of the tags in a Datadog entry's ddtags has such a name, that text is
// replaced whole. The attributes id, type and time may be a copy of a body's event_id,
// action and timestamp (or date), so these cannot be redacted.
type Redact struct {
	// Remove takes the values out: members with their names; an element of an array is replaced
	// by null.
	Remove []string `yaml:"remove"`
	// Hash replaces the values by the text "hmac-sha256:HEX", an HMAC-SHA256 with HashKey: of a
	// string its text, of any other value the JSON as it is written. So equal values stay
	// equal, and whoever has the key can look for one.
	Hash []string `yaml:"hash"`
	// Labels takes out labels by name, in any case; a "*" stands for any characters.
	Labels []string `yaml:"labels"`
	// Missing decides about an event that has no value at one of the pointers of Remove and
	// Hash: deliver (the default, since events of different kinds have different fields) or
	// withhold.
	Missing string `yaml:"missing" default:"deliver" check:"deliver|withhold"`
	// HashKey has at least 16 characters. After it is changed, the hash of a value differs from
	// what it was before.
	HashKey secret.Text `yaml:"hash_key"`
}

func (k *checker) match(at string, m *Match) {
	k.warnIf(len(m.Types)+len(m.Projects)+len(m.Environments) == 0 && m.CEL == "", at, "has no effect: it chooses everything")
	k.names(at+".types", m.Types)
	k.names(at+".projects", m.Projects)
	if m.CEL != "" {
		k.expression(at+".cel", m.CEL, match.Compile)
	}
}

// names refuses empty names, since no type and no project is empty.
func (k *checker) names(at string, names []string) {
	for i, name := range names {
		k.required(fmt.Sprintf("%s[%d]", at, i), name)
	}
}

// expression compiles an expression, with what its kind is compiled by.
func (k *checker) expression(at, text string, compile func(string) (*match.Condition, error)) {
	_, err := compile(text)
	var found match.Errors
	switch {
	case err != nil && holdsKey(text):
		k.fail(at, nil, "is no valid expression; the fault is not shown, as the text seems to hold a key")
	case errors.As(err, &found):
		for _, e := range found {
			k.fail(at, text, e.Error())
		}
	case err != nil:
		k.fail(at, text, err.Error())
	}
}

func (k *checker) redact(at string, r *Redact) {
	k.warnIf(len(r.Remove)+len(r.Hash)+len(r.Labels) == 0, at, "has no effect: neither remove nor hash nor labels names anything")
	k.names(at+".labels", r.Labels)
	k.copied(at+".remove", r.Remove, r.Labels)
	k.copied(at+".hash", r.Hash, r.Labels)
	named := map[string]string{}
	k.pointers(at+".remove", r.Remove, named)
	k.pointers(at+".hash", r.Hash, named)
	k.overlaps(at+".remove", r.Remove, named)
	k.overlaps(at+".hash", r.Hash, named)
	switch {
	case len(r.Hash) > 0:
		k.secret(at+".hash_key", r.HashKey)
		k.longEnough(at+".hash_key", r.HashKey)
	case !r.HashKey.Empty():
		k.warn(at+".hash_key", "has no effect without hash")
	}
}

// pointers checks a list of pointers, and records in named where each is written.
func (k *checker) pointers(at string, texts []string, named map[string]string) {
	for i, text := range texts {
		path := fmt.Sprintf("%s[%d]", at, i)
		_, err := jsontext.ParsePointer(text)
		before, twice := named[text]
		switch {
		case err != nil:
			k.fail(path, text, err.Error())
		case text == "":
			k.fail(path, nil, "names the whole body; name a part of it, as in /user/email")
		case twice:
			k.fail(path, text, "is named by "+before+" already; remove one")
		default:
			named[text] = path
		}
	}
}

// attributes are what the members are that ingest makes attributes of.
var attributes = map[string]string{
	"event_id": "is the event's id", "action": "is a part of the event's type",
	"timestamp": "may be the event's time", "date": "may be the event's time",
}

// copied refuses pointers to values that ingest copies from a body into attributes and labels,
// because they would be sent all the same.
func (k *checker) copied(at string, texts, labels []string) {
	for i, text := range texts {
		path := fmt.Sprintf("%s[%d]", at, i)
		steps, _ := strings.CutPrefix(strings.ToLower(text), "/")
		switch name, inside, _ := strings.Cut(steps, "/"); {
		case attributes[name] != "":
			k.fail(path, text, attributes[name]+", and each sink gets it as an attribute; it cannot be redacted")
		case name == "*" && inside == "":
			k.fail(path, text, "names event_id and action too, and each sink gets them as the attributes id and type; name the members to redact")
		case name == "ddtags" && len(labels) == 0:
			k.fail(path, text, `becomes labels, each with the name of its tag; take those out by name in labels, or all by labels: ["*"]`)
		}
	}
}

// redactedKey refuses a Kafka key that is made from a redacted value.
func (k *checker) redactedKey(path, key string, r *Redact) {
	if !strings.HasPrefix(key, "/") {
		return
	}
	for _, text := range r.Remove {
		k.failIf(pointsInto(key, text), path, key, "is removed by redact.remove, so no record would have a key; hash it instead, or choose another key")
	}
	for _, text := range r.Hash {
		if pointsInto(key, text) && strings.Count(key, "/") > strings.Count(text, "/") {
			k.fail(path, key, "is inside a value replaced by redact.hash, so no record would have a key; hash the key itself, or choose another key")
		}
	}
}

// pointsInto reports whether the pointer at names the value of around, or a value in
// it.
func pointsInto(at, around string) bool {
	inner, outer := strings.Split(strings.ToLower(at), "/"), strings.Split(strings.ToLower(around), "/")
	if len(inner) < len(outer) {
		return false
	}
	for i, step := range outer {
		if step != "*" && step != inner[i] {
			return false
		}
	}
	return true
}

// overlaps warns of pointers into a value that another one takes as a whole.
func (k *checker) overlaps(at string, texts []string, named map[string]string) {
	for i, text := range texts {
		for end := strings.LastIndexByte(text, '/'); end > 0; end = strings.LastIndexByte(text[:end], '/') {
			if around, taken := named[text[:end]]; taken {
				k.warn(fmt.Sprintf("%s[%d]", at, i), "has no effect: "+around+" takes everything around it")
				break
			}
		}
	}
}

// relayProject is the project of the relay's own audit events.
const relayProject = "auditrelay"

// typeFamilies are the first parts of types: those of pushed events, and the relay's own.
func typeFamilies() []string {
	return []string{"event_log", "settings", "streaming", "journal", "trail", "audit", "credential", "credentials", "deadletters", "sink", "environment", "workspace", "action", "health", "silence", "migration", "policy", "relay", "console"}
}

// relayTypes are types of the relay's own events, to suggest for a pattern.
func relayTypes() []string {
	return []string{
		"settings.baseline", "settings.changed", "settings.gone", "settings.restated", "settings.checked",
		"settings.failed", "settings.recovered", "streaming.failed", "streaming.recovered", "streaming.checked",
		"streaming.put_intended", "streaming.put_ended", "streaming.put_failed",
		"health.changed", "health.gap", "silence.added", "silence.ended", "migration.started", "migration.ended", "policy.violated", "policy.ended", "environment.gone", "environment.back", "workspace.unreachable", "workspace.reachable", "action.intended", "action.ended",
		"streaming.baseline", "streaming.changed", "streaming.restated", "streaming.status_changed",
		"journal.quarantined", "journal.damage_accepted", "trail.damaged", "trail.restored", "trail.generation", "trail.key_rotated", "trail.checkpoint",
		"trail.witness_refused", "trail.witness_agreed",
		"credential.revoked", "console.session_revoked", "console.work_stopped", "credentials.damaged", "deadletters.discarded", "deadletters.replayed", "journal.replayed", "sink.retired", "relay.started", "relay.reloaded", "relay.stopped",
	}
}

// matchNames warns of names that no event has. A sink that matches only these gets nothing,
// without any sign of it.
func (k *checker) matchNames(at string, m *Match, environments []Environment) {
	projects, names := []string{relayProject, "-"}, []string{""}
	for _, e := range environments {
		projects, names = append(projects, e.Project), append(names, e.Environment)
	}
	k.known(at+".projects", m.Projects, projects, "project")
	k.known(at+".environments", m.Environments, names, "environment")
	for i, pattern := range m.Types {
		if reason := unknownType(pattern); reason != "" {
			k.warn(fmt.Sprintf("%s.types[%d]", at, i), reason)
		}
	}
}

func (k *checker) known(at string, patterns, names []string, what string) {
	for i, text := range patterns {
		if pattern := match.ParsePattern(text); !slices.ContainsFunc(names, pattern.Matches) {
			k.warn(fmt.Sprintf("%s[%d]", at, i), "matches nothing: no "+what+" of that name is in environments")
		}
	}
}

// unknownType says why no event's type matches pattern, or returns nothing.
func unknownType(pattern string) string {
	literal, _, wild := strings.Cut(pattern, "*")
	if !wild && !slices.Contains(relayTypes(), pattern) {
		for _, known := range relayTypes() {
			if near(pattern, known) {
				return "matches nothing; did you mean " + known + "?"
			}
		}
	}
	for _, family := range typeFamilies() {
		begins := strings.HasPrefix(literal, family+".") || wild && strings.HasPrefix(family+".", literal)
		if begins || pattern == "event_log" {
			return ""
		}
	}
	return "matches nothing: types begin with " + strings.Join(typeFamilies(), "., ") + "."
}
