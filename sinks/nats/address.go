package nats

import "github.com/auditrelay/auditrelay/relay"

// Address returns the subject of e. It may be called during Deliver.
func (s *Sink) Address(e *relay.Event) (kind, name string) {
	return "subject", string(s.subject.appendFor(nil, e))
}
