package nats

import (
	"fmt"
	"strings"

	"github.com/auditrelay/auditrelay/sinks/template"
)

const hex = "0123456789ABCDEF"

// needsEscape reports whether a header's value has characters that the
// binding wants percent-encoded.
func needsEscape(value string) bool {
	for i := range len(value) {
		if escapedInHeader(value[i]) {
			return true
		}
	}
	return false
}

// escapedInHeader is the NATS protocol binding's choice: space, double quote,
// percent, and all that is not printable ASCII.
func escapedInHeader(c byte) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '%' }

func appendHeaderEscaped(dst []byte, value string) []byte {
	for i := range len(value) {
		if c := value[i]; escapedInHeader(c) {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

// appendToken appends value as one token of a subject. Percent-encoded are
// what separates tokens or matches any ("." "*" ">"), "$", which begins the
// server's own subjects, "%", space, and all that is not printable ASCII. "_"
// is "%5F", as it stands for the empty value. So different values are different
// tokens, and percent-decoding gives them back.
func appendToken(dst []byte, value string) []byte {
	if value == template.Empty {
		return append(dst, "%5F"...)
	}
	for i := range len(value) {
		switch c := value[i]; {
		case c <= ' ' || c >= 0x7f, c == '.', c == '*', c == '>', c == '$', c == '%':
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// defaultSubject is the template where none is given.
const defaultSubject = "auditrelay.{project}.{environment}.{type}"

// parseSubject returns the template, and the subject that matches all it makes:
// each token with a name in it replaced by a wildcard.
func parseSubject(text string) (t *template.Template, all string, err error) {
	if text == "" {
		text = defaultSubject
	}
	t, err = template.Parse(text)
	if err != nil {
		return nil, "", fmt.Errorf("subject: %w", err)
	}
	tokens := strings.Split(text, ".")
	for i, token := range tokens {
		if token == "" || strings.ContainsAny(token, " \t\r\n*>") {
			return nil, "", fmt.Errorf("subject %q: token %d is empty, or holds a space, * or >", text, i+1)
		}
		if strings.Contains(token, "{") {
			tokens[i] = "*"
		}
	}
	return t, strings.Join(tokens, "."), nil
}

func parseMode(mode string) (core bool, err error) {
	switch mode {
	case "", "jetstream":
		return false, nil
	case "core":
		return true, nil
	}
	return false, fmt.Errorf("mode %q: it is jetstream or core", mode)
}
