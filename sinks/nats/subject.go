package nats

import (
	"strings"

	"github.com/auditrelay/auditrelay/relay"
)

// lastType is how a subject ends that ends with the event's type. The dots of the type remain
// separators there, so that a subscriber to "auditrelay.*.*.settings.>" gets settings.changed.
const lastType = ".{type}"

// subject is a template of subjects.
type subject struct {
	text     string
	before   *relay.Template // the whole template, or the part before lastType
	typeLast bool
}

func parseSubject(text string) subject {
	before, typeLast := strings.CutSuffix(text, lastType)
	return subject{text: text, before: relay.ParseTemplate(before), typeLast: typeLast}
}

// appendFor appends the subject of e.
func (s *subject) appendFor(dst []byte, e *relay.Event) []byte {
	dst = s.before.AppendName(dst, e, appendToken)
	if s.typeLast {
		dst = appendTokens(append(dst, '.'), e.Type)
	}
	return dst
}

// appendTokens appends the dotted tokens of a type. A type with an empty token becomes a single
// token, since no subject may have an empty one.
func appendTokens(dst []byte, value string) []byte {
	switch {
	case value == "":
		return append(dst, relay.NoValue...)
	case strings.HasPrefix(value, "."), strings.HasSuffix(value, "."), strings.Contains(value, ".."):
		return appendToken(dst, value)
	}
	for token := range strings.SplitSeq(value, ".") {
		dst = append(appendToken(dst, token), '.')
	}
	return dst[:len(dst)-1]
}

// pattern matches all subjects of the template: each token that contains a name is a wildcard,
// and a type at the end is ">".
func (s *subject) pattern() string {
	tokens := strings.Split(s.text, ".")
	for i, token := range tokens {
		if strings.Contains(token, "{") {
			tokens[i] = "*"
		}
	}
	if s.typeLast {
		tokens[len(tokens)-1] = ">"
	}
	return strings.Join(tokens, ".")
}
