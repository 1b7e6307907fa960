package app

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/reference"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

type object = map[string]any

// aboutSections are the sections of /status.
var aboutSections = map[string]string{
	"relay": "The process and its configuration.", "ready": "As /readyz.", "environments": "Whether each event log really flows.",
	"sinks": "What each sink still lacks.", "cluster": "The relays that share the journal, and who does which job.", "journal": "The disk budget.",
	"streaming": "The streaming config of each environment.", "settings": "The last look at each setting.", "policies": "Which policies the settings violate.",
	"workspace": "Whether the management API can be used.", "changes": "The newest changes, as in `auditrelay trail list --output json`.",
	"trail": "The audit trail.", "not_configured": "Environments that are no longer configured, and still stream here.", "witnesses": "Who cosigns the trail.", "spans": "The digests of the event stream.",
}

// TestOpenAPIReferenceIs makes the description of the HTTP endpoints from the types that a running
// relay answers with, compares it with the file, and holds real answers against it.
func TestOpenAPIReferenceIs(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	on := map[string]*running{}
	g := schemas{root: reference.Root(t), made: object{}, comments: map[string]map[string]string{}}
	sections := object{}
	for name, journal := range map[string]config.Journal{"disk": {}, "cluster": {URL: srv.ClientURL(), Replicas: 1, MaxBytes: 64 << 20}} {
		cfg := withEveryPart(t, srv.ClientURL(), journal)
		cfg.Environments[0].Credentials = []config.Credential{{APIKey: secret.New(apiKey)}}
		r, process := startProcess(t, cfg)
		on[name] = r
		waiting.Until(t, func() bool { return len(process.admin.Status(t.Context())) >= len(aboutSections)-2 })
		for section, value := range process.admin.Status(t.Context()) {
			if _, failed := value.(map[string]string); !failed {
				sections[section] = object{"description": aboutSections[section], "anyOf": []any{g.of(reflect.TypeOf(value)), object{"$ref": "#/components/schemas/Unreadable"}}}
			}
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(aboutSections)), slices.Sorted(maps.Keys(sections)))
	g.made["Status"] = object{"type": "object", "properties": sections}
	g.made["Unreadable"] = object{"type": "object", "required": []string{"error"}, "properties": object{"error": object{"type": "string"}}, "additionalProperties": false}
	g.of(reflect.TypeFor[admin.Readiness]())
	description := describeAPI(g.made)
	var made bytes.Buffer
	encoder := json.NewEncoder(&made)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	require.NoError(t, encoder.Encode(description))
	if reference.File(t, "internal/control/admin/openapi.json", made.String()) {
		return // the program has the one before
	}
	for _, r := range on {
		answersFit(t, r, admin.OpenAPI())
	}
}

// startProcess runs a relay of which the test sees the inside.
func startProcess(t *testing.T, cfg *config.Config) (*running, *process) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan Addresses, 1), make(chan error, 1)
	o := Options{Logger: slog.New(slog.DiscardHandler), Started: func(a Addresses) { started <- a }}
	process := newProcess(cfg, o)
	go func() { ended <- process.serveUntil(ctx, o) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	return &running{t: t, Addresses: <-started, data: cfg.DataDir}, process
}

// answersFit holds real answers against the description, with no member that it lacks.
func answersFit(t *testing.T, r *running, description []byte) {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(description))
	require.NoError(t, err)
	paths := document.(object)["paths"].(object)
	for _, schema := range document.(object)["components"].(object)["schemas"].(object) {
		if s := schema.(object); s["properties"] != nil {
			s["additionalProperties"] = false
		}
	}
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("openapi.json", document))
	push := func(path, contentType, body string, credential bool) *http.Request {
		req, err := http.NewRequest(http.MethodPost, "http://"+r.Ingest+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", contentType)
		if credential {
			req.Header.Set("DD-API-KEY", apiKey)
		}
		return req
	}
	get := func(path string, token bool) *http.Request {
		req, err := http.NewRequest(http.MethodGet, "http://"+r.Admin+path, nil)
		require.NoError(t, err)
		if token {
			rig.ShowToken(req, r.data)
		}
		return req
	}
	elsewhere := get("/status", true)
	elsewhere.Host = "elsewhere.example.com"
	events := `[{"message":"{\"event_id\":\"a\"}"}]`
	for _, c := range []struct {
		path string
		req  *http.Request
		want int
	}{
		{"/healthz", get("/healthz", false), 200},
		{"/readyz", get("/readyz", false), 200},
		{"/readyz", get("/readyz?format=json", true), 200},
		{"/status", get("/status", true), 200},
		{"/status", get("/status", false), 401},
		{"/status", elsewhere, 403},
		{"/metrics", get("/metrics", false), 200},
		{"/openapi.json", get("/openapi.json", false), 200},
		{"/tlog/{path}", get("/tlog/0/checkpoint", false), 401},
		{"/tlog/{path}", get("/tlog/nothing", true), 404},
		{"/loki/api/v1/push", push("/loki/api/v1/push", "application/json", `{"streams":[]}`, false), 401},
		{"/loki/api/v1/push", push("/loki/api/v1/push", "application/json", `{"streams":[{"stream":{"a":"b"},"values":[["1","x"]]}]}`, true), 204},
		{"/loki/api/v1/push", push("/loki/api/v1/push", "application/json", `{`, true), 400},
		{"/loki/api/v1/push", push("/loki/api/v1/push", "application/json", `{"streams":[]}`, true), 422},
		{"/loki/api/v1/push", push("/loki/api/v1/push", "text/plain", "x", true), 415},
		{"/api/v2/logs", push("/api/v2/logs", "application/json", events, true), 202},
		{"/api/v2/logs", push("/api/v2/logs", "application/json", `{`, true), 400},
		{"/v1/input", push("/v1/input", "application/json", events, true), 202},
		{"/v1/input/{api_key}", push("/v1/input/"+apiKey, "application/json", events, false), 202},
		{"/v1/input/{api_key}", push("/v1/input/wrong", "application/json", events, false), 403},
	} {
		resp, err := http.DefaultClient.Do(c.req)
		require.NoError(t, err)
		var body bytes.Buffer
		_, err = body.ReadFrom(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, c.want, resp.StatusCode, "%s: %s", c.req.URL, body.String())
		operation := paths[c.path].(object)[strings.ToLower(c.req.Method)].(object)
		response, _ := operation["responses"].(object)[strconv.Itoa(c.want)].(object)
		require.NotNil(t, response, "%s has no response %d", c.path, c.want)
		contents, _ := response["content"].(object)
		if body.Len() == 0 {
			assert.Empty(t, contents, "%s %d", c.path, c.want)
			continue
		}
		kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
		content, _ := contents[kind].(object)
		require.NotNil(t, content, "%s %d has no %s", c.path, c.want, kind)
		if c.path == "/openapi.json" {
			assert.Equal(t, string(description), body.String(), "what a relay publishes is what its answers are held against")
		}
		if kind != "application/json" {
			continue
		}
		at := fmt.Sprintf("openapi.json#/paths/%s/%s/responses/%d/content/application~1json/schema", escaped(c.path), strings.ToLower(c.req.Method), c.want)
		compiled, err := compiler.Compile(at)
		require.NoError(t, err)
		answer, err := jsonschema.UnmarshalJSON(&body)
		require.NoError(t, err)
		assert.NoError(t, compiled.Validate(answer), "%s", c.req.URL)
	}
}

// escaped is a path as a part of a JSON pointer in an address.
func escaped(path string) string {
	return strings.NewReplacer("/", "~1", "{", "%7B", "}", "%7D").Replace(path)
}

const apiKey = "0123456789abcdef0123456789abcdef"

// schemas makes JSON schemas of Go types, with the comments of their fields.
type schemas struct {
	root     string
	made     object
	comments map[string]map[string]string // by folder, and TYPE.FIELD
}

func (g schemas) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		return object{}
	case t.Implements(reflect.TypeFor[json.Marshaler]()), t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return object{"anyOf": []any{g.of(t.Elem()), object{"type": "null"}}}
	case reflect.Slice:
		return object{"type": []string{"array", "null"}, "items": g.of(t.Elem())}
	case reflect.Map:
		return object{"type": []string{"object", "null"}, "additionalProperties": g.of(t.Elem())}
	case reflect.Struct:
		return g.named(t)
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Float64:
		return object{"type": "number"}
	}
	return object{"type": "integer"}
}

// named is a reference to the schema of a struct.
func (g schemas) named(t reflect.Type) object {
	name := filepath.Base(t.PkgPath()) + "." + t.Name()
	if t.Name() == "" {
		properties := object{}
		return object{"type": "object", "properties": properties, "required": g.fields(t, properties)}
	}
	if g.made[name] == nil {
		properties := object{}
		g.made[name] = object{} // it may hold itself
		g.made[name] = object{"type": "object", "properties": properties, "required": g.fields(t, properties)}
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// fields fills in the properties of a struct, and returns those that are always there.
func (g schemas) fields(t reflect.Type, properties object) []string {
	required := []string{}
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported() && !field.Anonymous:
			continue
		case name == "" && field.Anonymous:
			inner := field.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if always := g.fields(inner, properties); field.Type.Kind() == reflect.Struct {
				required = append(required, always...)
			}
			continue
		case name == "":
			name = field.Name
		}
		schema := g.of(field.Type)
		if comment := g.comment(t, field.Name); comment != "" {
			schema["description"] = comment
		}
		properties[name] = schema
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	return required
}

func (g schemas) comment(t reflect.Type, field string) string {
	folder := strings.TrimPrefix(t.PkgPath(), "github.com/auditrelay/auditrelay/")
	if g.comments[folder] == nil {
		g.comments[folder] = reference.Comments(filepath.Join(g.root, folder))
	}
	return g.comments[folder][t.Name()+"."+field]
}
