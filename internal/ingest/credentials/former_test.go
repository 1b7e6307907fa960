package credentials

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
)

// An environment that was taken out of the configuration is known by its credential, and
// accepted again once it is back.
func TestAFormerEnvironmentIsKnownByItsCredential(t *testing.T) {
	t.Parallel()
	table := newTable(t)
	s := open(t, table)
	issued, err := s.Prepare(t.Context(), live)
	require.NoError(t, err)
	require.NoError(t, s.Promote(t.Context(), live, issued.LastFour))
	_, ok := s.Former(issued.Username, issued.Password.Reveal())
	assert.False(t, ok, "it is configured")
	assert.Empty(t, s.Formers())
	s.Close()

	s = open(t, table, func(o *Options) {
		o.Environments = []config.Environment{{Project: test.Project, Environment: test.Environment}}
	})
	assert.False(t, accepts(s, issued), "it is not configured, so it is refused")
	assert.Equal(t, []Former{{Environment: live, LastFour: []string{issued.LastFour}}}, s.Formers())
	_, ok = s.Former(issued.Username, "a wrong password")
	assert.False(t, ok, "a stranger raises no alarm by a name")
	for range 2 {
		env, ok := s.Former(issued.Username, issued.Password.Reveal())
		assert.True(t, ok)
		assert.Equal(t, live, env)
	}
	assert.EqualValues(t, 2, s.Formers()[0].Pushes)
	assert.False(t, s.Formers()[0].LastPush.IsZero())
	s.Close()

	s = open(t, table)
	assert.True(t, accepts(s, issued))
	assert.Empty(t, s.Formers())
}
