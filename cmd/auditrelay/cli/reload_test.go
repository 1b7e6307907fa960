package cli

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
)

// What is printed never says that an edit would be applied that would not be.
func TestReloadsAreShown(t *testing.T) {
	t.Parallel()
	live, restart := config.Change{Field: "log.level", Old: "info", New: "debug", Rule: config.Live}, config.Change{Field: "data_dir", Rule: config.Restart, Reason: "the folder is locked"}
	for want, done := range map[string]console.Reloaded{
		"the relay runs with this configuration already":         {DryRun: true},
		"'auditrelay reload' would apply it":                     {DryRun: true, Changes: []config.Change{live}},
		"1 of the changes takes a restart":                       {Changes: []config.Change{live, restart}},
		"2 of the changes take a restart":                        {Changes: []config.Change{restart, restart}},
		"sinks[new]: it begins with the oldest event":            {Applied: true, Changes: []config.Change{live, {Field: "sinks[new]", New: "x", Rule: config.Live, Reason: "it begins with the oldest event"}}},
		"by a restart: the folder is locked":                     {DryRun: true, Changes: []config.Change{live, restart}},
		"would refuse it, and apply nothing: there is no ca.crt": {DryRun: true, Changes: []config.Change{live}, Refused: "there is no ca.crt"},
		"the relay runs with the edited configuration":           {Applied: true, Changes: []config.Change{live}},
	} {
		var out strings.Builder
		require.NoError(t, show(&out, done, printReloaded))
		assert.Contains(t, out.String(), want)
		assert.Equal(t, want == "'auditrelay reload' would apply it", strings.Contains(out.String(), "would apply it"), out.String())
	}
}

// A reload tells of what is new, and not again of what the relay has run with.
func TestWeaknessesAreToldOnce(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	weak := &weaknesses{log: slog.New(slog.NewTextHandler(&log, nil))}
	old, fresh := config.Problem{Line: 3, Field: "ingest.listen", Reason: "anybody can"}, config.Problem{Line: 9, Field: "sinks[0].loki.url", Reason: "it is plain"}
	old.Reason = "3762MiB are left, and anybody can"
	moved := old
	moved.Line, moved.Reason = 4, "3761MiB are left, and anybody can"
	for _, loaded := range [][]config.Problem{{old}, {old, fresh}, {moved, fresh}, {fresh}, {fresh}, {old, fresh}} {
		weak.tell(loaded)
	}
	assert.Equal(t, 2, strings.Count(log.String(), "anybody can"), "it was away in between")
	assert.Equal(t, 1, strings.Count(log.String(), "it is plain"))
}
