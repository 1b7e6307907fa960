package management

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

// redact returns raw with a replacement for every secret: the value of each member with a
// secret's name, at any depth and of any type. All else stays, numbers with their digits; members
// come out sorted. Names are compared without case and separators: "api_key", "apiKey" and
// "API-Key" are one. The masked "api_key_last_four" is no secret.
func redact(raw json.RawMessage) (json.RawMessage, error) {
	var v any
	if err := json.Unmarshal(raw, new(json.RawMessage)); err != nil { // it is nothing but one value
		return nil, fmt.Errorf("redact the answer: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("redact the answer: %w", err)
	}
	return jsondiff.Encode(redacted(v)), nil
}

// redacted replaces the secrets in a decoded value.
func redacted(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = redacted(v[i])
		}
	case map[string]any:
		for name := range v {
			if isSecretName(name) {
				v[name] = secret.Redacted
			} else {
				v[name] = redacted(v[name])
			}
		}
	}
	return v
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
