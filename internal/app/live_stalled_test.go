package app

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// stall asks for the live events over a connection of its own, and reads nothing once it has its place.
func stall(t *testing.T, front string, session *http.Cookie) {
	t.Helper()
	host := strings.TrimPrefix(front, "http://")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10)) // so that it is soon full
	_, err = fmt.Fprintf(conn, "GET /live/events HTTP/1.1\r\nHost: %s\r\nCookie: %s=%s\r\n\r\n", host, session.Name, session.Value)
	require.NoError(t, err)
	answer := bufio.NewReader(conn)
	for line := ""; !strings.Contains(line, "Since the page was opened"); {
		line, err = answer.ReadString('\n')
		require.NoError(t, err)
	}
}

// Readers that stall take all places but one. The one reads on, and events are delivered; then each of
// the others is cut off, and its place and its connection are free again, though it has closed nothing.
func TestReadersThatStallAreCutOff(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Console.Listen = "127.0.0.1:0"
	r := start(t, cfg)
	defer func() { require.NoError(t, r.stop()) }()
	const places, ofEach = 16, 3
	var front string
	var sessions []*http.Cookie // each follows in few places
	for range places/ofEach + 1 {
		opened, err := console.NewClient(cfg.DataDir).OpenWeb(t.Context())
		require.NoError(t, err)
		front, _, _ = strings.Cut(opened.URL, "/open/")
		_, _, cookies := visit(t, opened.URL, nil)
		sessions = append(sessions, cookies[0])
	}
	reading := follow(t, front+"/live/events", sessions[0])
	reading.until(t, "Since the page was opened")
	for i := range places - 1 {
		stall(t, front, sessions[i%len(sessions)])
	}
	asked := 0
	letIn := func() (*live, bool) {
		asked++
		other := follow(t, front+"/live/events", sessions[asked%len(sessions)])
		return other, !strings.Contains(other.until(t, "</p>"), "followed at 16 places already")
	}
	other, in := letIn()
	require.False(t, in, "not all places are taken")
	require.NoError(t, other.body.Close())

	passed := 0
	pass := func() string {
		lines := make([]string, 20)
		for i := range lines {
			passed++
			lines[i] = fmt.Sprintf(`{"event_id":"event-%d","action":"LOGIN","note":%q}`, passed, incompressible(4<<10))
		}
		r.pushLines(lines...)
		id := fmt.Sprintf("event-%d", passed)
		reading.until(t, id+"<")
		return id
	}
	waiting.Until(t, func() bool {
		pass()
		return r.metric(`auditrelay_connections_open{listener="console"}`) == "1"
	}, "a reader that stalls is not cut off")
	r.arrived(pass())
	for range places - 1 {
		_, in := letIn()
		require.True(t, in, "the place of a reader that was cut off is still taken")
	}
}
