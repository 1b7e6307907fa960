package management

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
)

// A scrubber removes known secrets from the API's answers: a message may echo one of
// ours, as it came or encoded.
type scrubber struct{ forms []string }

// rawMinimum is the least length of a secret to search for in raw JSON. A shorter one may
// well be an ordinary word there.
const rawMinimum = 8

func newScrubber(secrets ...secret.Text) *scrubber { return &scrubber{formsOf(secrets)} }

// formsOf lists the possible echoes of each secret. The longest comes first, so replacing
// one leaves no rest of another.
func formsOf(secrets []secret.Text) []string {
	var all []string
	for _, s := range secrets {
		v := s.Reveal()
		if v == "" {
			continue
		}
		quoted, _ := json.Marshal(v) // a string always marshals
		all = append(all, v, url.QueryEscape(v), url.PathEscape(v), string(quoted[1:len(quoted)-1]),
			base64.StdEncoding.EncodeToString([]byte(v)))
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(all)
}

// ownSecrets are the client's own: the secret, and the value of the Authorization header.
func ownSecrets(keyID string, s secret.Text) []secret.Text {
	return []secret.Text{s, secret.New(base64.StdEncoding.EncodeToString([]byte(keyID + ":" + s.Reveal())))}
}

func (s *scrubber) clean(text string) string {
	for _, form := range s.forms {
		text = strings.ReplaceAll(text, form, secret.Redacted)
	}
	return text
}

func (s *scrubber) cleanRaw(raw json.RawMessage) json.RawMessage {
	for _, form := range s.forms {
		if len(form) >= rawMinimum && bytes.Contains(raw, []byte(form)) {
			raw = bytes.ReplaceAll(raw, []byte(form), []byte(secret.Redacted))
		}
	}
	return raw
}

// cleanError returns err. If its text shows a secret, it returns a cleaned error without
// the chain.
func (s *scrubber) cleanError(err error) error {
	text := err.Error()
	if cleaned := s.clean(text); cleaned != text {
		return errors.New(cleaned)
	}
	return err
}
