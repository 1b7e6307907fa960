package verify

import (
	"encoding/json"
	"slices"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// policyOf is the policy for a generation: with a key named by a proven entry of an older
// one, if it signed a checkpoint of this one; else with the policy's own.
func (c *copied) policyOf(of *logCheck) (proof.Policy, error) {
	return c.o.follow(of.origin, c.endorsed, func(p *proof.Policy) bool {
		l := *of
		l.policy, l.trusted = *p, true
		return slices.ContainsFunc(c.notes[l.origin], func(n noted) bool {
			_, _, err := l.open([]byte(n.note))
			return err == nil
		})
	})
}

// endorse takes the keys named by the proven entries of a trusted generation.
func (c *copied) endorse(l *logCheck, proven int64) {
	if !l.trusted {
		return
	}
	for _, f := range c.facts {
		var e audit.Entry
		if f.kind == audit.TypeRotated && f.index >= l.base && f.index < l.base+proven && json.Unmarshal(f.record, &e) == nil {
			if key := audit.NextKey(&e); key != "" {
				c.endorsed = append(c.endorsed, key)
			}
		}
	}
}
