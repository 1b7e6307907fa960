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
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/plaintext"
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
	return c.fetch(ctx, k, change.field, object)
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
	return c.fetch(ctx, call{operation: "create project", method: http.MethodPost, path: "/v1/projects", body: body}, "project", whole)
}

// Migrate posts to the service's second API, whose base address, project id and project secret a
// client of its own has in place of a management key: see internal/migration. It is not repeated.
// After an error other than an [APIError] or [ErrNotSent], it may have had its effect. Errors show
// none of the given secrets, and Raw has none of the members that are one by their names.
func (c *Client) Migrate(ctx context.Context, path string, body []byte, secrets ...secret.Text) (Answer, error) {
	known := slices.Concat(ownSecrets(c.options.KeyID, c.options.Secret), secrets)
	return c.fetch(ctx, call{operation: "migrate", method: http.MethodPost, path: path, body: body, scrub: newScrubber(known...)}, "", whole)
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
	as := object
	if s.Shape.Opens == '[' {
		as = list
	}
	a, err := c.fetch(ctx, call{operation: s.Operation, method: http.MethodGet, path: s.Path, params: params}, s.Field, as)
	none := s.Each != nil && string(a.Raw) == "null"
	if err == nil && !none && !strings.HasPrefix(string(a.Raw), string(s.Shape.Opens)) {
		err = fmt.Errorf("%s: decode %s: it is %s", s.Operation, s.Field, kinds.Called(a.Raw[0]))
	}
	if of := textIn(a.Raw, s.Self); err == nil && of != "" && !strings.EqualFold(of, project) {
		return Answer{Receipt: a.Receipt}, fmt.Errorf("%s: the answer is of %q, and not of %q", s.Operation, plaintext.Line(of, maxErrorText), project)
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

// streamingConfig is the event log streaming config of an environment, with the member of its
// destination type. A read gives only the last four characters of secrets; the answer of a write
// gives only the secrets.
type streamingConfig struct {
	DestinationType   DestinationType `json:"destination_type"`
	DestinationConfig struct {
		Datadog *struct {
			APIKey         secret.Text `json:"api_key"`
			APIKeyLastFour string      `json:"api_key_last_four"`
			Site           string      `json:"site"` // US is documented; US3, US5, EU and AP1 occur
		} `json:"datadog"`
		GrafanaLoki *struct {
			Hostname         string      `json:"hostname"` // no scheme, no path
			Username         string      `json:"username"`
			Password         secret.Text `json:"password"`
			PasswordLastFour string      `json:"password_last_four"`
		} `json:"grafana_loki"`
	} `json:"destination_config"`
	Status StreamingStatus `json:"streaming_status"`
}

// Shape is a destination: Datadog's log intake, or any receiver of Loki's push. Of its secret it
// has the last four characters, as the API shows them on read (operation 13), or nothing where they
// are not known.
type Shape struct {
	Type     DestinationType `json:"destination_type"`
	Hostname string          `json:"hostname,omitempty"` // GRAFANA_LOKI
	Username string          `json:"username,omitempty"` // GRAFANA_LOKI
	Site     string          `json:"site,omitempty"`     // DATADOG
	LastFour string          `json:"last_four,omitempty"`
}

// Streaming is where an event log goes, as the API shows it.
type Streaming struct {
	*Shape // nil: nowhere
	Status StreamingStatus
}

// StreamingOf reads a config, as an answer or the audit trail has it. A destination of an unknown
// type counts as one.
func StreamingOf(raw json.RawMessage) (Streaming, error) {
	var v streamingConfig
	err := json.Unmarshal(raw, &v)
	s, d, l := Streaming{Status: v.Status}, v.DestinationConfig.Datadog, v.DestinationConfig.GrafanaLoki
	switch {
	case d != nil && (v.DestinationType == Datadog || l == nil):
		s.Shape = &Shape{Type: Datadog, Site: d.Site, LastFour: cmp.Or(d.APIKeyLastFour, d.APIKey.LastFour())}
	case l != nil:
		s.Shape = &Shape{Type: GrafanaLoki, Hostname: l.Hostname, Username: l.Username, LastFour: cmp.Or(l.PasswordLastFour, l.Password.LastFour())}
	case v.DestinationType != "" && v.DestinationType != Datadog && v.DestinationType != GrafanaLoki:
		s.Shape = &Shape{Type: v.DestinationType}
	}
	return s, err
}

// StreamingAnswer is an answer with a streaming config.
type StreamingAnswer struct {
	Answer
	Streaming
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

// SetEventLogStreaming sets the destination, with its secret, for its type (operation 14). The API
// answers with the secret in full; Raw has it redacted.
func (c *Client) SetEventLogStreaming(ctx context.Context, project, environment string, to Shape, key secret.Text) (StreamingAnswer, error) {
	body, err := writeShape(to, key)
	if err != nil {
		return StreamingAnswer{}, fmt.Errorf("set event log streaming: %w", err)
	}
	known := append(ownSecrets(c.options.KeyID, c.options.Secret), key)
	return c.fetchStreaming(ctx, call{
		operation: "set event log streaming", method: http.MethodPut,
		path: streamingPath, params: []string{project, environment, string(to.Type)},
		body: body, scrub: newScrubber(known...),
	})
}

// fetchStreaming redacts reads too: if a server forgets to mask a secret, it still must
// not reach the trail.
func (c *Client) fetchStreaming(ctx context.Context, k call) (a StreamingAnswer, err error) {
	const field = "event_log_streaming_config"
	k.scrub = cmp.Or(k.scrub, c.scrub)
	if a.Answer, err = c.fetch(ctx, k, field, object); err != nil {
		return a, err
	}
	// The config is decoded from the answer without the secrets of this call. One with a name twice
	// is not believed: of its readers, some take the first, some the last, and some join the two.
	state, err := jsontext.Read(a.Raw)
	if err == nil {
		a.Streaming, err = StreamingOf(state.JSON)
	}
	if err != nil {
		err = fmt.Errorf("%s: decode %s: %w", k.operation, field, k.scrub.cleanError(err))
	}
	var redactErr error
	a.Raw, redactErr = redact(a.Raw)
	return a, errors.Join(err, redactErr)
}

// writeShape is the only place to reveal a destination's secret: in the request's body.
// (Plain marshalling would send it redacted.)
func writeShape(to Shape, key secret.Text) ([]byte, error) {
	config := map[string]any{}
	switch to.Type {
	case Datadog:
		config["datadog"] = map[string]string{"api_key": key.Reveal(), "site": to.Site}
	case GrafanaLoki:
		config["grafana_loki"] = map[string]string{"hostname": to.Hostname, "username": to.Username, "password": key.Reveal()}
	default:
		return nil, fmt.Errorf("the destination type %q is neither %s nor %s", to.Type, Datadog, GrafanaLoki)
	}
	return json.Marshal(map[string]any{"destination_config": config})
}
