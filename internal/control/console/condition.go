package console

import (
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// laggingAfter is the age of a sink's oldest undelivered event from which on the sink lags.
const laggingAfter = 5 * time.Minute

// Condition is how the deliveries to a sink are, as a verb.
type Condition string

// The conditions.
const (
	Delivers  Condition = "delivers"
	Lags      Condition = "lags" // it delivers, but its oldest event has waited for long
	Fails     Condition = "fails"
	LeftOver  Condition = "left over" // it is not configured
	Abandoned Condition = "abandoned" // likewise, and events are kept for it
	Unplaced  Condition = "unknown"   // its position is not known
)

// Condition judges the deliveries.
func (s *Sink) Condition() Condition {
	lag := time.Duration(s.LagSeconds * float64(time.Second))
	switch {
	case s.Position != nil && s.Position.Unknown != "":
		return Unplaced
	case !s.Configured && s.Position != nil && s.Position.Pending > 0:
		return Abandoned
	case !s.Configured:
		return LeftOver
	case s.Delivery != nil && !s.FailingSince.IsZero():
		return Fails
	case lag >= laggingAfter:
		return Lags
	}
	return Delivers
}

// Trouble is a clause about a sink in trouble, else empty.
func (s *Sink) Trouble() string {
	switch c := s.Condition(); {
	case c == Unplaced:
		return "has no known position"
	case c == Abandoned:
		return "is not configured, and holds events"
	case c == Lags, c == Fails:
		return string(c)
	case s.DeadLetters == 1:
		return "has 1 dead letter"
	case s.DeadLetters > 0:
		return fmt.Sprintf("has %d dead letters", s.DeadLetters)
	}
	return ""
}

// Remedies are what to do about a sink in trouble, a command or a sentence each.
func (s *Sink) Remedies() (all []string) {
	switch s.Condition() {
	case Fails:
		all = append(all, s.failingRemedy())
	case Abandoned:
		all = append(all, "auditrelay sinks retire "+s.Name+", unless another configuration brings it back")
	case Lags:
		all = append(all, "see that the destination takes as much as arrives, or raise the sink's parallel and batch_events")
	}
	if s.DeadLetters > 0 && s.Configured {
		all = append(all, "auditrelay deadletters list --sink "+s.Name)
	}
	return all
}

// failingRemedy is what mends a failing sink, by the class of its last error. The relay
// tries again by itself, and loses nothing meanwhile.
func (s *Sink) failingRemedy() string {
	try := "auditrelay sinks check " + s.Name + " tries it"
	switch s.LastErrorClass {
	case relay.ClassAuthentication:
		return "correct the credential of sinks." + s.Name + " in the configuration, or its rights at the destination; " + try
	case relay.ClassConnection, relay.ClassTimeout:
		return "see that the destination runs and can be reached from here (name, network, TLS); " + try
	case relay.ClassThrottled:
		return "raise the destination's limit, or lower the sink's batch_events; it goes on by itself"
	case relay.ClassRefused:
		return "mend what the destination complains of, there or in the configuration; " + try
	}
	return "mend what its last error names; " + try
}
