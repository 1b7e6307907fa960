package workspace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
)

// An attestation says the resource was read: where no look succeeded, it would be untrue.
// The failures count in the next one.
func TestNothingIsAttestedWhereNothingWasRead(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	c := Checks{Trail: trail, Project: "p", Environment: "e", Subject: "checks", Type: "settings.checked"}
	c.Watch("rbac_policy", time.Minute)
	now := time.Now()
	for range 3 {
		c.Failed("rbac_policy")
		c.Round(now, now)
		require.NoError(t, c.Attest(t.Context(), 0))
	}
	require.Zero(t, trail.Size())
	c.Saw("rbac_policy", now, "hash", nil)
	c.Round(now, now)
	require.NoError(t, c.Attest(t.Context(), 0))
	e, found, err := trail.Last(t.Context(), "p", "e", "checks")
	require.NoError(t, err)
	require.True(t, found)
	check := CheckOf(e)
	assert.Equal(t, []int{4, 1, 3}, []int{check.Looks, check.Resources["rbac_policy"].Looks, check.Resources["rbac_policy"].Failures})
	c.Failed("rbac_policy")
	c.Round(now, now)
	require.NoError(t, c.Attest(t.Context(), 0))
	require.EqualValues(t, 1, trail.Size())
}
