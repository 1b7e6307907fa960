package console

import (
	"fmt"
	"log/slog"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/routing"
	"github.com/auditrelay/auditrelay/relay"
)

// veil gives an event as viewers may see it.
type veil func(relay.Event) relay.Event

// newVeil makes a veil of what is to be redacted. An event that cannot be redacted for certain, and
// every event if nothing says what to redact, has neither body nor labels.
func newVeil(redact *config.Redact, log *slog.Logger) (veil, error) {
	bare := func(e relay.Event) relay.Event {
		e.Body, e.Labels = nil, nil
		return e
	}
	if redact == nil {
		return bare, nil
	}
	route, err := routing.New(nil, redact, routing.Options{Logger: log})
	if err != nil {
		return nil, fmt.Errorf("console.redact: %w", err)
	}
	return func(e relay.Event) relay.Event {
		if trial := route.Try(e); trial.Delivered && !trial.Withheld {
			return trial.Event
		}
		return bare(e)
	}, nil
}
