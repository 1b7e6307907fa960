package cli

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// asked plays an interview whose answers are lines.
func asked(t *testing.T, answers ...string) (*interview, string, error) {
	t.Helper()
	return askedUnseen(t, []string{"typed-and-not-shown"}, answers...)
}

// askedUnseen is asked, with the secrets that are typed without being shown.
func askedUnseen(t *testing.T, secrets []string, answers ...string) (*interview, string, error) {
	t.Helper()
	in := bufio.NewReader(strings.NewReader(strings.Join(answers, "\n") + "\n"))
	var out strings.Builder
	i := &interview{
		file: filepath.Join(t.TempDir(), "relay.yaml"), out: &out,
		line: func() (string, error) { return in.ReadString('\n') },
		unseen: func(string) (typed string, err error) {
			typed, secrets = secrets[0], secrets[1:]
			return typed, nil
		},
	}
	err := i.run()
	return i, out.String(), err
}

// Each answer is held against the checks at once, and what comes out passes them all.
func TestAnswersAreChecked(t *testing.T) {
	t.Parallel()
	cert := filepath.Join(t.TempDir(), "none.crt")
	i, out, err := asked(t,
		"relay-data",
		"", "http://management.example.com", "https://management.example.com",
		"workspace-key-live-1", "a-secret-in-the-wrong-place", "file:"+cert, "KEY_SECRET",
		"my project", "my-project", "production", "y", "", "production", "staging", "n",
		"https://relay.example.com", "relay.example.com", cert, "", "127.0.0.1:port", "",
		"0.0.0.0:80", "-",
		"disk", "", "", "", "kafka", "kafka-1", "kafka-1:9092, kafka-2:9092", "auth.{env}", "auth.{environment}", "archive", "", "")
	require.NoError(t, err, out)
	for _, reason := range []string{
		"is required", "must be https", "that is neither of them", "there is no such file", "must be a slug",
		"is given at environments[0] already", "must be a host name alone", "must be IP:PORT", "is reachable from outside without TLS", "it is one of file, kafka",
		"must be HOST:PORT", "may hold no other placeholders", "is the name of sinks[0] already",
	} {
		assert.Contains(t, out, reason)
	}
	assert.NotContains(t, out, "a-secret-in-the-wrong-place")
	cfg, warnings, err := config.Kinds{}.CheckText(i.file, i.draft.text(), orSetLater)
	require.NoError(t, err, string(i.draft.text()))
	assert.Empty(t, apartFromTheDisk(warnings))
	assert.Len(t, cfg.Environments, 2)
	assert.Equal(t, "relay.example.com", cfg.Environments[1].Stream.Relay.Hostname)
	assert.True(t, cfg.Ingest.BehindProxy)
	assert.Empty(t, cfg.Console.Listen)
	assert.Equal(t, []string{"kafka-1:9092", "kafka-2:9092"}, cfg.Sinks[1].Kafka.Brokers)
	assert.Contains(t, string(i.draft.text()), "secret: ${KEY_SECRET}\n")
}

// Every kind of destination can be answered, and no text turns into something else.
func TestEveryDestinationCanBeAnswered(t *testing.T) {
	t.Parallel()
	answers := map[string][]string{
		"file": {""}, "kafka": {"k:9092", ""}, "nats": {"nats://n:4222", ""}, "loki": {"https://l.example.com/loki/api/v1/push"},
		"datadog": {"", ""}, "webhook": {"https://w.example.com/hook", ""},
	}
	given := []string{"", "http://127.0.0.1:8099", "key #1", "", "0", "no", "n", "127.0.0.1:3101", ""}
	for _, kind := range sinkKinds {
		given = append(append(append(given, kind), answers[kind]...), "")
	}
	i, out, err := asked(t, append(given, "")...)
	require.NoError(t, err, out)
	cfg, _, err := config.Kinds{}.CheckText(i.file, i.draft.text(), orSetLater)
	require.NoError(t, err, string(i.draft.text()))
	assert.Len(t, cfg.Sinks, len(sinkKinds), out)
	assert.Equal(t, "key #1", cfg.Workspace.KeyID)
	assert.Equal(t, "127.0.0.1:3101", cfg.Ingest.Listen)
	assert.Equal(t, "no", cfg.Environments[0].Environment)
	_, _, err = asked(t, "relay-data", "https://management.example.com")
	require.ErrorIs(t, err, errNothingWritten, "the input ended")
}

// apartFromTheDisk leaves out what is said of a disk that has less room than the journal may take: the
// disk of a test may be small.
func apartFromTheDisk(warnings []config.Problem) []config.Problem {
	return slices.DeleteFunc(warnings, func(p config.Problem) bool { return p.Field == "journal.max_bytes" })
}

// What a person types by mistake is asked again, and none of it is taken for something else.
func TestOddAnswers(t *testing.T) {
	t.Parallel()
	i, out, err := asked(t,
		"~/relay", "caf\xe9", "my\u200bdata", "relay data", // whatever has no picture is no answer
		"http://127.0.0.1:8099/pwa/v3", "key-1\x1b[D", "key-1", "${KEY_SECRET}",
		"münchen", "live", "maybe", "YES", "", "test", "No",
		"rélay.example.com", "relay.example.com:443", "https://relay.example.com/loki", "relay.example.com/", "localhost:3100", "-",
		"", "~/events.jsonl", "", "", "")
	require.NoError(t, err, out)
	assert.Equal(t, 3, strings.Count(out, "a character that cannot be seen"), out)
	assert.Equal(t, 1, strings.Count(out, "it is y or n"), out)
	assert.Equal(t, 2, strings.Count(out, "write the whole path"), out)
	cfg, warnings, err := config.Kinds{}.CheckText(i.file, i.draft.text(), orSetLater)
	require.NoError(t, err, string(i.draft.text()))
	assert.Empty(t, apartFromTheDisk(warnings))
	assert.Equal(t, "relay data", cfg.DataDir)
	assert.Equal(t, "key-1", cfg.Workspace.KeyID)
	assert.Contains(t, string(i.draft.text()), "secret: ${KEY_SECRET}\n")
	require.Len(t, cfg.Environments, 2)
	assert.Equal(t, "münchen", cfg.Environments[1].Project)
	assert.Equal(t, "localhost:3100", cfg.Ingest.Listen)
	assert.Equal(t, "relay data/archive/events.jsonl", cfg.Sinks[0].File.Path)
}

// A typed secret that is refused is typed again, and each destination has a file for its own.
func TestRefusedSecretsAreTypedAgain(t *testing.T) {
	t.Parallel()
	secrets := []string{"of-the-workspace", "whsec_short", "whsec_" + strings.Repeat("YWJj", 8), "of-another-webhook-with-some-length"}
	i, out, err := askedUnseen(t, secrets, "", "http://127.0.0.1:8099", "key-1", "-", "shop", "live", "", "", "-",
		"webhook", "https://one.example.com", "-", "-", "", "webhook", "https://two.example.com", "-", "two", "")
	require.NoError(t, err, out)
	assert.Contains(t, out, "must have 24 to 64 bytes")
	cfg, _, err := config.Kinds{}.CheckText(i.file, i.draft.text(), orSetLater)
	require.NoError(t, err, string(i.draft.text()))
	assert.Equal(t, secrets[2], cfg.Sinks[0].Webhook.Secret.Reveal())
	assert.Equal(t, secrets[3], cfg.Sinks[1].Webhook.Secret.Reveal())
	files, err := filepath.Glob(filepath.Join(filepath.Dir(i.file), "*secret*"))
	require.NoError(t, err)
	assert.ElementsMatch(t, i.made, files, "a refused secret is left behind")
}

// interviewed plays the interview on a terminal. The question for the secret is answered with
// these keys, and more questions may follow. It returns the file and what came of it.
func interviewed(t *testing.T, x *terminal, secret string, more ...[2]string) (file string, err error) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "relay.yaml")
	done := make(chan error, 1)
	go func() { done <- Program{}.interviewAt(t.Context(), x.tty, x.tty, file, false) }()
	for _, step := range append([][2]string{
		{"data, on a local disk", filepath.Join(t.TempDir(), "data\n")},
		{"Management API", "http://127.0.0.1:8099\n"},
		{"management key", "key-1\n"},
		{"Where is it", "-\n"},
		{"not shown: ", secret},
	}, more...) {
		waiting.Until(t, func() bool { return strings.Contains(x.text(), step[0]) }, "it does not ask %q", step[0])
		_, err := x.keyboard.WriteString(step[1])
		require.NoError(t, err)
	}
	return file, <-done
}

// On a terminal a typed secret is not shown, and is kept in a file that its owner alone can read.
func TestInitAsksOnATerminal(t *testing.T) {
	t.Parallel()
	x := newTerminal(t, 200, 50)
	file, err := interviewed(t, x, "hunter2-of-some-length\n",
		[2]string{"Slug of a project", "shop\n"}, [2]string{"one of its environments", "live\n"}, [2]string{"y or n", "\n"},
		[2]string{"Host name", "\n"}, [2]string{"in the browser", "\n"}, [2]string{"First destination", "-\n"})
	require.NoError(t, err)
	waiting.Until(t, func() bool { return strings.Contains(x.text(), "auditrelay run --config "+file) })
	assert.NotContains(t, x.text(), "hunter2")
	cfg, _, err := config.Kinds{}.Check(file)
	require.NoError(t, err)
	assert.Equal(t, "hunter2-of-some-length", cfg.Workspace.Secret.Reveal())
	info, err := os.Stat(filepath.Join(filepath.Dir(file), "workspace_key_secret"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	schema, err := os.ReadFile(filepath.Join(filepath.Dir(file), schemaFile))
	require.NoError(t, err)
	assert.Equal(t, config.Schema(), schema)
	require.ErrorContains(t, Program{}.interviewAt(t.Context(), x.tty, x.tty, file, false), "exists; give --force")
}

// A person answers everything only where the answers can be kept.
func TestInitTriesItsFolderFirst(t *testing.T) {
	t.Parallel()
	x := newTerminal(t, 200, 50)
	err := Program{}.interviewAt(t.Context(), x.tty, x.tty, filepath.Join(t.TempDir(), "missing", "relay.yaml"), false)
	require.ErrorContains(t, err, "nothing can be written in the folder")
	assert.Empty(t, x.text(), "it has asked something")
}

// Ctrl-D at a question ends them, and no file remains: not even a secret that was typed.
func TestCtrlDAtAQuestion(t *testing.T) {
	t.Parallel()
	x := newTerminal(t, 200, 50)
	file, err := interviewed(t, x, "hunter2-of-some-length\n", [2]string{"Slug of a project", "\x04"})
	require.ErrorIs(t, err, errNothingWritten)
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// Ctrl-C at a secret ends the questions, and leaves the terminal as it was.
func TestCtrlCAtASecret(t *testing.T) {
	t.Parallel()
	x := newTerminal(t, 200, 50)
	file, err := interviewed(t, x, "half a sec\x03")
	require.ErrorIs(t, err, errNothingWritten)
	assert.NotContains(t, x.text(), "half a sec")
	assert.NoFileExists(t, file)
	_, err = x.keyboard.WriteString("shown again")
	require.NoError(t, err)
	waiting.Until(t, func() bool { return strings.Contains(x.text(), "shown again") }, "the terminal shows nothing")
}
