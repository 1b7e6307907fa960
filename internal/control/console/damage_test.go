package console_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal"
)

// A command without a request of its own is understood, and another room's refusal is passed on.
func TestWithoutDamageNothingIsAccepted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	damage, err := s.Damage(t.Context())
	require.NoError(t, err)
	assert.Zero(t, damage.Records)
	_, err = s.AcceptDamage(t.Context())
	require.EqualError(t, err, journal.ErrNoDamage.Error())
	assert.Empty(t, s.losses)
}
