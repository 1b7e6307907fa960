package verify

import (
	"encoding/json"
	"slices"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// policyOf is the policy for a generation: with a key named by a proven entry of an older
// one, if it signed a checkpoint of this one; else with the policy's own.
func (c *copied) policyOf(l *logCheck) (proof.Policy, error) {
	policy, err := PolicyFor(*c.o.Policy, l.origin)
	if err != nil {
		return policy, err
	}
	for _, key := range slices.Backward(c.endorsed) {
		renamed, err := proof.Renamed(key, l.origin)
		if err != nil {
			continue
		}
		named, err := policy.WithLogs(proof.Log{Key: renamed})
		if err == nil && c.isSigned(l, named) {
			c.o.Policy = &named // from now on the old key may sign nothing
			return named, nil
		}
	}
	return policy, nil
}

// isSigned reports whether a checkpoint of a log is good under a policy.
func (c *copied) isSigned(of *logCheck, under proof.Policy) bool {
	l := *of
	l.policy, l.trusted = under, true
	for _, n := range c.notes[l.origin] {
		if _, _, err := l.open([]byte(n.note)); err == nil {
			return true
		}
	}
	return false
}

// endorse takes the keys named by the proven entries of a trusted generation.
func (c *copied) endorse(l *logCheck, proven int64) {
	if !l.trusted {
		return
	}
	for _, f := range c.facts {
		if f.kind != audit.TypeRotated || f.index < l.base || f.index >= l.base+proven {
			continue
		}
		if key := keyNamedBy(f); key != "" {
			c.endorsed = append(c.endorsed, key)
		}
	}
}

// keyNamedBy is the new key of a rotation, "" for none.
func keyNamedBy(f fact) string {
	var e audit.Entry
	var named struct {
		Key string `json:"key"`
	}
	if json.Unmarshal(f.record, &e) != nil || json.Unmarshal(e.Detail, &named) != nil {
		return ""
	}
	return named.Key
}
