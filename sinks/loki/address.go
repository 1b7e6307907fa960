package loki

import "github.com/auditrelay/auditrelay/relay"

// Address returns the tenant of e, if one is configured. It may be called during Deliver.
func (s *Sink) Address(e *relay.Event) (kind, name string) {
	if s.tenant == nil {
		return "", ""
	}
	return "tenant", string(s.tenant.AppendName(nil, e, nil))
}
