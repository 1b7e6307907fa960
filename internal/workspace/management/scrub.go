package management

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
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
// secret's name, at any depth and of any type. All else stays as it is. Names are compared
// without case and separators: "api_key", "apiKey" and "API-Key" are one. The masked
// "api_key_last_four" is no secret.
func redact(raw json.RawMessage) (json.RawMessage, error) {
	if !json.Valid(raw) { // this bounds the depth, too
		return nil, errors.New("redact the answer: it is not JSON")
	}
	r := redaction{raw: raw, dec: json.NewDecoder(bytes.NewReader(raw))}
	r.dec.UseNumber()
	if err := r.value(); err != nil {
		return nil, fmt.Errorf("redact the answer: %w", err)
	}
	return append(r.out, raw[r.copied:]...), nil
}

// redaction walks through a JSON text, and copies it without its secrets.
type redaction struct {
	raw    []byte
	dec    *json.Decoder
	out    []byte
	copied int // of raw
}

func (r *redaction) value() error {
	t, err := r.dec.Token()
	if _, opens := t.(json.Delim); err != nil || !opens {
		return err
	}
	for r.dec.More() {
		next := r.value
		if t == json.Delim('{') {
			name, err := r.dec.Token()
			if err != nil {
				return err
			}
			if text, _ := name.(string); isSecretName(text) { // a member's name is always a string
				next = r.secret
			}
		}
		if err := next(); err != nil {
			return err
		}
	}
	_, err = r.dec.Token()
	return err
}

// secret passes over a value, and writes its replacement.
func (r *redaction) secret() error {
	var dropped json.RawMessage
	if err := r.dec.Decode(&dropped); err != nil {
		return err
	}
	end := int(r.dec.InputOffset())
	r.out = append(r.out, r.raw[r.copied:end-len(dropped)]...)
	r.out = append(r.out, `"`+secret.Redacted+`"`...)
	r.copied = end
	return nil
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
