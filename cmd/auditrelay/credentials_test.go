package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// A credential is rotated and revoked while the workspace pushes with it: pushes go on,
// and the trail tells.
func TestCredentialsFromTheCommandLine(t *testing.T) {
	s := newScene(t, 100)
	s.start(t)
	s.waitAcknowledged(t, 100)
	// The first look at every environment has been taken once each has a current one.
	waiting.Until(t, func() bool { return len(s.credentials(t)) == len(s.sim.Environments()) })
	first := s.credentials(t)[0]
	require.Equal(t, []string{credentials.KindGenerated, credentials.StateCurrent}, []string{first.Kind, first.State})
	name := first.Project + "/" + first.Environment

	said := s.command(t, true, "rotate", name)
	assert.Contains(t, said, "the credential of "+name+" is rotated")
	list := s.credentials(t)
	require.Equal(t, credentials.StateCurrent, list[0].State)
	require.NotEqual(t, first.LastFour, list[0].LastFour)
	require.Equal(t, []string{credentials.StateReplaced, first.LastFour}, []string{list[1].State, list[1].LastFour})

	assert.Contains(t, s.command(t, false, "revoke", "--", name, first.LastFour), "give --yes")
	assert.Contains(t, s.command(t, false, "revoke", "--yes", name, "none"), "has no generated credential ending in")
	assert.Contains(t, s.command(t, true, "revoke", "--yes", "--", name, first.LastFour), "is revoked")
	current := list[0].LastFour
	assert.Contains(t, s.command(t, true, "revoke", "--yes", "--reason", "CHG-19", "--", name, current), "a new one is set")
	for _, c := range s.credentials(t) {
		assert.NotContains(t, []string{first.LastFour, current}, c.LastFour)
	}
	s.waitAcknowledged(t, s.sim.Counts().Acknowledged+200)
	file := s.destinations[2]
	waiting.Until(t, func() bool {
		told := 0
		err := file.Read(t.Context(), func(_ string, body []byte) { told += strings.Count(string(body), "CHG-19") })
		return err == nil && told > 0
	}, "the trail does not tell")
	assert.Contains(t, s.command(t, false, "rotate", "no/such"), "no stream.relay")
	assert.Contains(t, s.command(t, true, "list"), "LAST FOUR")
}

// command runs one of the credentials commands.
func (s *scene) command(t *testing.T, succeeds bool, args ...string) string {
	t.Helper()
	all := append([]string{"credentials", args[0], "--config", s.config}, args[1:]...)
	out, err := exec.CommandContext(t.Context(), "auditrelay", all...).CombinedOutput()
	assert.Equal(t, succeeds, err == nil, "%v: %s", args, out)
	return string(out)
}

// credentials are the generated ones.
func (s *scene) credentials(t *testing.T) (list []credentials.Listed) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(s.command(t, true, "list", "--json")), &list))
	return list
}
