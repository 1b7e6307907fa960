package workspace

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

var bob = Person{User: "bob", Host: "desk"}

// by has a person perform an action, and gives its id. f, where it is set, is the API's fault.
func (s *scene) by(p Person, f *fault, r Request) string {
	s.t.Helper()
	s.fault.Store(f)
	defer s.fault.Store(nil)
	r.Person = p
	out, err := s.do(r)
	require.Equal(s.t, f == nil, err == nil, "%v", err)
	require.NotEmpty(s.t, out.Action)
	return out.Action
}

func (s *scene) rename(p Person, f *fault, name string) string {
	s.t.Helper()
	return s.by(p, f, s.request("project.rename", "name", name))
}

// found is what a look begun now finds, in the window since another one began.
func (s *scene) found(since time.Time, subject, before, after string) Found {
	now := time.Now()
	e := audit.Entry{Project: s.env.Project, Subject: subject, Window: &audit.Window{After: since, Until: now}}
	if subject != "project" && subject != "default_email_templates" {
		e.Environment = s.env.Environment
	}
	if before != "" {
		e.Before = json.RawMessage(before)
	}
	if after != "" {
		e.After = json.RawMessage(after)
	}
	whole := func(state json.RawMessage) json.RawMessage {
		if len(state) == 0 {
			return json.RawMessage("{}")
		}
		return state
	}
	changes, err := jsontext.Diff(nil, whole(e.Before), whole(e.After))
	require.NoError(s.t, err)
	return Found{Entry: &e, Changes: changes, Since: since, Looked: now}
}

func (s *scene) attributed(f Found) Attribution {
	s.t.Helper()
	a, err := Attribute(s.t.Context(), s.trail, f)
	require.NoError(s.t, err)
	return a
}

func project(name string) string { return fmt.Sprintf(`{"name":%q,"vertical":"B2B"}`, name) }

var (
	refused = &fault{status: 400}
	lost    = &fault{done: true} // the answer; the API did it
	failed  = &fault{status: 500}
)

// A change belongs to whoever made it, whatever else was tried on the same target.
func TestWhoMadeAChange(t *testing.T) {
	t.Parallel()
	outside := Outside()
	for name, c := range map[string]struct {
		acts  func(s *scene) (by string, person Person) // by: the id of the author's action; empty: outside
		after string
	}{
		"a second try was refused": {func(s *scene) (string, Person) {
			id := s.rename(ada, nil, "x")
			s.rename(ada, refused, "y")
			return id, ada
		}, project("x")},
		"many tries of others were refused": {func(s *scene) (string, Person) {
			id := s.rename(ada, nil, "x")
			for range 5 {
				s.rename(bob, refused, "x")
			}
			return id, ada
		}, project("x")},
		"all were refused": {func(s *scene) (string, Person) {
			s.rename(ada, refused, "x")
			return "", ada
		}, project("x")},
		"an act, and then another value from outside": {func(s *scene) (string, Person) {
			s.rename(ada, nil, "x")
			return "", ada
		}, project("theirs")},
		"an act, a refused one, and then another value from outside": {func(s *scene) (string, Person) {
			s.rename(ada, nil, "x")
			s.rename(bob, refused, "theirs")
			return "", ada
		}, project("theirs")},
		"two acts that both took effect": {func(s *scene) (string, Person) {
			s.rename(ada, nil, "x")
			return s.rename(bob, nil, "y"), bob
		}, project("y")},
		"the first of two acts, put back from outside": {func(s *scene) (string, Person) {
			s.rename(ada, nil, "x")
			s.rename(bob, nil, "y")
			return "", ada
		}, project("x")},
		"a lost answer": {func(s *scene) (string, Person) {
			return s.rename(ada, lost, "x"), ada
		}, project("x")},
		"a lost answer, and a refused try after it": {func(s *scene) (string, Person) {
			id := s.rename(ada, lost, "x")
			s.rename(bob, refused, "x")
			return id, ada
		}, project("x")},
		"an act, and one of unknown outcome that did nothing": {func(s *scene) (string, Person) {
			id := s.rename(ada, nil, "x")
			s.rename(bob, failed, "y")
			return id, ada
		}, project("x")},
		"an act of unknown outcome, and another value from outside": {func(s *scene) (string, Person) {
			s.rename(ada, failed, "x")
			return "", ada
		}, project("theirs")},
		"an intent whose relay was lost": {func(s *scene) (string, Person) {
			a := newAction(s.request("project.rename", "name", "x"), "another-host")
			require.NoError(t, s.intend(t.Context(), a, Plan{}))
			return a.Action, ada
		}, project("x")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			begun := time.Now()
			id, person := c.acts(s)
			want := outside
			if id != "" {
				want = ByPerson(id, person.String())
			}
			f := s.found(begun, "project", project("before"), c.after)
			assert.Equal(t, want, s.attributed(f))
			f.Subject = "rbac_policy"
			assert.Equal(t, outside, s.attributed(f), "no action changes it")
		})
	}
}

func TestWhoMadeAChangeByItsTime(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	begun := time.Now()
	id := s.rename(ada, nil, "x")
	ended := time.Now()
	mine := ByPerson(id, "ada@laptop")
	far, old := time.Hour, time.Second
	for name, c := range map[string]struct {
		since, after, until time.Time
		want                Attribution
	}{
		"within the window":              {begun.Add(-far), begun.Add(-far), ended, mine},
		"begun within it":                {begun, begun, ended.Add(far), mine},
		"after it":                       {begun.Add(-far), begun.Add(-far), begun.Add(-old), Outside()},
		"before it, and seen":            {ended.Add(old), ended.Add(old), ended.Add(far), Outside()},
		"before it, and shown late":      {begun.Add(-far), ended.Add(old), ended.Add(far), mine},
		"before it, and shown never yet": {begun.Add(-far), ended.Add(notShown + old), ended.Add(far), Outside()},
	} {
		f := s.found(c.since, "project", project("before"), project("x"))
		f.Window.After, f.Window.Until, f.Looked = c.after, c.until, c.until
		assert.Equal(t, c.want, s.attributed(f), name)
	}
	f := s.found(begun, "project", project("before"), project("x"))
	s.rename(bob, nil, "y") // done while the look was under way, which did not see it
	f.Window.Until = time.Now()
	assert.Equal(t, mine, s.attributed(f))
}

func TestAChangeMadeInPart(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	begun := time.Now()
	id := s.rename(ada, nil, "x")
	f := s.found(begun, "project", project("before"), `{"name":"x","vertical":"B2C"}`)
	got := s.attributed(f)
	assert.Equal(t, CauseOutside, got.Cause, "no action changes the vertical")
	assert.Contains(t, got.ActorReason, "action "+id+" of ada@laptop explains a part of this one only")

	// Two persons unset one default each.
	defaults := func(login, invite string) string {
		return fmt.Sprintf(`{"INVITE":%s,"LOGIN":%s,"RESET_PASSWORD":"t-9"}`, invite, login)
	}
	first := s.by(ada, nil, s.request("templates.default.unset", "type", "LOGIN"))
	second := s.by(bob, nil, s.request("templates.default.unset", "type", "INVITE"))
	s.by(ada, refused, s.request("templates.default.unset", "type", "RESET_PASSWORD"))
	f = s.found(begun, "default_email_templates", defaults(`"t-1"`, `"t-2"`), defaults("null", "null"))
	assert.Equal(t, ByPerson(first+", "+second, "ada@laptop, bob@desk"), s.attributed(f))
	f = s.found(begun, "default_email_templates", defaults(`"t-1"`, `"t-2"`), defaults("null", `"t-2"`))
	assert.Equal(t, ByPerson(first, "ada@laptop"), s.attributed(f))
	f = s.found(begun, "default_email_templates", defaults(`"t-1"`, `"t-2"`), `{"INVITE":null,"LOGIN":null,"RESET_PASSWORD":null}`)
	assert.Equal(t, CauseOutside, s.attributed(f).Cause, "RESET_PASSWORD was refused")
	f = s.found(begun, "default_email_templates", defaults(`"t-1"`, `"t-2"`), defaults("null", `"t-3"`))
	assert.Equal(t, CauseOutside, s.attributed(f).Cause, "INVITE was set again")
	f = s.found(begun, "default_email_templates", defaults(`"t-1"`, `"t-2"`), defaults(`"t-3"`, `"t-2"`))
	assert.Equal(t, Outside(), s.attributed(f), "an action cannot set one")
}

// The destination, and its secret as far as it shows.
func TestWhoChangedTheStream(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	set := func(f *fault, host, password string) string {
		r := s.request(streamingSet, "type", "GRAFANA_LOKI", "hostname", host, "username", "u")
		r.Secret = secret.New(password)
		return s.by(ada, f, r)
	}
	shown := func(host, lastFour string) string {
		return fmt.Sprintf(`{"destination_type":"GRAFANA_LOKI","destination_config":{"grafana_loki":{"hostname":%q,"username":"u","password_last_four":%q}},"streaming_status":"ACTIVE"}`, host, lastFour)
	}
	begun := time.Now()
	id := set(nil, "Loki.example.com", destinationKey)
	set(refused, "other.example.com", destinationKey)
	mine, lastFour := ByPerson(id, "ada@laptop"), destinationKey[len(destinationKey)-4:]
	for name, c := range map[string]struct {
		subject, after string
		want           Attribution
	}{
		"as set":                    {"event_log_streaming", shown("loki.example.com", lastFour), mine},
		"beside another config":     {"event_log_streaming_second", shown("loki.example.com", lastFour), mine},
		"no last four characters":   {"event_log_streaming", shown("loki.example.com", ""), mine},
		"another host":              {"event_log_streaming", shown("evil.example.com", lastFour), Outside()},
		"the host that was refused": {"event_log_streaming", shown("other.example.com", lastFour), Outside()},
		"another secret":            {"event_log_streaming", shown("loki.example.com", "evil"), Outside()},
		"gone":                      {"event_log_streaming", "", Outside()},
		"another type":              {"event_log_streaming", `{"destination_type":"DATADOG","destination_config":{"datadog":{"site":"US"}}}`, Outside()},
	} {
		assert.Equal(t, c.want, s.attributed(s.found(begun, c.subject, "", c.after)), name)
	}
	details, _ := s.entries()
	assert.Equal(t, lastFour, details[0].LastFour)
}

// An API may write a name in its own way: its answer says how.
func TestANameAsTheAPIWritesIt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	begun := time.Now()
	a := newAction(s.request("project.rename", "name", " Wéb  shop "), s.host)
	require.NoError(t, s.intend(t.Context(), a, Plan{}))
	a.Outcome = OutcomeDone
	require.NoError(t, s.end(t.Context(), a, json.RawMessage(`{"name":"W\u00e9b shop"}`)))
	f := s.found(begun, "project", project("before"), project("Wéb shop"))
	assert.Equal(t, ByPerson(a.Action, "ada@laptop"), s.attributed(f))
}
