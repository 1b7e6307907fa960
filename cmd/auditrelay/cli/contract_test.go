package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/cmd/auditrelay/cli"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
	"github.com/auditrelay/auditrelay/sinks"
)

// server is an inbox with faults on command.
type server struct {
	mu            sync.Mutex // guards the fields below
	arrived       []relaytest.Arrival
	refused       []string
	down, stalled bool
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	down, stalled := s.down, s.stalled
	s.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler) // hangs up
	}
	var entries []relaytest.Arrival
	for body := json.NewDecoder(r.Body); ; {
		var entry Entry
		err := body.Decode(&entry)
		if err == io.EOF { //nolint:errorlint // the decoder's own
			break
		}
		if err != nil {
			return // the sink has given up
		}
		entries = append(entries, relaytest.Arrival{ID: entry.Attributes["id"], Body: entry.Body, Attributes: entry.Attributes})
	}
	if stalled {
		<-r.Context().Done()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(entries, func(a relaytest.Arrival) bool { return slices.Contains(s.refused, a.ID) }) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	s.arrived = append(s.arrived, entries...)
	w.WriteHeader(http.StatusNoContent)
}

// The sink of the example holds to the contract of every sink.
func TestContract(t *testing.T) {
	t.Parallel()
	const token = "inbox-token-7q2"
	relaytest.Run(t, relaytest.Harness{New: func(t *testing.T) relaytest.Destination {
		s := &server{}
		listening := httptest.NewServer(s)
		t.Cleanup(listening.Close)
		section := &Inbox{URL: listening.URL, Token: secret.New(token)}
		section.SetDefaults()
		require.Empty(t, section.Problems())
		sink, err := OpenInbox(section, sinks.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = sink.Close() })
		return relaytest.Destination{
			Sink: sink, Secrets: []string{token},
			Arrived: func() (all []relaytest.Arrival) { s.set(func() { all = slices.Clone(s.arrived) }); return all },
			Down:    func() { s.set(func() { s.down = true }) },
			Up:      func() { s.set(func() { s.down = false }) },
			Stall:   func() { s.set(func() { s.stalled = true }) },
			Refuse:  func(e *relay.Event) { s.set(func() { s.refused = append(s.refused, e.ID) }) },
		}
	}})
}

// The commands know the section of a program's own kind, and only its program does.
func TestCommandsKnowTheKinds(t *testing.T) {
	t.Parallel()
	program := cli.Program{Kinds: sinks.Kinds{sinks.NewKind("inbox", OpenInbox)}}
	file := filepath.Join(t.TempDir(), "relay.yaml")
	const text = `data_dir: %s/data
environments: [{project: shop, environment: live, credentials: [{username: u, password: "file:%s/password"}]}]
sinks: [{name: mine, inbox: {url: "http://127.0.0.1:1", WAIT: 2s}}]
journal: {max_bytes: 100MiB}
`
	dir := filepath.Dir(file)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "password"), []byte("a-password-of-some-length"), 0o600))
	run := func(p cli.Program, field string, args ...string) (code int, out string) {
		source := strings.ReplaceAll(strings.ReplaceAll(text, "%s", dir), "WAIT", field)
		require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
		var printed strings.Builder
		code = p.Execute(t.Context(), append(args, "--config", file), &printed, &printed)
		return code, printed.String()
	}
	code, out := run(program, "wait", "config", "check")
	assert.Equal(t, cli.ExitOK, code, out)
	code, out = run(program, "wiat", "config", "check")
	assert.Equal(t, cli.ExitFailure, code)
	assert.Contains(t, out, "sinks[0].inbox.wiat  unknown field; did you mean wait?")
	code, out = run(cli.Program{}, "wait", "config", "check")
	assert.Equal(t, cli.ExitFailure, code)
	assert.Contains(t, out, "sinks[0].inbox  unknown field; the fields here are name, ")
	code, out = run(program, "wait", "sinks", "check")
	assert.Equal(t, cli.ExitOK, code, out)
	assert.Contains(t, out, "this kind of sink cannot be checked without a delivery")
}
