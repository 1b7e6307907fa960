package management

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// Change is an operation that changes something in a project or an environment. The others, whose
// requests or answers hold secrets or have a shape of their own, are methods of [Client].
type Change struct {
	operation    string // a verb phrase, in errors and metrics
	method, path string
	query        string // the name of the last parameter, if it is not in the path
	field        string // the resource in the answer; empty: there is none
}

// The changes, by the numbers of their operations. If the answer to a deletion is lost, the client
// repeats the call, and may get a 404.
var (
	// RenameProject gives a project another name (operation 2): its body is {"name": NAME}.
	RenameProject = Change{operation: "update project", method: http.MethodPatch, path: kinds.ProjectPath, field: "project"}
	// UpdateRedirectURL sets the valid types of a redirect URL (operation 3) by a
	// [RedirectURLUpdate]. The document does not show how a request names the URL. Public clients
	// send it as the query parameter url, and so does this one.
	UpdateRedirectURL = Change{
		operation: "update redirect url", method: http.MethodPut, path: kinds.EnvironmentPath + "/redirect_urls", query: "url", field: "redirect_url",
	}
	// UnsetDefaultEmailTemplate removes the default of a type (operation 7).
	UnsetDefaultEmailTemplate = Change{operation: "unset default email template", method: http.MethodDelete, path: kinds.DefaultEmailTemplates.Path}
	// DeleteSecret deletes a secret of an environment by its id (operation 11).
	DeleteSecret = Change{operation: "delete secret", method: http.MethodDelete, path: kinds.EnvironmentPath + "/secrets/:secret_id"}
	// DeletePublicToken deletes a public token of an environment (operation 12).
	DeletePublicToken = Change{operation: "delete public token", method: http.MethodDelete, path: kinds.EnvironmentPath + "/public_tokens/:public_token"}
)

// Change makes a change, with the parameters of its path and its query, and with a body as JSON
// unless that is nil.
func (c *Client) Change(ctx context.Context, change Change, body any, params ...string) (Answer, error) {
	k := call{operation: change.operation, method: change.method, path: change.path, params: params}
	if body != nil {
		var err error
		if k.body, err = json.Marshal(body); err != nil {
			return Answer{}, err
		}
	}
	if last := len(params) - 1; change.query != "" {
		k.params, k.query = params[:last], url.Values{change.query: params[last:]}
	}
	return c.fetch(ctx, k, change.field, false)
}

// CreateProject makes a project for customers of one kind, its vertical. The client never repeats
// this call: after an error other than an [APIError], the project may exist or not.
//
// The answer's shape is undocumented. Raw is its member "project" if there is one, else
// all of it, without secrets.
func (c *Client) CreateProject(ctx context.Context, name, vertical string) (Answer, error) {
	body, err := json.Marshal(map[string]string{"project_name": name, "vertical": vertical})
	if err != nil {
		return Answer{}, err
	}
	return c.whole(ctx, call{operation: "create project", method: http.MethodPost, path: "/v1/projects", body: body}, "project")
}

// Migrate posts to the service's second API, whose base address, project id and project secret a
// client of its own has in place of a management key: see internal/migration. It is not repeated.
// After an error other than an [APIError] or [ErrNotSent], it may have had its effect. Errors show
// none of the given secrets, and Raw has none of the members that are one by their names.
func (c *Client) Migrate(ctx context.Context, path string, body []byte, secrets ...secret.Text) (Answer, error) {
	known := slices.Concat(ownSecrets(c.options.KeyID, c.options.Secret), secrets)
	return c.whole(ctx, call{operation: "migrate", method: http.MethodPost, path: path, body: body, scrub: newScrubber(known...)}, "")
}

// whole makes the call. Raw is the field of the answer, if it has one of that name, or else all of
// it, without secrets.
func (c *Client) whole(ctx context.Context, k call, field string) (a Answer, err error) {
	k.scrub = cmp.Or(k.scrub, c.scrub)
	r, err := c.send(ctx, k)
	if err != nil {
		return a, err
	}
	members, receipt, err := r.members(k.scrub)
	raw, named := members[field]
	if a.Receipt = receipt; !named {
		raw = r.body
	}
	if err == nil && len(raw) > 0 {
		a.Raw, err = redact(raw)
		a.Raw = k.scrub.cleanRaw(a.Raw)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", k.operation, k.scrub.cleanError(err))
	}
	return a, err
}

// RedirectType is one use of a redirect URL, such as LOGIN.
type RedirectType struct {
	IsDefault bool   `json:"is_default"`
	Type      string `json:"type"`
}

// RedirectURLUpdate is the body of [UpdateRedirectURL]. By the document, ValidTypes is an array and
// never null.
type RedirectURLUpdate struct {
	ValidTypes           []RedirectType `json:"valid_types"`
	DoNotPromoteDefaults bool           `json:"do_not_promote_defaults"`
}

// Setting reads a setting of an environment, or of a project, where the environment does not
// count. one is a value of kinds.Setting.Each, for a kind that is read value by value.
//
// An answer of another form than the kind's comes with an error and with Raw. Where a setting does
// not exist, the error may be a 404 (see [Client.Confirm]); one value of several may be null, too.
func (c *Client) Setting(ctx context.Context, s kinds.Setting, project, environment, one string) (Answer, error) {
	params := []string{project}
	if !s.OfProject {
		params = append(params, environment)
	}
	if s.Each != nil {
		params = append(params, one)
	}
	a, err := c.fetch(ctx, call{operation: s.Operation, method: http.MethodGet, path: s.Path, params: params}, s.Field, s.Shape.Opens == '[')
	none := s.Each != nil && string(a.Raw) == "null"
	if err == nil && !none && !strings.HasPrefix(string(a.Raw), string(s.Shape.Opens)) {
		err = fmt.Errorf("%s: decode %s: it is %s", s.Operation, s.Field, kinds.Called(a.Raw[0]))
	}
	if of := textIn(a.Raw, s.Self); err == nil && of != "" && !strings.EqualFold(of, project) {
		return Answer{Receipt: a.Receipt}, fmt.Errorf("%s: the answer is of %q, and not of %q", s.Operation, of, project)
	}
	return a, err
}

// textIn is a member of a JSON object; "" where it is no text, or there is none.
func textIn(object json.RawMessage, name string) string {
	var members errorBody
	if name == "" || json.Unmarshal(object, &members) != nil {
		return ""
	}
	return members.text(name)
}

// Project reads a project. Its success proves that the project is there.
func (c *Client) Project(ctx context.Context, project string) (Answer, error) {
	return c.Setting(ctx, kinds.Project, project, "", "")
}

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
