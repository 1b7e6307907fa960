package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Entry is one entry of the trail: a change, or a check.
type Entry struct {
	// Type names the event: "settings.baseline", "settings.changed",
	// "streaming.changed" and the like. It becomes the CloudEvents type.
	Type string `json:"type"`
	// Project and Environment are slugs; Environment is empty if a whole project is
	// concerned.
	Project     string `json:"project"`
	Environment string `json:"environment,omitempty"`
	// Subject is the resource: "rbac_policy", "event_log_streaming" and the like.
	Subject string `json:"subject"`
	// Time is when the entry was made, by the relay's clock.
	Time time.Time `json:"time"`
	// Window is the time of the change: after the last look before it, and no later
	// than the first look after it. Nil where it is not known.
	Window *Window `json:"window,omitempty"`
	// Before and After are the resource's JSON on either side, secrets
	// redacted; nil where there is none.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	// PreviousIndex is the newest entry of the resource before this one, so that its entries
	// can be read backwards: see [Backwards]. [Trail.AppendIf] sets it.
	PreviousIndex *int64 `json:"previous_index,omitempty"`
	// Detail has further facts for a reader, by Type.
	Detail json.RawMessage `json:"detail,omitempty"`
	// Salt is random, and set by Append. Whoever does not have it cannot guess at an entry by the
	// hash of its leaf: so it is taken from events of which a sink's redaction takes anything. The
	// entries of earlier versions have none.
	Salt string `json:"salt,omitempty"`

	// Index is the entry's place in the trail, from 0. It is set when an entry is read,
	// ignored by Append, and no part of the record.
	Index int64 `json:"-"`
	// Unsure is set by [Trail.Last]: a lost entry after this one may have been of the
	// same resource. It is no part of the record.
	Unsure bool `json:"-"`
}

// Window is a span of time, its start not included.
type Window struct {
	After time.Time `json:"after"`
	Until time.Time `json:"until"`
}

var (
	// ErrConflict is AppendIf's answer when the resource has a newer entry
	// than the caller knew of.
	ErrConflict = errors.New("the resource has a newer entry")
	// ErrTooLarge marks an entry too large for one record.
	ErrTooLarge = errors.New("the entry is too large for the trail")
	// ErrSecret marks an entry refused because of a secret in it.
	ErrSecret = errors.New("the entry holds a secret")
	// ErrUnavailable says the trail cannot be used at present. It is tried again.
	ErrUnavailable = errors.New("the audit trail cannot be used at present")
	// ErrMissing means no readable entry under an index: none was added yet, or it is lost.
	ErrMissing = errors.New("there is no such entry in the trail")
	// ErrDamaged marks a trail with entries unlike the signed ones.
	ErrDamaged = errors.New("the trail is damaged")
)

// maxNames bounds what an entry is about: each event of it has these names twice.
const maxNames = 8 << 10

// check refuses entries nobody could find again, and entries with a secret.
func (e *Entry) check() error {
	switch {
	case e.Type == "":
		return errors.New("entry has no type")
	case e.Project == "":
		return errors.New("entry has no project")
	case e.Subject == "":
		return errors.New("entry has no subject")
	case e.Time.IsZero():
		return errors.New("entry has no time")
	case len(e.Project)+len(e.Environment)+len(e.Subject) > maxNames:
		return fmt.Errorf("%w: the names of its project, environment and subject have more than %d bytes", ErrTooLarge, maxNames)
	}
	for name, part := range map[string]json.RawMessage{"before": e.Before, "after": e.After, "detail": e.Detail} {
		if err := checkNoSecret(part); err != nil {
			return fmt.Errorf("%s of %s: %w", name, e.Subject, err)
		}
	}
	return nil
}

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
