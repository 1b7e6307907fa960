package main

import (
	"context"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/testbed/realservers"
)

func startWebhook(ctx context.Context, _ *session) (*place, error) {
	receiver, err := realservers.StartWebhook(ctx)
	if err != nil {
		return nil, err
	}
	return &place{
		targets: []target{{
			name: "webhook", sink: "webhook",
			section: fmt.Sprintf("webhook: {url: %q, secret: %s}", receiver.URL, receiver.Secret),
			read: func(_ context.Context, add func(id string)) error {
				addCounted(receiver.IDs(), add)
				return nil
			},
			faults: receiver.Faults,
		}},
		close: receiver.Close,
	}, nil
}
