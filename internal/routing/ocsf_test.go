package routing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/ocsftest"
	"github.com/auditrelay/auditrelay/relay"
)

func auditEvent(kind, subject, body string) relay.Event {
	at := time.Date(2026, 3, 1, 8, 30, 0, 123456789, time.UTC)
	return relay.Event{
		ID: "trail@7", Source: relay.TrailSource, Type: kind, Subject: subject, Project: "shop", Environment: "live",
		Time: at, Received: at.Add(time.Second), ContentType: "application/json", Body: []byte(body),
	}
}

// changed is an entry of a change with two states.
func changed(kind, subject, direction, severity, changes string) relay.Event {
	return auditEvent(kind, subject, fmt.Sprintf(`{"after":{"b":2},"before":{"a":1},"detail":{"actor":"unknown","actor_reason":"the API names no actor of a change",`+
		`"cause":"outside","changes":%s,"direction":%q,"severity":%q,"statements":[{"sentence":"one","rule":"r-1"},{"sentence":"two","rule":"r-2"}],`+
		`"summary":"it was changed"},"project":"shop","subject":%q,"window":{"after":"2026-03-01T08:29:00Z","until":"2026-03-01T08:30:00Z"}}`,
		changes, direction, severity, subject))
}

// object decodes an encoded object, after a look at what holds for each.
func decoded(t *testing.T, e *relay.Event) map[string]any {
	t.Helper()
	text := encodeOCSF(e)
	require.NoError(t, ocsftest.Validate(text), "%s", text)
	require.True(t, bytes.HasPrefix(text, []byte(OCSFStart)), "%s", text)
	require.NotContains(t, string(text), "\n")
	require.Equal(t, string(text), string(encodeOCSF(e)), "a redelivery has equal bytes")
	var all map[string]any
	require.NoError(t, json.Unmarshal(text, &all))
	return all
}

// at is the value at a path of names and indexes.
func at(t *testing.T, v any, path string) any {
	t.Helper()
	for step := range strings.SplitSeq(path, ".") {
		if list, ok := v.([]any); ok {
			require.NotEmpty(t, list, path)
			v = list[0]
		}
		v = v.(map[string]any)[step]
	}
	return v
}

func TestClasses(t *testing.T) {
	t.Parallel()
	const (
		roles  = `[{"path":"/custom_roles/role_id=a~1b/permissions"},{"path":"/x_member/permissions"},{"path":"/x_resources/y"}]`
		person = `"person":{"user":"ada","host":"desk"}`
	)
	password := func(direction, severity string) relay.Event {
		return changed("settings.changed", "password_strength_config", direction, severity, `[{"path":"/a"}]`)
	}
	for name, c := range map[string]struct {
		event relay.Event
		want  int // type_uid
		has   map[string]any
	}{
		"a change": {password("stronger", "low"), 300403, map[string]any{
			"message": "it was changed", "severity_id": 2.0, "entity.data.a": 1.0, "updated_entity.data.b": 2.0, "entity.name": "password_strength_config",
			"entity.uid": "/projects/shop/environments/live/password_strength_config", "start_time": 1772353740000.0, "end_time": 1772353800000.0,
			"time": 1772353800123.0, "metadata.original_time": "2026-03-01T08:30:00.123456789Z", "metadata.uid": "trail@7",
			"unmapped.cause": "outside", "unmapped.environment": "live", "actor": nil, "status": "Success",
		}},
		"a weaker setting": {password("weaker", "high"), 200401, map[string]any{
			"severity_id": 4.0, "finding_info.title": "it was changed", "finding_info.desc": "one\ntwo", "finding_info.analytic.name": "r-1",
			"evidences.data.before.a": 1.0, "evidences.data.after.b": 2.0, "is_alert": true, "metadata.event_code": "settings.changed",
			"resources.name": "password_strength_config",
		}},
		"mixed, of medium severity": {password("mixed", "medium"), 200401, nil},
		"weaker, of low severity":   {password("weaker", "low"), 300403, nil},
		"of unknown direction":      {password("unknown", "medium"), 300403, map[string]any{"severity_id": 3.0}},
		"nobody knows what it does": {password("unknown", "critical"), 200401, map[string]any{"severity_id": 5.0, "is_alert": true}},
		"a lockout":                 {password("stronger", "high"), 200401, map[string]any{"severity_id": 4.0, "is_alert": true}},
		"roles": {changed("settings.changed", "rbac_policy", "stronger", "low", roles), 300802, map[string]any{
			"iam_role.name": "a/b, member", "iam_role.policies.data.a": 1.0, "updated_role.policies.data.b": 2.0,
			"unmapped.roles": []any{"a/b", "member"},
		}},
		"a weaker role":           {changed("settings.changed", "rbac_policy", "weaker", "high", roles), 200401, nil},
		"resources of the policy": {changed("settings.changed", "rbac_policy", "neutral", "info", `[{"path":"/x_resources/y"}]`), 300403, nil},
		"a first look":            {auditEvent("settings.baseline", "project", `{"after":{"b":2}}`), 300402, map[string]any{"entity.data.b": 2.0}},
		"gone":                    {auditEvent("settings.gone", "project", `{"before":{"a":1},"after":null}`), 300404, map[string]any{"entity.data.a": 1.0}},
		"there again":             {auditEvent("settings.changed", "project", `{"before":null,"after":{"b":2}}`), 300401, map[string]any{"entity.data.b": 2.0}},
		"the streaming config":    {changed("streaming.changed", "event_log_streaming", "neutral", "info", "[]"), 300403, nil},
		"an environment gone":     {auditEvent("environment.gone", "environment", `{"detail":{}}`), 300404, map[string]any{"severity_id": 4.0, "entity.type": "Environment"}},
		"an environment back":     {auditEvent("environment.back", "environment", `{}`), 300499, map[string]any{"activity_name": "back"}},
		"a failed look": {auditEvent("settings.failed", "project", `{"detail":{"error":"no answer"}}`), 300402, map[string]any{
			"status": "Failure", "status_detail": "no answer", "message": "project: it cannot be read", "severity_id": 3.0,
		}},
		"a person's change": {auditEvent("settings.changed", "project", `{"before":{},"after":{},"detail":{"actor":"ada@desk","action":"A1","cause":"relay"}}`), 300403, map[string]any{
			"actor.user.name": "ada@desk", "metadata.correlation_uid": "A1",
		}},
		"an action": {auditEvent("action.ended", "workspace_actions/secret.delete", `{"detail":{"action":"A1","operation":"secret.delete","outcome":"refused","status":403,"error":"no",`+person+`}}`), 600304, map[string]any{
			"actor.user.name": "ada", "src_endpoint.hostname": "desk", "api.operation": "secret.delete", "api.request.uid": "A1", "api.response.code": 403.0,
			"status": "Failure", "message": "ada on desk: secret.delete: refused",
		}},
		"an intent":       {auditEvent("action.intended", "workspace_actions/project.rename", `{"detail":{"operation":"project.rename",`+person+`}}`), 600303, map[string]any{"status": nil}},
		"discarded":       {auditEvent("deadletters.discarded", "sinks/siem", `{"detail":{`+person+`}}`), 600304, map[string]any{"severity_id": 3.0}},
		"nobody's action": {auditEvent("action.ended", "x", `{}`), 600399, map[string]any{"actor.invoked_by": "auditrelay"}},
		"a failed PUT": {auditEvent("streaming.put_failed", "event_log_streaming_puts", `{"detail":{"actor":"relay","action":"A2","relay":"r1","reason":["differs"],"error":"no","outcome":"unknown"}}`), 600303, map[string]any{
			"status": "Failure", "src_endpoint.hostname": "r1", "metadata.correlation_uid": "A2", "status_detail": "no", "severity_id": 4.0,
		}},
		"a PUT":           {auditEvent("streaming.put_ended", "event_log_streaming_puts", `{"detail":{"outcome":"done"}}`), 600303, map[string]any{"status": "Success"}},
		"a damaged trail": {auditEvent("trail.damaged", "audit_trail", `{"trail":{"index":7}}`), 200401, map[string]any{"severity_id": 4.0, "metadata.sequence": 7.0}},
		"a checkpoint":    {auditEvent("trail.checkpoint", "trail", `{}`), 99, map[string]any{"activity_name": "trail.checkpoint"}},
		"an actor of it":  {auditEvent("new.type", "", `{"detail":{"actor":"a"}}`), 99, map[string]any{"actor": nil}},
		"a refused stream": {auditEvent("health.changed", "streaming_health", `{"detail":{"summary":"live: event log is refused","severity":"critical","to":"refused"}}`), 200401, map[string]any{
			"severity_id": 5.0, "finding_info.title": "live: event log is refused", "evidences.data.detail.to": "refused",
		}},
		"a stream flows": {auditEvent("health.changed", "streaming_health", `{"detail":{"summary":"live: event log flows","severity":"info"}}`), 99, map[string]any{"message": "live: event log flows"}},
		"a gap":          {auditEvent("health.gap", "streaming_gap", `{"detail":{"summary":"live: about 5 events were lost","severity":"high","events_lost":5}}`), 200401, map[string]any{"severity_id": 4.0}},
		"a silence": {auditEvent("silence.added", "silences", `{"detail":{"summary":"silence of shop/live","severity":"medium","reason":"CHG-17",`+person+`}}`), 600301, map[string]any{
			"message": "silence of shop/live", "severity_id": 3.0, "status": "Success", "actor.user.name": "ada", "unmapped.reason": "CHG-17",
		}},
		"a silence's end":  {auditEvent("silence.ended", "silences", `{"detail":{"severity":"low",`+person+`}}`), 600304, map[string]any{"severity_id": 2.0, "message": "silences: a silence was ended before its time"}},
		"found damage":     {auditEvent("journal.quarantined", "j", `{"detail":{"records":7}}`), 200401, map[string]any{"evidences.data.detail.records": 7.0, "severity_id": 4.0}},
		"an unknown entry": {auditEvent("new.type", "", `no JSON`), 99, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := decoded(t, &c.event)
			assert.InDelta(t, c.want, got["type_uid"], 0)
			assert.Equal(t, string(c.event.Body), got["raw_data"])
			for path, want := range c.has {
				assert.Equal(t, want, at(t, got, path), path)
			}
		})
	}
}

func TestLogEvents(t *testing.T) {
	t.Parallel()
	login := func(action, status string) string {
		return fmt.Sprintf(`{"event_id":"e","action":%q,"status":%q,"request_id":"r-1","actor":{"id":"m-1","email":"ada@example.com"},"ip":"::ffff:10.1.2.3",`+
			`"user_agent":"curl","details":{"error_type":"wrong"},"n":1.50,"big":1e999,"odd":"\ud83d"}`, action, status)
	}
	for name, c := range map[string]struct {
		body string
		want int
		has  map[string]any
	}{
		"a login": {login("passwords.authenticate", "success"), 300201, map[string]any{
			"user.uid": "m-1", "user.name": "ada@example.com", "service.name": "shop/live", "src_endpoint.ip": "10.1.2.3",
			"http_request.user_agent": "curl", "status": "Success", "metadata.correlation_uid": "r-1", "message": "passwords.authenticate: success",
			"metadata.logged_time": 1772353801123.0, "unmapped.event.n": 1.5, "unmapped.event.big": nil, "unmapped.event.odd": "\ufffd", "unmapped.event.actor": nil,
		}},
		"a failed login":        {login("sso.authenticate", "error"), 300201, map[string]any{"status_id": 2.0, "status_detail": "wrong"}},
		"a logout":              {login("sessions.revoke", "success"), 300202, nil},
		"the start of a login":  {login("passwords.authenticate", "start"), 99, map[string]any{"status": "start", "status_id": 99.0}},
		"a session checked":     {login("sessions.authenticate", "success"), 99, map[string]any{"activity_name": "sessions.authenticate"}},
		"a login of nobody":     {`{"action":"login","status":"success","user":"ada"}`, 99, nil},
		"a login from nowhere":  {`{"action":"login","status":"success","user_id":"u","ip":"x"}`, 300201, map[string]any{"src_endpoint": nil}},
		"another action":        {login("members.create", "success"), 99, map[string]any{"metadata.log_name": "event_log"}},
		"text":                  {"a line of text", 99, map[string]any{"unmapped.event": nil}},
		"members of odd types":  {`{"action":1,"status":[],"user":{"id":{}},"details":"x","email":"a"}`, 99, map[string]any{"unmapped.event.email": "a"}},
		"an entry in its looks": {`{"action":"login","detail":{"direction":"weaker","severity":"high"}}`, 99, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := auditEvent("event_log.x", "", c.body)
			e.Labels = []relay.Label{{Name: "app", Value: "1"}, {Name: "b", Value: "2"}, {Name: "app", Value: "3"}}
			got := decoded(t, &e)
			assert.InDelta(t, c.want, got["type_uid"], 0)
			assert.Equal(t, c.body, got["raw_data"])
			assert.Equal(t, []any{
				map[string]any{"name": "app", "values": []any{"1", "3"}}, map[string]any{"name": "b", "values": []any{"2"}},
			}, at(t, got, "metadata.tags"))
			for path, want := range c.has {
				assert.Equal(t, want, at(t, got, path), path)
			}
		})
	}
}

// A body outside UTF-8 is whole, and a large one is not there three times.
func TestOddAndLargeBodies(t *testing.T) {
	t.Parallel()
	e := auditEvent("event_log.x", "", "\xff\x00")
	got := decoded(t, &e)
	assert.Equal(t, "/wA=", got["raw_data"])
	assert.Equal(t, "base64", at(t, got, "unmapped.raw_data_encoding"))
	assert.InDelta(t, 2, got["raw_data_size"], 0)
	assert.Equal(t, "ea5dbf9596d187e9500f23e9a680109475341cf4e81f7e043f7d97152c10772f", at(t, got, "raw_data_hash.value"))

	state := `{"x":"` + strings.Repeat("x", 300<<10) + `"}`
	e = auditEvent("settings.changed", "project", `{"before":{},"after":`+state+`,"detail":{"summary":"s","severity":"low"}}`)
	text := encodeOCSF(&e)
	require.NoError(t, ocsftest.Validate(text))
	assert.Less(t, len(text), 302<<10)
	assert.Contains(t, string(text), `"states_omitted":true`)
	assert.Contains(t, string(text), `"message":"s"`)
}

func FuzzOCSF(f *testing.F) {
	for _, kind := range []string{"event_log.x", "settings.changed", "action.ended", "settings.failed", "trail.damaged", "x"} {
		f.Add(kind, "rbac_policy", "a", []byte(`{"action":"login","status":"success","user_id":"u","ip":"::1","n":1e400,"s":"\ud800"}`))
		f.Add(kind, "s", "", changed(kind, "s", "weaker", "high", `[{"path":"/custom_roles/role_id=a"}]`).Body)
	}
	f.Add("action.ended", "", "", []byte(`{"detail":{"operation":"a.","person":{"user":"u"},"status":1,"outcome":"x","action":"y"}}`))
	f.Add("settings.changed", "rbac_policy", "", []byte(`{"detail":{"direction":"weaker","severity":"medium","statements":[{}]},"before":1,"after":[null]}`))
	f.Add("B", "", "", []byte(`{"detail":{"actor":"0"}}`))
	f.Add("\xff.gone", "\xff", "\u2028", []byte("\xff"))
	f.Fuzz(func(t *testing.T, kind, subject, label string, body []byte) {
		e := auditEvent(kind, subject, string(body))
		e.Labels = []relay.Label{{Name: label, Value: subject}}
		got := decoded(t, &e)
		assert.Equal(t, float64(len(body)), got["raw_data_size"]) //nolint:testifylint // whole numbers
		if at(t, got, "unmapped.raw_data_encoding") == nil {
			assert.Equal(t, string(body), got["raw_data"])
		}
		assert.LessOrEqual(t, len(encodeOCSF(&e)), 8*len(body)+4<<10+12*(len(kind)+len(subject)+len(label))*6)
	})
}
