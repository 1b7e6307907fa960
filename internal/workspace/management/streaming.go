package management

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// DestinationType is the kind of an event log's destination.
type DestinationType string

// The documented destination types.
const (
	Datadog     DestinationType = "DATADOG"
	GrafanaLoki DestinationType = "GRAFANA_LOKI"
)

// StreamingStatus is the API's word on a stream. Only ACTIVE is documented; others pass
// through.
type StreamingStatus string

// The known statuses.
const (
	StatusActive   StreamingStatus = "ACTIVE"
	StatusDisabled StreamingStatus = "DISABLED"
	StatusPending  StreamingStatus = "PENDING"
)

// EventLogStreaming is the event log streaming config of an environment.
type EventLogStreaming struct {
	DestinationType   DestinationType   `json:"destination_type"`
	DestinationConfig DestinationConfig `json:"destination_config"`
	Status            StreamingStatus   `json:"streaming_status"`
}

// DestinationConfig has the member of its destination type. A read gives only the last
// four characters of secrets; the answer of a write gives only the secrets.
type DestinationConfig struct {
	Datadog     *DatadogDestination     `json:"datadog,omitempty"`
	GrafanaLoki *GrafanaLokiDestination `json:"grafana_loki,omitempty"`
}

// DatadogDestination is Datadog's log intake.
type DatadogDestination struct {
	APIKey         secret.Text `json:"api_key,omitzero"`
	APIKeyLastFour string      `json:"api_key_last_four,omitempty"`
	Site           string      `json:"site"` // US is documented; US3, US5, EU and AP1 occur
}

// GrafanaLokiDestination is any receiver of Loki's push.
type GrafanaLokiDestination struct {
	Hostname         string      `json:"hostname"` // no scheme, no path
	Username         string      `json:"username"`
	Password         secret.Text `json:"password,omitzero"`
	PasswordLastFour string      `json:"password_last_four,omitempty"`
}

// Shape is a destination as the API shows it on read (operation 13). Of its
// secret it has the last four characters, or nothing where they are not known.
type Shape struct {
	Type     DestinationType `json:"destination_type"`
	Hostname string          `json:"hostname,omitempty"` // GRAFANA_LOKI
	Username string          `json:"username,omitempty"` // GRAFANA_LOKI
	Site     string          `json:"site,omitempty"`     // DATADOG
	LastFour string          `json:"last_four,omitempty"`
}

// Shape reads the destination from a config, of a read or for a write; nil if it has none. A
// destination of an unknown type counts as one.
func (v EventLogStreaming) Shape() *Shape {
	d, l := v.DestinationConfig.Datadog, v.DestinationConfig.GrafanaLoki
	switch {
	case d != nil && (v.DestinationType == Datadog || l == nil):
		return &Shape{Type: Datadog, Site: d.Site, LastFour: cmp.Or(d.APIKeyLastFour, d.APIKey.LastFour())}
	case l != nil:
		return &Shape{Type: GrafanaLoki, Hostname: l.Hostname, Username: l.Username, LastFour: cmp.Or(l.PasswordLastFour, l.Password.LastFour())}
	case v.DestinationType != "" && v.DestinationType != Datadog && v.DestinationType != GrafanaLoki:
		return &Shape{Type: v.DestinationType}
	}
	return nil
}

// StreamingAnswer is an answer with a streaming config.
type StreamingAnswer struct {
	Answer
	Value EventLogStreaming
}

const streamingPath = kinds.EnvironmentPath + "/event_log_streaming/:destination_type"

// EventLogStreaming reads the config for a destination type (operation 13). For a type
// without a config it may give a 404, [ErrNoResource], or a config without a destination;
// [Client.Confirm] judges the first two.
func (c *Client) EventLogStreaming(ctx context.Context, project, environment string, t DestinationType) (StreamingAnswer, error) {
	return c.fetchStreaming(ctx, call{
		operation: "read event log streaming", method: http.MethodGet,
		path: streamingPath, params: []string{project, environment, string(t)},
	})
}

// SetEventLogStreaming sets the config for a destination type (operation 14). d must have
// exactly the member of this type, with its secret. The API answers with the secrets in
// full; Raw has them redacted.
func (c *Client) SetEventLogStreaming(ctx context.Context, project, environment string, t DestinationType, d DestinationConfig) (StreamingAnswer, error) {
	body, secrets, err := writeShape(t, d)
	if err != nil {
		return StreamingAnswer{}, fmt.Errorf("set event log streaming: %w", err)
	}
	known := slices.Concat(ownSecrets(c.options.KeyID, c.options.Secret), secrets)
	return c.fetchStreaming(ctx, call{
		operation: "set event log streaming", method: http.MethodPut,
		path: streamingPath, params: []string{project, environment, string(t)},
		body: body, scrub: newScrubber(known...),
	})
}

// fetchStreaming redacts reads too: if a server forgets to mask a secret, it still must
// not reach the trail.
func (c *Client) fetchStreaming(ctx context.Context, k call) (a StreamingAnswer, err error) {
	const field = "event_log_streaming_config"
	k.scrub = cmp.Or(k.scrub, c.scrub)
	if a.Answer, err = c.fetch(ctx, k, field, false); err != nil {
		return a, err
	}
	// The value is decoded from the answer without the secrets of this call.
	if err = json.Unmarshal(a.Raw, &a.Value); err != nil {
		err = fmt.Errorf("%s: decode %s: %w", k.operation, field, k.scrub.cleanError(err))
	}
	var redactErr error
	a.Raw, redactErr = redact(a.Raw)
	return a, errors.Join(err, redactErr)
}

// writeShape is the only place to reveal a destination's secrets: in the request's body.
// (Plain marshalling would send them redacted.)
func writeShape(t DestinationType, d DestinationConfig) ([]byte, []secret.Text, error) {
	var key string
	var fields map[string]string
	var given secret.Text
	switch {
	case t == Datadog && d.Datadog != nil && d.GrafanaLoki == nil:
		key, given = "datadog", d.Datadog.APIKey
		fields = map[string]string{"api_key": given.Reveal(), "site": d.Datadog.Site}
	case t == GrafanaLoki && d.GrafanaLoki != nil && d.Datadog == nil:
		key, given = "grafana_loki", d.GrafanaLoki.Password
		fields = map[string]string{
			"hostname": d.GrafanaLoki.Hostname, "username": d.GrafanaLoki.Username, "password": given.Reveal(),
		}
	default:
		return nil, nil, fmt.Errorf("the destination config does not match destination type %q", t)
	}
	body, err := json.Marshal(map[string]any{"destination_config": map[string]any{key: fields}})
	return body, []secret.Text{given}, err
}
