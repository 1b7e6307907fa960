package file

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// Lines that are bodies alone are repaired after a crash like the others, even if the torn line
// has the form used before.
func TestBodiesAlone(t *testing.T) {
	t.Parallel()
	const start = `{"metadata":{"version":`
	events := []relay.Event{{Body: []byte(start + `1}}`)}, {Body: []byte(start + `2}}`)}}
	whole := start + "1}}\n"
	before := AppendLine(nil, &relaytest.Events(1)[0])
	for _, torn := range []string{"", "{", start, start + "2", string(before[:1]), string(before[:len(before)-1])} {
		path := filepath.Join(t.TempDir(), "events.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(whole+torn), 0o600))
		s := New(config.File{Path: path}, Options{Bodies: true, BodyStart: start})
		require.NoError(t, s.Deliver(t.Context(), events[1:]), torn)
		require.NoError(t, s.Close())
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, whole+start+"2}}\n", string(text))
	}
	path := filepath.Join(t.TempDir(), "events.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(whole+start), 0o600))
	s := New(config.File{Path: path}, Options{BodyStart: start})
	require.NoError(t, s.Deliver(t.Context(), relaytest.Events(1)), "the form was changed back")
	require.NoError(t, s.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, whole+string(before), string(text))
	for _, foreign := range []string{"dear diary", `{"meta"`, `{"specversion":"0`} {
		path := filepath.Join(t.TempDir(), "notes")
		require.NoError(t, os.WriteFile(path, []byte(foreign), 0o600))
		s := New(config.File{Path: path}, Options{Bodies: true, BodyStart: start})
		require.ErrorContains(t, s.Deliver(t.Context(), events), "this sink did not write it")
		require.NoError(t, s.Close())
	}
}
