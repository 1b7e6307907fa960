package timeline

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
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
	// Actor is of a change, Person of a person's action or command.
	Actor  string       `json:"actor"`
	Person audit.Person `json:"person"`
	// Statements are the sentences that Summary stands for; they are found by their text.
	Statements []struct {
		Sentence string `json:"sentence"`
	} `json:"statements"`
}

// further are the sentences only counted in a summary.
func (t *told) further() string {
	if len(t.Statements) < 2 {
		return ""
	}
	var text strings.Builder
	for _, s := range t.Statements {
		if text.Len() < maxFurther {
			text.WriteString(s.Sentence + "\n")
		}
	}
	return bounded(text.String(), maxFurther)
}

// lineOf is the row of an entry. An entry without a sentence of its own gets it here.
func lineOf(e audit.Recorded) line {
	var t told
	if json.Unmarshal(e.Detail, &t) != nil {
		t = told{} // a Detail of another form says nothing of it
	}
	actor := t.actor()
	if t.Summary == "" {
		t = describe(e.Entry, t.Cause)
	}
	l := line{time: e.Time, levels: levelsOf(place(severities, t.Severity), place(directions, t.Direction)), text: textOf(t.Summary, t.further())}
	if hasState(&e.Entry) {
		l.flags |= isState
	}
	if recordsChange(e.Type) && (!strings.HasPrefix(e.Type, "relay.") || t.Direction != string(meaning.Neutral)) {
		l.flags |= needsReview
	}
	if of, ok := annotationOf(&e.Entry); ok {
		l.flags |= isAnnotation
		l.reviews, actor = of.Index, of.String()
	}
	l.names = [columns]string{
		ofEnvironment: e.Environment, ofSubject: e.Subject, ofKind: e.Type, ofProject: e.Project, ofCause: t.Cause, ofActor: cmp.Or(actor, t.actor()),
	}
	for i, name := range l.names {
		l.names[i] = ShortName(name)
	}
	return l
}

// actor is who made the change of an entry, as far as it says so.
func (t *told) actor() string {
	switch {
	case t.Actor != "":
		return t.Actor
	case t.Person.User != "":
		return t.Person.String()
	case t.Cause == "outside":
		return "unknown"
	}
	return ""
}

// place is a name's number, 0 for an unknown name.
func place(names []string, name string) uint8 { return uint8(max(0, slices.Index(names, name))) }

// describe makes the sentence of an entry without one.
func describe(e audit.Entry, cause string) told {
	if len(e.Before) == 0 || !hasState(&e) {
		return plain(&e, cause)
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
	t := told{Summary: r.Summary, Severity: string(r.Severity), Direction: string(r.Direction), Cause: cause}
	for _, s := range r.Statements {
		t.Statements = append(t.Statements, struct {
			Sentence string `json:"sentence"`
		}{s.Sentence})
	}
	return t
}

// hasState reports whether an entry shows the state of a setting: After, or nothing where
// it is gone. The states of failures are those of the relay's reads, and not of a setting.
func hasState(e *audit.Entry) bool {
	room, what, _ := strings.Cut(e.Type, ".")
	return !OfReads(e.Type) && (room == "settings" || room == "streaming") && (len(e.Before) > 0 || len(e.After) > 0 || what == "baseline")
}

// OfReads reports whether entries of a type name failing reads, without a state of a
// setting.
func OfReads(kind string) bool {
	_, what, _ := strings.Cut(kind, ".")
	return what == "failed" || what == "recovered"
}

// recordsChange selects the entries for a reviewer: all except first looks, attestations,
// repetitions, annotations, and notes about reads or arrivals.
func recordsChange(kind string) bool {
	room, what, _ := strings.Cut(kind, ".")
	return room != "health" && !slices.Contains([]string{"baseline", "checked", "restated", "annotated", "intended", "put_intended", "put_ended", "failed", "recovered", "unreachable", "reachable", "back", "span"}, what)
}

// plain tells an entry without two states.
func plain(e *audit.Entry, cause string) told {
	text, severity := meaning.OfEntry(e.Type, e.Subject, e.Detail)
	if of, ok := annotationOf(e); ok {
		text = of.sentence()
	}
	return told{Summary: text, Severity: string(severity), Direction: string(meaning.Neutral), Cause: cause}
}
