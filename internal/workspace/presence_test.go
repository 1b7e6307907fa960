package workspace

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// The end of a known environment is an entry, in another process too. One never seen is a
// slip in the configuration, and no entry.
func TestOnlyASeenEnvironmentCanGo(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	_, err := trail.Append(t.Context(), audit.Entry{Type: "settings.baseline", Project: "p", Environment: "seen", Subject: "rbac_policy", Time: time.Now()})
	require.NoError(t, err)
	var logs bytes.Buffer
	absence := &management.Absence{}
	for range 2 {
		p := NewPresence(trail, slog.New(slog.NewTextHandler(&logs, nil)))
		for range 2 {
			require.NoError(t, p.Gone(t.Context(), "p", "seen", absence))
			require.NoError(t, p.Gone(t.Context(), "p", "never", absence))
		}
	}
	require.Equal(t, 2, strings.Count(logs.String(), "check its project and environment slugs"), "once in each process")
	_, found, err := trail.Last(t.Context(), "p", "never", SubjectEnvironment)
	require.NoError(t, err)
	require.False(t, found)
	require.EqualValues(t, 2, trail.Size())
	p := NewPresence(trail, slog.New(slog.DiscardHandler))
	require.NoError(t, p.Present(t.Context(), "p", "never", "r"), "somebody has made it")
	require.NoError(t, p.Present(t.Context(), "p", "seen", "r"))
	last, _, err := trail.Last(t.Context(), "p", "seen", SubjectEnvironment)
	require.NoError(t, err)
	require.Equal(t, TypeBack, last.Type)
	require.EqualValues(t, 3, trail.Size())
}
