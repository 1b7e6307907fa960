package management

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// A scrubber removes known secrets from the API's answers: a message may echo one of
// ours, as it came or encoded.
type scrubber struct {
	text *strings.Replacer
	raw  *strings.Replacer // for JSON as it came
}

// rawMinimum is the least length of a secret to search for in raw JSON. A shorter one may
// well be an ordinary word there.
const rawMinimum = 8

func newScrubber(secrets ...secret.Text) *scrubber {
	forms := formsOf(secrets)
	return &scrubber{text: secret.Hide(1, forms...), raw: secret.Hide(rawMinimum, forms...)}
}

// formsOf lists the possible echoes of each secret.
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
	return all
}

// ownSecrets are the client's own: the secret, and the value of the Authorization header.
func ownSecrets(keyID string, s secret.Text) []secret.Text {
	return []secret.Text{s, secret.New(base64.StdEncoding.EncodeToString([]byte(keyID + ":" + s.Reveal())))}
}

func (s *scrubber) clean(text string) string { return s.text.Replace(text) }

func (s *scrubber) cleanRaw(raw json.RawMessage) json.RawMessage {
	text := string(raw)
	if cleaned := s.raw.Replace(text); cleaned != text {
		return json.RawMessage(cleaned)
	}
	return raw
}

// cleanError returns err. If its text shows a secret, it returns a cleaned error without
// the chain.
func (s *scrubber) cleanError(err error) error { return secret.HideInError(s.text, err) }

// redact returns raw with a replacement for every secret: the value of each member with a
// secret's name, at any depth and of any type. All other values stay as they are. Names are
// compared without case and separators: "api_key", "apiKey" and "API-Key" are one. The masked
// "api_key_last_four" is no secret.
func redact(raw json.RawMessage) (json.RawMessage, error) {
	if !json.Valid(raw) { // this bounds the depth, too
		return nil, errors.New("redact the answer: it is not JSON")
	}
	state, err := jsontext.ReadCanonical(raw) // any form will do
	if err != nil {
		return nil, fmt.Errorf("redact the answer: %w", err)
	}
	hideSecrets(state.Value)
	return jsontext.Encode(state.Value), nil
}

// hideSecrets replaces the secrets in a decoded value.
func hideSecrets(v any) {
	switch x := v.(type) {
	case map[string]any:
		for name, member := range x {
			if isSecretName(name) {
				x[name] = secret.Redacted
			} else {
				hideSecrets(member)
			}
		}
	case []any:
		for _, element := range x {
			hideSecrets(element)
		}
	}
}

func isSecretName(name string) bool {
	name = strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
	for _, end := range []string{"apikey", "password", "secret", "token"} {
		if strings.HasSuffix(name, end) {
			return name != "publictoken"
		}
	}
	return false
}
