package management

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
)

// redact returns raw with a replacement for every secret: the value of each member with a
// secret's name, at any depth and of any type. All else stays, with its order and its
// digits. Names are compared without case and separators: "api_key", "apiKey" and
// "API-Key" are one. The masked "api_key_last_four" is no secret.
func redact(raw json.RawMessage) (json.RawMessage, error) {
	if !json.Valid(raw) { // this bounds the depth, too
		return nil, errors.New("redact the answer: it is not JSON")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var out bytes.Buffer
	if err := redactValue(dec, &out); err != nil {
		return nil, fmt.Errorf("redact the answer: %w", err)
	}
	return out.Bytes(), nil
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

func redactValue(dec *json.Decoder, out *bytes.Buffer) error {
	t, err := dec.Token()
	if err != nil {
		return err
	}
	switch t {
	case json.Delim('{'):
		return redactObject(dec, out)
	case json.Delim('['):
		return redactArray(dec, out)
	}
	return writeJSON(out, t)
}

func redactObject(dec *json.Decoder, out *bytes.Buffer) error {
	out.WriteByte('{')
	for first := true; dec.More(); first = false {
		if !first {
			out.WriteByte(',')
		}
		if err := redactMember(dec, out); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	_, err := dec.Token()
	return err
}

func redactMember(dec *json.Decoder, out *bytes.Buffer) error {
	t, err := dec.Token()
	if err != nil {
		return err
	}
	name, _ := t.(string) // a member's name is always a string
	if err := writeJSON(out, name); err != nil {
		return err
	}
	out.WriteByte(':')
	if !isSecretName(name) {
		return redactValue(dec, out)
	}
	var dropped json.RawMessage
	if err := dec.Decode(&dropped); err != nil {
		return err
	}
	return writeJSON(out, secret.Redacted)
}

func redactArray(dec *json.Decoder, out *bytes.Buffer) error {
	out.WriteByte('[')
	for first := true; dec.More(); first = false {
		if !first {
			out.WriteByte(',')
		}
		if err := redactValue(dec, out); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	_, err := dec.Token()
	return err
}

// writeJSON writes a scalar as it stood: no HTML escapes, and no newline.
func writeJSON(out *bytes.Buffer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	out.Truncate(out.Len() - 1)
	return nil
}
