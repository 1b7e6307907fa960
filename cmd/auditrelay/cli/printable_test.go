package cli

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// Text of the workspace cannot steer the terminal, in any form of output, and programs get
// it unchanged.
func TestHostileTextIsPrintedHarmlessly(t *testing.T) {
	t.Parallel()
	hostile := "a\x1b[2J\u202e\u200b\u2028\x7f\u0085\U000e0041\n: z"
	state, err := json.Marshal(map[string]any{"name": hostile, "list": []string{hostile}})
	require.NoError(t, err)
	raw := strings.NewReplacer(`\u2028`, "\u2028").Replace(string(state)) // a server need not escape it
	for _, form := range []string{"table", "json", "yaml"} {
		var out strings.Builder
		require.NoError(t, printOutcome(&out, form, workspace.Outcome{Result: json.RawMessage(raw)}))
		for _, r := range out.String() {
			require.False(t, plaintext.SteersLines(r), "%s: %q in %q", form, r, out.String())
		}
		var back map[string]any
		switch form {
		case "json":
			var whole struct{ Result map[string]any }
			require.NoError(t, json.Unmarshal([]byte(out.String()), &whole))
			require.Equal(t, hostile, whole.Result["name"])
		case "yaml":
			require.NoError(t, yaml.Unmarshal([]byte(out.String()), &back))
			require.Equal(t, hostile, back["name"])
		}
	}
	var out strings.Builder
	require.NoError(t, printOutcome(&out, "yaml", workspace.Outcome{Result: json.RawMessage(`{"name":"plain"}`)}))
	require.Equal(t, "name: plain\n", out.String())
}

// What a command writes as JSON lines is the same value at a terminal, in whatever pieces it is
// written.
func TestAnExportAtATerminalIsHarmless(t *testing.T) {
	t.Parallel()
	text := "{\"a\":\"\u009b31m é \u202e\U000e0041 漢\"}\n{\"b\":\"\x7f\"}\n"
	for size := range len(text) {
		var out strings.Builder
		w := &inertWriter{to: &out}
		for piece := range slices.Chunk([]byte(text), size+1) {
			n, err := w.Write(piece)
			require.NoError(t, err)
			require.Len(t, piece, n)
		}
		require.Equal(t, "{\"a\":\"\\u009b31m é \\u202e\\udb40\\udc41 漢\"}\n{\"b\":\"\\u007f\"}\n", out.String())
	}
}

// A command that fails before it writes anything can be given again.
func TestAFailedExportLeavesNoEmptyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "export.jsonl")
	failed := errors.New("no answer")
	require.ErrorIs(t, writeTo(path, io.Discard, func(io.Writer) error { return failed }), failed)
	require.NoFileExists(t, path)
	require.ErrorIs(t, writeTo(path, io.Discard, func(w io.Writer) error {
		_, err := io.WriteString(w, "a part")
		return errors.Join(err, failed)
	}), failed)
	require.FileExists(t, path)
}

// A peer that is being asked cannot steer the terminal by its answer, as by the words of its status.
func TestHostileErrorsArePrintedHarmlessly(t *testing.T) {
	t.Parallel()
	peer, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = peer.Close() })
	go func() {
		for {
			conn, err := peer.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 503 bad\x1b[2Jreason\r\nContent-Length: 9\r\nConnection: close\r\n\r\n\x1b]0;x\x07\u202e")
			_ = conn.Close()
		}
	}()
	for _, command := range []string{"healthcheck --url", "trail prove 3 --dir none --url"} {
		var stderr strings.Builder
		assert.Equal(t, ExitFailure, Program{}.Execute(t.Context(), append(strings.Fields(command), "http://"+peer.Addr().String()+"/"), io.Discard, &stderr))
		assert.Contains(t, stderr.String(), "503 bad·[2Jreason", command)
		assert.False(t, strings.ContainsFunc(stderr.String(), plaintext.SteersLines), "%s: %q", command, stderr.String())
	}
}
