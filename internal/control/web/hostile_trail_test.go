package web

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// hostileTrail are entries as a hostile API could have them made: names of a mebibyte with markup and
// turned directions, deep nesting, many roles, and formulas.
func hostileTrail() []audit.Entry {
	long, _ := json.Marshal(hostileText + strings.Repeat("W", 1<<20))
	name := string(long)
	roles := make([]string, 3000)
	for i := range roles {
		roles[i] = fmt.Sprintf(`{"role_id":"r%d","permissions":[{"resource_id":"documents","actions":["read"]}]}`, i)
	}
	policy := func(role string) string {
		return `{"custom_resources":[{"resource_id":` + name + `,"available_actions":[` + name + `]}],"custom_roles":[{"role_id":` + role + `,"permissions":[{"resource_id":` + name + `,"actions":["*"]}]}]}`
	}
	deep := strings.Repeat(`{"a":[`, 4000) + name + strings.Repeat(`]}`, 4000)
	all := []audit.Entry{
		changed(rbacSubject, 0, policyBefore, policy(name)),
		changed(rbacSubject, 1, policy(name), policy(`"editor"`)),
		changed(rbacSubject, 2, policyBefore, `{"custom_resources":[],"custom_roles":[`+strings.Join(roles, ",")+`]}`),
		changed(mailSubject, 3, mailText, strings.ReplaceAll(strings.ReplaceAll(mailText, `"welcome"`, name), `"Hello"`, name)),
		changed("odd", 4, `{"a":1}`, deep),
	}
	for i, text := range []string{"=cmd|' /C calc'!A0", "@SUM(1)", "+1", "-1", "\t=1", "\r=1", hostileText + strings.Repeat("n", 200)} {
		e := changed("odd", 5+i, `{"a":1}`, `{"a":2}`)
		e.Environment, e.Subject = text, text
		e.Detail, _ = json.Marshal(map[string]string{"summary": text, "cause": text + "\x00", "actor": text + strings.Repeat("n", 1<<20)})
		all = append(all, e)
	}
	return all
}

func TestHostileTrail(t *testing.T) {
	t.Parallel()
	c := newStage(t)
	all := hostileTrail()
	fill(t, c, all)
	cookie := login(t, c.Console, c.URL)
	paths := []string{"/", "/changes", "/states", "/streaming", "/changes?text=script", "/changes?environment=%3Dcmd*"}
	for i := range all {
		paths = append(paths, fmt.Sprintf("/changes/%d", i))
	}
	for _, path := range paths {
		resp, body := send(t, http.MethodGet, c.URL+path, cookie)
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		assert.Less(t, len(body), 300_000, path)
		assert.True(t, utf8.ValidString(body), path)
		assert.NotContains(t, body, hostile, path)
		assert.NotContains(t, body, "<img src=x", path)
		assert.NotContains(t, body, "\u202e", "%s turns the direction of text", path)
	}
	for i, e := range all {
		resp, whole := send(t, http.MethodGet, fmt.Sprintf("%s/changes/%d/text?part=after", c.URL, i), cookie)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
		assert.Equal(t, strings.Count(string(e.After), "W"), strings.Count(whole, "W"), "the whole of entry %d is out of reach", i)
	}
	checkExports(t, c, cookie, all)
}

// checkExports reads the exports as their readers would.
func checkExports(t *testing.T, c *stage, cookie *http.Cookie, all []audit.Entry) {
	t.Helper()
	_, body := send(t, http.MethodGet, c.URL+"/changes/export?form=csv&all=yes", cookie)
	lines, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	require.NoError(t, err)
	require.Len(t, lines, len(all)+1)
	for _, line := range lines {
		for _, cell := range line {
			if cell = strings.TrimSpace(cell); cell != "" {
				assert.NotContains(t, "=+-@", cell[:1], "a spreadsheet would run it")
			}
			assert.NotContains(t, cell, "\u202e")
		}
	}
	_, body = send(t, http.MethodGet, c.URL+"/changes/export?form=jsonl&all=yes", cookie)
	rows := strings.Split(strings.TrimSpace(body), "\n")
	require.Len(t, rows, len(all))
	for i, row := range rows {
		var e struct{ Environment, Setting string }
		require.NoError(t, json.Unmarshal([]byte(row), &e))
		assert.Equal(t, all[i].Environment, e.Environment, "the whole name is out of reach")
		assert.Equal(t, all[i].Subject, e.Setting)
	}
}
