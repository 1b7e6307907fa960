package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/migration"
)

// The refusals of a migration stand in one order, so that two results can be compared.
func TestRefusalsAreSorted(t *testing.T) {
	t.Parallel()
	result := &migration.Result{Refusals: map[string]int{"e": 5, "d": 4, "c": 3, "b": 2, "a": 1}}
	for range 10 {
		var out strings.Builder
		require.NoError(t, show(&out, result, printMigrationResult))
		assert.Contains(t, out.String(), "1 refused as a\n2 refused as b\n3 refused as c\n4 refused as d\n5 refused as e\n")
	}
}
