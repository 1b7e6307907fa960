package routing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/routing/match"
	"github.com/auditrelay/auditrelay/relay"
)

// redaction removes values from events, or replaces them by keyed hashes, and leaves every other
// byte of a body as it was: it splices bytes and never re-encodes. It is immutable, except for a
// pool, and may be used by several goroutines.
//
// Its purpose is to keep personal data from a destination, so it would rather take too much
// than too little: see [redaction.apply]. It considers how any reader might read the body: names
// in any case and in any spelling that normalisation makes equal, names with dots as paths, each
// of several equal names, JSON inside strings (a string with a value to redact is replaced as a
// whole), and the object in a Datadog entry's "message". Labels count as members of the body.
type redaction struct {
	root     *node
	pointers []string // by number
	strict   bool     // whether each pointer has to name something
	labels   labelRules
	macs     sync.Pool // of hash.Hash
}

// messageMember is the member that has the event in a Datadog entry, unless it is plain text, and
// tagsMember the one with its tags, as in "team:iam,user.email:x".
const (
	messageMember = "message"
	tagsMember    = "ddtags"
)

// newRedaction reads the redact section of the configuration. Pointers are JSON pointers (RFC 6901); the
// step "*" stands for each element of an array and each member of an object. Values that Remove
// names are taken out: a member with its name, while an element becomes null, so that the
// others keep their places. Values that Hash names are replaced by "hmac-sha256:HEX", see
// [redaction.apply]. If both name a value, or one names a value around it, more is taken: a removed
// value is not hashed, and a hashed one is not searched.
//
// An error names a pointer, and the column of the fault.
func newRedaction(cfg config.Redact) (*redaction, error) {
	if len(cfg.Hash) > 0 && cfg.HashKey.Empty() {
		return nil, errors.New("a key is required to hash with")
	}
	r := &redaction{root: &node{}, strict: cfg.Missing == "withhold"}
	r.macs.New = func() any { return hmac.New(sha256.New, []byte(cfg.HashKey.Reveal())) }
	for action, texts := range [...][]string{actionRemove: cfg.Remove, actionHash: cfg.Hash} {
		for _, text := range texts {
			p, err := parse(text)
			if err != nil {
				return nil, fmt.Errorf("pointer %q: %w", text, err)
			}
			r.add(p, uint8(action))
		}
	}
	for _, name := range cfg.Labels {
		r.labels.add(fold(name), actionRemove)
	}
	return r, nil
}

// add takes a pointer into the body, and into the message inside a Datadog entry's
// body.
func (r *redaction) add(p jsontext.Pointer, action uint8) {
	number := len(r.pointers)
	r.pointers = append(r.pointers, p.String())
	r.root.add(p, action, number)
	r.root.step(messageMember, -1).add(p, action, number)
	for _, name := range flatNames(p) {
		r.labels.add(name, action)
	}
	for _, at := range []*node{r.root, r.root.step(messageMember, -1)} {
		tags := at.step(tagsMember, -1)
		tags.tags, tags.step("*", -1).tags = true, true // a list of them, too
	}
}

func parse(text string) (jsontext.Pointer, error) {
	p, err := jsontext.ParsePointer(text)
	if err == nil && text == "" {
		err = errors.New("the empty pointer names the whole body; name a part of it, as in /user/email")
	}
	return p, err
}

// apply returns body after all actions of the rules. If there is nothing to do, changed is
// false and the result is body itself; otherwise the result is new, since body is not written
// to. The error contains nothing of the body.
//
// All members with a repeated name are removed. A name is known by its text, however it is
// escaped, and in any case, since readers differ. Pointers count from the body, and from its
// member "message" if that is an object. A hash is made of a string's text, unescaped (or as it
// is written if the text is invalid, such as half of a surrogate pair), and of any other value
// as it is written.
//
// Where a value cannot be removed with certainty, more is removed: a text that contains JSON
// with a value that a pointer names is replaced by [hidden], and a member on the way of a
// pointer is removed if its name has no certain text.
//
// An error means that the body itself cannot be read with certainty: it is not a JSON object to
// its end, is not valid UTF-8, or nests deeper than [jsontext.MaxDepth]; or, with missing:
// withhold, that a pointer names nothing.
func (r *redaction) apply(body []byte) (redacted []byte, changed bool, _ error) {
	if len(r.pointers) == 0 {
		return body, false, nil
	}
	if !utf8.Valid(body) {
		return nil, false, jsontext.ErrUTF8
	}
	e := editor{rules: r, body: body}
	e.scan.Reset(body)
	if r.strict {
		e.seen = make([]bool, len(r.pointers))
	}
	if err := e.whole(); err != nil {
		return nil, false, err
	}
	if e.out == nil {
		return body, false, nil
	}
	return append(e.out, body[e.copied:]...), true, nil
}

const hashPrefix = "hmac-sha256:"

// appendHash appends the JSON string that replaces raw, a JSON value.
func (r *redaction) appendHash(dst, raw []byte) []byte {
	text := raw
	if raw[0] == '"' {
		text = raw[1 : len(raw)-1]
		var s jsontext.Scanner
		s.Reset(raw)
		if quoted, err := s.String(); err == nil && quoted.Escaped {
			if unescaped, err := quoted.AppendText(nil); err == nil {
				text = unescaped
			}
		}
	}
	return append(r.appendMAC(append(dst, '"'), text), '"')
}

// appendMAC appends the hash of a text.
func (r *redaction) appendMAC(dst, text []byte) []byte {
	mac, _ := r.macs.Get().(hash.Hash)
	defer r.macs.Put(mac)
	mac.Reset()
	_, _ = mac.Write(text) // never fails
	var sum [sha256.Size]byte
	return hex.AppendEncode(append(dst, hashPrefix...), mac.Sum(sum[:0]))
}

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
