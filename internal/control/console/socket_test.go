package console_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

func listenAt(t *testing.T, dir string) (*console.Server, error) {
	t.Helper()
	return console.Listen(t.Context(), dir, console.Options{Sinks: func() []config.Sink { return []config.Sink{{Name: "x"}} }, Logger: slog.New(slog.DiscardHandler)}, func(err error) { t.Error(err) })
}

func TestTheSocketIsPrivateAndGoesWithTheRelay(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{
		"short": t.TempDir(),
		"long":  filepath.Join(t.TempDir(), strings.Repeat("long", 30)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, os.MkdirAll(dir, 0o755))
			server, err := listenAt(t, dir)
			require.NoError(t, err)
			path := filepath.Join(dir, "control.sock")
			info, err := os.Stat(path)
			require.NoError(t, err)
			assert.Equal(t, os.ModeSocket|0o600, info.Mode())
			_, err = console.NewClient(dir).Retire(t.Context(), "x")
			require.ErrorContains(t, err, "remove it from the config first", "it answers")

			_, err = listenAt(t, dir)
			require.ErrorContains(t, err, "another process serves "+path)
			require.NoError(t, server.Close(t.Context()))
			assert.NoFileExists(t, path)
		})
	}
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "control.sock"), Net: "unix"})
	require.NoError(t, err)
	dead.SetUnlinkOnClose(false) // as by a killed process
	require.NoError(t, dead.Close())
	_, err = console.NewClient(dir).Sinks(t.Context())
	require.ErrorContains(t, err, "no relay runs on the data directory "+dir)

	server, err := listenAt(t, dir)
	require.NoError(t, err)
	require.NoError(t, server.Close(t.Context()))
}

func TestNoRelayRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := console.NewClient(dir).Sinks(t.Context())
	require.ErrorContains(t, err, "start it by 'auditrelay run --config FILE'")
	_, err = console.NewClient(filepath.Join(dir, "none")).Sinks(t.Context())
	require.ErrorContains(t, err, "there is no data directory")
	whole, err := filepath.Abs("none")
	require.NoError(t, err)
	_, err = console.NewClient("./none").Sinks(t.Context())
	require.ErrorContains(t, err, "there is no data directory "+whole, "it depends on where the command runs")
}

// An answer without its last line is not taken for a whole one.
func TestAnAnswerThatIsCutOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "control.sock"))
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"item":{"sequence":1,"id":"x"}}` + "\n"))
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	count := 0
	err = console.NewClient(dir).Letters(t.Context(), console.ListLetters{}, func(*console.Letter) error { count++; return nil })
	require.ErrorContains(t, err, "the relay broke off before it had finished")
	assert.Equal(t, 1, count)
}

// As `auditrelay tap | less`, paused.
func TestAClientThatDoesNotReadHoldsUpNoStop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := console.Listen(t.Context(), dir, console.Options{
		Status: func(context.Context, ...string) map[string]any {
			return map[string]any{"long": strings.Repeat("x", 8<<20)}
		},
		Logger: slog.New(slog.DiscardHandler),
	}, func(err error) { t.Error(err) })
	require.NoError(t, err)
	client, err := net.Dial("unix", filepath.Join(dir, "control.sock"))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	_, err = client.Write([]byte("POST /v1/status HTTP/1.1\r\nHost: relay\r\nContent-Length: 2\r\n\r\n{}"))
	require.NoError(t, err)
	_, err = client.Read(make([]byte, 1)) // the answer has begun
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	assert.NoError(t, server.Close(ctx))
}
