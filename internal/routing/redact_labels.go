package routing

import (
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/routing/match"
	"github.com/auditrelay/auditrelay/relay"
)

// labelRules are the actions on labels, by their folded names.
type labelRules struct {
	names    map[string]uint8 // the action
	patterns []labelPattern   // for names with a "*"
}

type labelPattern struct {
	match.Pattern

	action uint8
}

func (r *labelRules) add(name string, action uint8) {
	if strings.Contains(name, "*") {
		r.patterns = append(r.patterns, labelPattern{match.ParsePattern(name), action})
		return
	}
	if r.names == nil {
		r.names = map[string]uint8{}
	}
	if before, twice := r.names[name]; !twice || action < before {
		r.names[name] = action
	}
}

// of returns the action on a label with this folded name; found is false if there is none.
func (r *labelRules) of(name []byte) (action uint8, found bool) {
	action, found = r.names[string(name)]
	for _, p := range r.patterns {
		if (!found || p.action < action) && p.Matches(string(name)) {
			action, found = p.action, true
		}
	}
	return action, found
}

// flatNames returns the pointer as senders write it where there are no objects, folded:
// user.email and user_email for /user/email.
func flatNames(p jsontext.Pointer) []string {
	var steps []string
	for name := range p.Tokens {
		steps = append(steps, fold(name))
	}
	return []string{strings.Join(steps, "."), strings.Join(steps, "_")}
}

func (p places) areTags() bool {
	return slices.ContainsFunc(p, func(n *node) bool { return n.tags })
}

// hidesTag reports whether one of the tags in a text, which ingest reads as labels, is to be redacted.
func (r *redaction) hidesTag(text []byte) bool {
	for tag := range strings.SplitSeq(string(text), ",") {
		var given relay.Label
		given.Name, given.Value, _ = strings.Cut(strings.TrimSpace(tag), ":")
		if kept, ok := r.label(given); !ok || kept != given {
			return true
		}
	}
	return false
}

// keepLabels returns labels without those that the configuration names, and without those that have
// a value which a pointer names. The labels count as members of the body, whose names are steps
// of a pointer or a whole one, such as user.email. A label that corresponds to a whole hashed
// value is hashed. If nothing is to change, the result is labels itself; they are not written
// to.
func (r *redaction) keepLabels(labels []relay.Label) []relay.Label {
	for i, l := range labels {
		kept, ok := r.label(l)
		if ok && kept == l {
			continue
		}
		out := append(make([]relay.Label, 0, len(labels)), labels[:i]...)
		for _, l := range labels[i:] {
			if kept, ok := r.label(l); ok {
				out = append(out, kept)
			}
		}
		return out
	}
	return labels
}

// label returns what remains of one label; ok is false if nothing does.
func (r *redaction) label(l relay.Label) (kept relay.Label, ok bool) {
	var room [128]byte
	name := appendFold(room[:0], l.Name)
	action, found := r.labels.of(name)
	at := places{r.root}.member(nil, name) // r.labels contains the flat names
	if own, ends := at.action(); ends && (!found || own < action) {
		action, found = own, true
	}
	switch {
	case found && action == actionRemove:
		return l, false
	case found:
		l.Value = string(r.appendMAC(nil, []byte(l.Value)))
		return l, true
	case !mayHold([]byte(l.Value), false):
		return l, true
	}
	return l, !r.hides([]byte(l.Value), at)
}
