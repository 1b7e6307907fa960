package app

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

// live is an open stream of live events.
type live struct {
	body  io.ReadCloser
	lines *bufio.Reader
}

func follow(t *testing.T, at string, session *http.Cookie) *live {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody)
	require.NoError(t, err)
	req.AddCookie(session)
	alone := &http.Transport{DisableKeepAlives: true} // no connection stays open after its stream
	resp, err := alone.RoundTrip(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	return &live{resp.Body, bufio.NewReader(resp.Body)}
}

// until reads to a line that has a text.
func (l *live) until(t *testing.T, text string) (all string) {
	t.Helper()
	for !strings.Contains(all, text) {
		line, err := l.lines.ReadString('\n')
		all += line
		require.NoError(t, err, "%q is not in %s", text, all)
		name, _, _ := strings.Cut(line, ":")
		require.Contains(t, []string{"data", "event", "retry", "", "\n"}, name, "a line of another form")
	}
	return all
}

func TestTheLiveEventsAreStreamed(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Console.Listen = "127.0.0.1:0"
	r := start(t, cfg)
	opened, err := console.NewClient(cfg.DataDir).OpenWeb(t.Context())
	require.NoError(t, err)
	front, _, _ := strings.Cut(opened.URL, "/open/")
	_, _, cookies := visit(t, opened.URL, nil)
	_, page, _ := visit(t, front+"/live?match="+url.QueryEscape(`id != "event-2"`), cookies[0])
	require.Contains(t, page, `hx-sse:connect="/live/events?match=id&#43;%21%3D&#43;%22event-2%22"`)
	_, held, _ := visit(t, front+"/live?hold=yes", cookies[0])
	require.NotContains(t, held, "hx-sse", "it is held, and follows")

	all := follow(t, front+"/live/events", cookies[0])
	some := follow(t, front+"/live/events?match="+url.QueryEscape(`id != "event-2"`), cookies[0])
	hostile := "event-\revent: over\r\rdata: <script>1</script>"
	for i, id := range []string{"event-1", "event-2", hostile} {
		code, _ := r.push(id)
		require.Less(t, code, 300)
		all.until(t, fmt.Sprintf(`id="event-%d"`, i+1))
	}
	seen := some.until(t, "1 do not match")
	assert.Contains(t, seen, "event-1")
	assert.NotContains(t, seen, "event-2<")
	assert.NotContains(t, seen, "<script>")

	// More streams than a browser can well have end the oldest one of the same session.
	opened, err = console.NewClient(cfg.DataDir).OpenWeb(t.Context())
	require.NoError(t, err)
	_, _, others := visit(t, opened.URL, nil)
	var many []*live
	for range 5 {
		many = append(many, follow(t, front+"/live/events", others[0]))
		many[len(many)-1].until(t, "event-2")
	}
	assert.Contains(t, many[0].until(t, "event: over"), "you follow the live events in other pages")
	_, err = io.ReadAll(many[0].lines)
	require.NoError(t, err)
	code, _ := r.push("event-4")
	require.Less(t, code, 300)
	for _, one := range append(many[1:], all) {
		one.until(t, "event-4")
	}

	// Whoever is logged out sees nothing more, and is told so.
	_, err = console.NewClient(cfg.DataDir).RevokeSession(t.Context(), console.RevokeSession{ID: console.AllSessions})
	require.NoError(t, err)
	assert.Contains(t, all.until(t, "event: over"), "you are logged out")
	_, err = io.ReadAll(all.lines)
	require.NoError(t, err)

	// A relay that stops waits for no stream.
	opened, err = console.NewClient(cfg.DataDir).OpenWeb(t.Context())
	require.NoError(t, err)
	_, _, cookies = visit(t, opened.URL, nil)
	last := follow(t, front+"/live/events", cookies[0])
	last.until(t, "event-1")
	require.NoError(t, r.stop())
	_, err = io.ReadAll(last.lines)
	require.NoError(t, err, "it was cut off")
}
