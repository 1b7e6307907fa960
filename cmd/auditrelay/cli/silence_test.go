package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

func TestPrintsSilences(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	require.NoError(t, show(&out, []health.Silence{
		{ID: "00000001", Begun: at, Until: at.Add(time.Hour), Reason: "network\x1b[2J", Person: workspace.Person{User: "ann", Host: "desk"}},
		{ID: "00000002", Project: "shop", Environment: "live", Begun: at, Until: at.Add(2 * time.Hour), Reason: "upgrade, CHG-17", Person: workspace.Person{User: "bob", Host: "rack"}},
	}, printSilences))
	assert.NotContains(t, out.String(), "\x1b")
	assert.Equal(t, strings.TrimPrefix(`
ID        ENVIRONMENT  BEGUN                 UNTIL                 BY        REASON
00000002  shop/live    2026-11-22T12:00:00Z  2026-11-22T14:00:00Z  bob@rack  upgrade, CHG-17
`, "\n"), withoutLine(out.String(), "00000001"))
}

func withoutLine(text, part string) (rest string) {
	for line := range strings.Lines(text) {
		if !strings.Contains(line, part) {
			rest += line
		}
	}
	return rest
}

func TestSilenceNeedsALengthAndAReason(t *testing.T) {
	t.Parallel()
	for args, message := range map[string]string{
		"add shop/live --reason x":          "give --for",
		"add shop/live --for 1h":            "give --reason",
		"add shop/live --for 1w --reason x": "write a number with a unit, such as 30m, 2h or 7d",
		"add --for 1h --reason x":           "give PROJECT/ENVIRONMENT, or all",
		"add shop --for 1h --reason x":      "give PROJECT/ENVIRONMENT",
		"add all --for -1h --reason x":      "give --for",
		"add all --for tomorrow --reason x": "invalid argument",
		"end":                               "give the ID of one silence",
	} {
		cmd := Program{}.newRoot()
		cmd.SetArgs(append([]string{"silence"}, strings.Fields(args)...))
		require.ErrorContains(t, cmd.Execute(), message, args)
	}
}
