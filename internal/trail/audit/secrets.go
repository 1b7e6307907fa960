package audit

import (
	"encoding/json"
	"fmt"

	"github.com/auditrelay/auditrelay/config/secret"
)

// secretKeys are the names of secrets in the Workspace Management API (operation 14's
// write shape, and a created key). Exact names only: "password_strength_config" and the
// like are no secrets.
var secretKeys = map[string]bool{"api_key": true, "password": true, "secret": true}

// checkNoSecret is the last line of defence: whoever makes an entry redacts it. A trail
// cannot forget, so a secret on its way in is refused here.
func checkNoSecret(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("parse JSON: %w", err)
	}
	if key := findSecret(v); key != "" {
		return fmt.Errorf("%w: under the name %q", ErrSecret, key)
	}
	return nil
}

// findSecret returns the name of a secret, never its value.
func findSecret(v any) string {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			if s, ok := member.(string); ok && secretKeys[key] && s != "" && s != secret.Redacted {
				return key
			}
			if found := findSecret(member); found != "" {
				return found
			}
		}
	case []any:
		for _, member := range v {
			if found := findSecret(member); found != "" {
				return found
			}
		}
	}
	return ""
}
