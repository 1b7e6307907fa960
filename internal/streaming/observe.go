package streaming

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/management"
)

// observation is one look at an environment's config at the API.
type observation struct {
	shape  *Shape // nil: it streams nowhere
	status management.StreamingStatus
	raw    json.RawMessage // as received, canonical; nil: no config
	at     time.Time
}

// observe reads the config of the desired type, and where there is none the config of
// the other: an environment has one destination, and the replaced one belongs in the
// trail.
func (w *watcher) observe(ctx context.Context) (observation, error) {
	first, second := management.GrafanaLoki, management.Datadog
	if w.env.Stream.Datadog != nil {
		first, second = second, first
	}
	for _, t := range []management.DestinationType{first, second} {
		a, err := w.client.EventLogStreaming(ctx, w.env.Project, w.env.Environment, t)
		if management.IsNotFound(err) || errors.Is(err, management.ErrNoResource) {
			continue
		}
		if err != nil {
			return observation{}, err
		}
		shape := shapeOf(a.Value)
		if shape == nil {
			continue
		}
		raw, err := jsondiff.Canonical(a.Raw)
		if err != nil {
			return observation{}, fmt.Errorf("keep the streaming config: %w", err)
		}
		return observation{shape, a.Value.Status, raw, time.Now()}, nil
	}
	return observation{at: time.Now()}, nil
}

// shapeOf reads the destination out of a config, nil where it has none. A destination
// of an unknown type is one all the same.
func shapeOf(v management.EventLogStreaming) *Shape {
	d, l := v.DestinationConfig.Datadog, v.DestinationConfig.GrafanaLoki
	switch {
	case d != nil && (v.DestinationType == management.Datadog || l == nil):
		return &Shape{Type: management.Datadog, Site: d.Site, LastFour: d.APIKeyLastFour}
	case l != nil:
		return &Shape{
			Type: management.GrafanaLoki, Hostname: l.Hostname, Username: l.Username, LastFour: l.PasswordLastFour,
		}
	case v.DestinationType != "" && v.DestinationType != management.Datadog && v.DestinationType != management.GrafanaLoki:
		return &Shape{Type: v.DestinationType}
	}
	return nil
}
