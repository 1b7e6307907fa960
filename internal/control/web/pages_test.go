package web

import (
	"archive/zip"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

const (
	policyBefore = `{"custom_resources":[{"resource_id":"documents","available_actions":["read","write","delete"]}],"custom_roles":[{"role_id":"editor","permissions":[{"resource_id":"documents","actions":["read","write"]}]}]}`
	policyAfter  = `{"custom_resources":[{"resource_id":"documents","available_actions":["read","write","delete"]}],"custom_roles":[{"role_id":"editor","permissions":[{"resource_id":"documents","actions":["*"]}]}]}`
	mailText     = `[{"template_id":"welcome","name":"Welcome","custom_html_customization":{"subject":"Hello","html_content":"<p style='color:green'>Log in at <a href='https://example.com/login'>example.com</a></p>\n"}}]`
)

func passwords(length int) string {
	return fmt.Sprintf(`{"validation_policy":"LUDS","luds_min_password_length":%d,"luds_min_password_complexity":2,"check_breach_on_creation":true,"check_breach_on_authentication":true,"validate_on_authentication":true}`, length)
}

// changed is an entry about a change, with its reading as the relay makes it.
func changed(subject string, minute int, before, after string) audit.Entry {
	at := time.Date(2026, 3, 1, 8, minute, 0, 0, time.UTC)
	e := audit.Entry{
		Type: "settings.changed", Project: "shop", Environment: "live", Subject: subject, Time: at,
		Before: json.RawMessage(before), After: json.RawMessage(after), Window: &audit.Window{After: at.Add(-time.Minute), Until: at},
	}
	read, err := meaning.Read(subject, e.Before, e.After)
	if err == nil {
		e.Detail, _ = json.Marshal(struct {
			meaning.Reading
			Cause string `json:"cause"`
		}{read, "outside"})
	}
	return e
}

// hostileText tries to be markup, and to reorder what follows it.
const hostileText = hostile + "\u202e\u2066txt.exe" + `"'><img src=x onerror=alert(1)>`

// story is a small trail: a first look, a password policy, a mail, a policy of roles, and hostile text.
func story() []audit.Entry {
	first := changed("password_strength_config", 0, "", passwords(12))
	first.Type, first.Before, first.Window = "settings.baseline", nil, nil
	first.Detail = json.RawMessage(`{"summary":"this setting is seen for the first time","severity":"info","direction":"neutral","cause":"outside"}`)
	odd, _ := json.Marshal(map[string]string{"name": hostileText, "long": strings.Repeat("long ", 200_000)})
	return []audit.Entry{
		first,
		changed("password_strength_config", 1, passwords(12), passwords(6)),
		changed("email_templates", 2, mailText, strings.Replace(mailText, "https://example.com", "https://examp1e.evil", 1)),
		changed(rbacSubject, 3, policyBefore, policyAfter),
		changed("odd", 4, `{"name":"a"}`, string(odd)),
	}
}

func fill(t testing.TB, c *stage, entries []audit.Entry) {
	t.Helper()
	for i := range entries {
		_, err := c.trail.Append(t.Context(), entries[i])
		require.NoError(t, err)
	}
	require.NoError(t, c.index.Ready(t.Context()))
}

// told serves a story, and gives a function that reads its pages as somebody who is logged in.
func told(t *testing.T) (*stage, func(path string) (answer, string)) {
	t.Helper()
	c := newStage(t)
	fill(t, c, story())
	cookie := login(t, c.Console, c.URL)
	return c, func(path string) (answer, string) {
		t.Helper()
		return send(t, http.MethodGet, c.URL+path, cookie)
	}
}

func TestChangesAreFiltered(t *testing.T) {
	t.Parallel()
	_, get := told(t)
	for query, want := range map[string][]int{
		"":                        {4, 3, 2, 1, 0},
		"?direction=weaker":       {3, 2, 1},
		"?text=MINIMUM":           {1},
		"?setting=rbac*":          {3},
		"?since=2026-03-01T08:02": {4, 3, 2},
		"?until=2026-03-01T08:01": {0},
		"?project=other":          {},
		"?severity=low&environment=live&before=3": {2, 1},
		"?after=2": {4, 3},
	} {
		resp, body := get("/changes" + query)
		require.Equal(t, http.StatusOK, resp.StatusCode, query)
		assert.Equal(t, want, linked(body, len(story())), query)
	}
	_, body := get("/changes?severity=high&text=%22%3E%3Cb%3E")
	assert.Contains(t, body, `<option selected>high</option>`, "an applied filter cannot be edited")
	assert.Contains(t, body, `value="&#34;&gt;&lt;b&gt;"`)
	assert.Contains(t, body, `href="/changes?severity=high"`, "an applied filter cannot be removed")
	resp, body := get("/changes?since=yesterday")
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode, "a program takes it for an empty list")
	assert.Contains(t, body, "cannot be read: write it as")
	assert.Contains(t, body, `name="since"`, "the form cannot be corrected")
	resp, _ = get("/changes?before=x")
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
}

// linked are the entries that a page links to, in its order.
func linked(body string, n int) []int {
	list := []int{}
	for _, part := range strings.Split(body, `class="sentence" href="/changes/`)[1:] {
		for i := range n {
			if strings.HasPrefix(part, fmt.Sprintf(`%d"`, i)) {
				list = append(list, i)
			}
		}
	}
	return list
}

func TestChangesArePaged(t *testing.T) {
	t.Parallel()
	c := newStage(t)
	var entries []audit.Entry
	for i := range 2*rowsPerPage + 10 {
		entries = append(entries, changed("password_strength_config", i, passwords(12+i%40), passwords(13+i%40)))
	}
	fill(t, c, entries)
	cookie := login(t, c.Console, c.URL)
	seen, path := []int{}, "/changes?direction=stronger"
	for range 3 {
		_, body := send(t, http.MethodGet, c.URL+path, cookie)
		seen = append(seen, linked(body, len(entries))...)
		path = linkTo(body, `rel="next">Older`)
	}
	assert.Empty(t, path, "there is a page after the oldest")
	require.Len(t, seen, len(entries))
	for i, index := range seen {
		require.Equal(t, len(entries)-1-i, index)
	}
	_, body := send(t, http.MethodGet, c.URL+fmt.Sprintf("/changes?before=%d", 20), cookie)
	newer := linkTo(body, `rel="prev">Newer`)
	_, body = send(t, http.MethodGet, c.URL+newer, cookie)
	assert.Equal(t, 20+rowsPerPage-1, linked(body, len(entries))[0])
	assert.Equal(t, 20, linked(body, len(entries))[rowsPerPage-1])
}

// linkTo is the address before a text in a page.
func linkTo(body, text string) string {
	before, _, found := strings.Cut(body, text)
	if !found {
		return ""
	}
	address := before[strings.LastIndex(before, `href="`)+len(`href="`):]
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimSpace(address), `"`), "&amp;", "&")
}

func TestAnEntryIsShownWhole(t *testing.T) {
	t.Parallel()
	_, get := told(t)
	_, body := get("/changes/1")
	for _, want := range []string{"minimum password length 12 → 6", "weaker", "within 1m0s", "the API names nobody", "/prove?entry=1", "/states?project=shop&amp;environment=live&amp;entry=1", "nobody", "Acknowledge"} {
		assert.Contains(t, strings.ToLower(body), strings.ToLower(want))
	}
	_, body = get("/changes/3")
	assert.Contains(t, body, `+<span class="visually-hidden"> gained`)
	assert.Contains(t, body, "role editor")
	for path, status := range map[string]int{"/changes/99": 404, "/changes/x": 400, "/changes/-1": 400, "/changes/1/text?part=none": 404, "/changes/2/mail?template=none": 404} {
		resp, _ := get(path)
		assert.Equal(t, status, resp.StatusCode, path)
	}
}

func TestAMailIsShownWithoutAnyRequest(t *testing.T) {
	t.Parallel()
	c, get := told(t)
	_, body := get("/changes/2")
	assert.Contains(t, body, `<iframe sandbox="" loading="lazy"`)
	assert.NotContains(t, body, "srcdoc")
	_, rest, _ := strings.Cut(body, `after the change" src="`)
	frame, _, _ := strings.Cut(rest, `"`)
	resp, text := get(strings.ReplaceAll(frame, "&amp;", "&"))
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, text, "color:green", "a mail has lost its look")
	assert.NotContains(t, text, "examp1e.evil", "a click in a mail calls somebody")
	policy := resp.Header.Get("Content-Security-Policy")
	for _, want := range []string{"sandbox;", "default-src 'none'", "frame-ancestors 'self'"} {
		assert.Contains(t, policy, want)
	}
	assert.NotContains(t, policy, "allow-")
	resp, _ = send(t, http.MethodGet, c.URL+strings.ReplaceAll(frame, "&amp;", "&"), nil)
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
}

func TestAnInertMailCallsNobody(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`<link rel="preconnect" href="//evil.example">`, `<noscript><link rel=dns-prefetch href=//evil.example></noscript>`,
		`<meta http-equiv="refresh" content="0;url=//evil.example">`, `<base href="//evil.example">`, `<svg><a xlink:href="//evil.example" href="//evil.example">x</a></svg>`,
		`<iframe src="//evil.example"></iframe>`, `<form action="//evil.example"><button formaction="//evil.example">`, `<table><td><link href=//evil.example>`,
		`<template><link href="//evil.example"></template>`, `<math><mtext><table><mglyph><style><!--</style><link href="//evil.example">`,
	} {
		got, err := inert(text + "<p>shown</p>")
		require.NoError(t, err)
		assert.NotContains(t, string(got), "evil.example\"", text)
	}
}

// A template that cannot be shown, and templates beyond those that a page shows, are named: none of them
// may conceal a change.
func TestAMailThatIsNotShownIsNamed(t *testing.T) {
	t.Parallel()
	c := newStage(t)
	const all = mostMails + 3
	mails := func(text string) string {
		list := make([]map[string]any, all)
		for i := range list {
			list[i] = map[string]any{"template_id": fmt.Sprintf("t%02d", i), "custom_html_customization": map[string]string{"html_content": text}}
		}
		raw, err := json.Marshal(list)
		require.NoError(t, err)
		return string(raw)
	}
	fill(t, c, []audit.Entry{changed(mailSubject, 0, mails("<p>good</p>"), mails(strings.Repeat("<div>", 1000)+"evil"))})
	cookie := login(t, c.Console, c.URL)
	_, body := send(t, http.MethodGet, c.URL+"/changes/0", cookie)
	assert.Equal(t, 2*mostMails, strings.Count(body, "<iframe"))
	assert.Contains(t, body, "3 more templates have changed")
	resp, text := send(t, http.MethodGet, c.URL+"/changes/0/mail?side=after&template=t00", cookie)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, mailPolicy, resp.Header.Get("Content-Security-Policy"), "a frame does not show it")
	assert.Contains(t, text, "cannot be shown as a recipient sees it")
}

func TestHostileTextIsText(t *testing.T) {
	t.Parallel()
	_, get := told(t)
	for _, path := range []string{"/changes", "/changes/4", "/states", "/changes/4/text?part=after"} {
		resp, body := get(path)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
			assert.NotContains(t, body, "<script>alert", path)
			assert.NotContains(t, body, "<img src=x", path)
			assert.Less(t, len(body), 200_000, "%s is not cut", path)
		} else {
			assert.Greater(t, len(body), 1_000_000)
		}
		assert.NotContains(t, body, "\u202e", path)
	}
	_, body := get("/changes/4")
	assert.Contains(t, body, "See the whole (")
	assert.Contains(t, body, `&lt;script&gt;alert(1)&lt;/script&gt;\u202e\u2066txt.exe`)
}

func TestWhatIsSeenIsExported(t *testing.T) {
	t.Parallel()
	c, get := told(t)
	resp, body := get("/changes/export?form=csv&direction=weaker")
	assert.Contains(t, resp.Header.Get("Content-Disposition"), "changes.csv")
	lines, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	require.NoError(t, err)
	assert.Len(t, lines, 4)
	_, body = get("/changes/export?form=jsonl&direction=weaker")
	assert.Equal(t, 3, strings.Count(body, "\n"))

	c.publish(t)
	resp, body = get("/changes/export?form=proofs&direction=weaker")
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	z, err := zip.NewReader(bytes.NewReader([]byte(body)), int64(len(body)))
	require.NoError(t, err)
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	assert.Equal(t, []string{"trail.policy", "1.json", "1.tlog-proof", "2.json", "2.tlog-proof", "3.json", "3.tlog-proof"}, names)

	for query, want := range map[string]string{"form=csv&project=none": "No entry fits", "form=proofs&project=none": "No entry fits", "form=xml": "no export of this form", "form=csv&severity=dire": "severity"} {
		resp, body := get("/changes/export?" + query)
		assert.GreaterOrEqual(t, resp.StatusCode, 400, query)
		assert.Contains(t, body, want)
	}
}

func TestAReviewIsEntered(t *testing.T) {
	t.Parallel()
	c, get := told(t)
	cookie := login(t, c.Console, c.URL)
	post := func(fields url.Values) (answer, string) {
		req := httptest.NewRequest(http.MethodPost, "http://localhost/changes/1/annotate", strings.NewReader(fields.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.AddCookie(cookie)
		w := httptest.NewRecorder()
		c.ServeHTTP(w, req)
		text := w.Body.String()
		return answer{w.Code, w.Header(), w.Result().Cookies()}, text
	}
	_, body := post(url.Values{"ticket": {"SEC-7"}})
	assert.Contains(t, body, "would mark entry 1 as reviewed")
	assert.EqualValues(t, len(story()), c.trail.Size(), "a dry run has entered something")
	resp, body := post(url.Values{"ticket": {"SEC-7"}, "confirm": {"yes"}})
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, body)
	require.Equal(t, "/changes/1", resp.Header.Get("Location"))
	require.NoError(t, c.index.Ready(t.Context()))
	_, body = get("/changes/1")
	assert.Contains(t, body, "ticket <bdi>SEC-7</bdi>")
	assert.Contains(t, body, "entered by <bdi>ann</bdi>")
}

func TestTheStatesAtATime(t *testing.T) {
	t.Parallel()
	_, get := told(t)
	_, body := get("/states?project=shop&environment=live")
	assert.Contains(t, body, ">4 settings<")
	_, body = get("/states?entry=0")
	assert.Contains(t, body, ">1 setting<")
	assert.Contains(t, body, "&#34;luds_min_password_length&#34;: 12")
	assert.Equal(t, "/states?project=&environment=&entry=1", linkTo(body, `rel="next">Next change`))
	_, body = get("/states?at=2026-03-01T08:01")
	assert.Contains(t, body, "&#34;luds_min_password_length&#34;: 6")
	resp, body := get("/states?at=2020-01-01")
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	assert.Contains(t, body, "it begins later")
}

func TestStatesOfAnEmptyTrail(t *testing.T) {
	t.Parallel()
	c := newStage(t)
	cookie := login(t, c.Console, c.URL)
	for _, path := range []string{"/states", "/changes", "/"} {
		resp, _ := send(t, http.MethodGet, c.URL+path, cookie)
		assert.Equal(t, http.StatusOK, resp.StatusCode, path)
	}
}

// publish signs the trail, and writes its files.
func (s *stage) publish(t testing.TB) {
	t.Helper()
	require.NoError(t, s.trail.Sign(t.Context()))
	require.NoError(t, tiles.NewKeeper(tiles.Open(filepath.Join(s.dir, tiles.Dir)), s.trail, s.trail.Generations, nil).Run(t.Context()))
}
