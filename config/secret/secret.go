// Package secret has the one type for keys, passwords and tokens.
package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode/utf8"
	"unique"
)

// Redacted is the printed form of a [Text].
const Redacted = "[redacted]"

// Text is a secret. It prints as [Redacted] in every way (fmt with any verb,
// slog, JSON, YAML and other text encodings); only Reveal gives the value. The zero value
// is the empty secret, and is encoded as the empty string.
//
// Two Texts are == if their values are, so it can be a map's key. Unlike Equal, this
// comparison does not take constant time.
type Text struct {
	// A handle keeps the value where only a pointer leads. fmt does not follow the pointer,
	// even where it does not call a method of ours: on unexported fields of structs, and for
	// the verbs %p and %w. The zero handle is the empty secret.
	handle unique.Handle[string]
}

// New wraps value.
func New(value string) Text {
	if value == "" {
		return Text{}
	}
	return Text{unique.Make(value)}
}

// Reveal returns the secret itself: call it only where it goes on the wire, and
// nowhere else.
func (t Text) Reveal() string {
	if t.Empty() {
		return ""
	}
	return t.handle.Value()
}

// Empty reports whether there is no secret.
func (t Text) Empty() bool { return t == Text{} }

// Equal compares in a time independent of both values.
func (t Text) Equal(other string) bool {
	a, b := sha256.Sum256([]byte(t.Reveal())), sha256.Sum256([]byte(other))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// LastFour returns the last four characters, as the Workspace Management API shows them
// on read ("password_last_four"). It is empty of a secret too short to give four characters
// away, and of one with others than ASCII there: servers count those in different ways.
func (t Text) LastFour() string {
	value := t.Reveal()
	if len(value) < 12 {
		return ""
	}
	last := value[len(value)-4:]
	if strings.IndexFunc(last, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
		return ""
	}
	return last
}

func (t Text) String() string {
	if t.Empty() {
		return ""
	}
	return Redacted
}

// Format implements fmt.Formatter for every verb.
func (t Text) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, t.String()) }

// GoString implements fmt.GoStringer.
func (t Text) GoString() string { return t.String() }

// LogValue implements slog.LogValuer.
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText implements encoding.TextMarshaler; encoding/json uses it too.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Text) UnmarshalText(b []byte) error {
	*t = New(string(b))
	return nil
}

// Hide returns a replacer of the texts that puts [Redacted] in their place, for text from a
// peer that may repeat what it was sent. Texts shorter than shortest are left alone, since they
// may be everyday words.
func Hide(shortest int, texts ...string) *strings.Replacer {
	// The longest comes first, so that none leaves a part of another.
	texts = slices.SortedFunc(slices.Values(texts), func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, text := range texts {
		if len(text) >= max(shortest, 1) {
			pairs = append(pairs, text, Redacted)
		}
	}
	return strings.NewReplacer(pairs...)
}

// HideInError returns err, or, if its text has one of the texts that hide replaces, an error
// without it and without the chain.
func HideInError(hide *strings.Replacer, err error) error {
	text := err.Error()
	if hidden := hide.Replace(text); hidden != text {
		return errors.New(hidden)
	}
	return err
}
