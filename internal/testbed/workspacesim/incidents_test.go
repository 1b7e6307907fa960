package workspacesim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIncidents(t *testing.T) {
	t.Parallel()
	s, err := New(Options{})
	require.NoError(t, err)
	e := s.Environments()[0]
	c, err := s.WeakenPasswords(e.Project, e.Environment)
	require.NoError(t, err)
	assert.JSONEq(t, `{"check_breach_on_creation":false,"check_breach_on_authentication":false,"validation_policy":"LUDS",
		"luds_min_password_length":6,"luds_min_password_complexity":1,
		"validate_on_authentication":`+map[bool]string{true: "true", false: "false"}[s.environments()[0].password.ValidateOnAuthentication]+`}`, string(c.After))
	c, err = s.PlantLink(e.Project, "phish.example.net")
	require.NoError(t, err)
	assert.NotContains(t, string(c.Before), "phish.example.net")
	assert.Contains(t, string(c.After), "phish.example.net")
	assert.Len(t, s.Changes(), 2)
	_, err = s.PlantLink("nowhere", "phish.example.net")
	require.ErrorContains(t, err, `there is no project "nowhere"`)
	_, err = s.WeakenPasswords(e.Project, "nowhere")
	require.ErrorContains(t, err, `there is no environment "nowhere"`)
}
