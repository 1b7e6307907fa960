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
type scrubber struct {
	text  *strings.Replacer
	raw   *strings.Replacer
	inRaw [][]byte // replaced by raw
}

// rawMinimum is the least length of a secret to search for in raw JSON. A shorter one may
// well be an ordinary word there.
const rawMinimum = 8

func newScrubber(secrets ...secret.Text) *scrubber {
	var text, raw []string
	var inRaw [][]byte
	for _, form := range forms(secrets) {
		text = append(text, form, secret.Redacted)
		if len(form) >= rawMinimum {
			raw = append(raw, form, secret.Redacted)
			inRaw = append(inRaw, []byte(form))
		}
	}
	return &scrubber{text: strings.NewReplacer(text...), raw: strings.NewReplacer(raw...), inRaw: inRaw}
}

// forms lists the possible echoes of each secret. The longest comes first, so replacing
// one leaves no rest of another.
func forms(secrets []secret.Text) []string {
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

func (s *scrubber) clean(text string) string { return s.text.Replace(text) }

func (s *scrubber) cleanRaw(raw json.RawMessage) json.RawMessage {
	if !slices.ContainsFunc(s.inRaw, func(form []byte) bool { return bytes.Contains(raw, form) }) {
		return raw // nearly always, and far quicker to tell
	}
	return json.RawMessage(s.raw.Replace(string(raw)))
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
