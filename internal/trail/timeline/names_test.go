package timeline

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// Names longer than the index keeps them, which differ at their ends alone, and names that look like the short forms of
// others, are told from each other, before a restart and after it. The index keeps little of them.
func TestLongNamesAreBoundedAndToldApart(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	path := filepath.Join(t.TempDir(), FileName)
	long := strings.Repeat("W", 300)
	names := []string{long + "a", long + "b", long[:len(long)-2], ShortName(long + "a"), ShortName(ShortName(long + "a")), "…#" + long, "live", strings.Repeat("x", maxName)}
	for i, name := range names {
		add(t, trail, audit.Entry{Type: "settings.changed", Project: name, Environment: name, Subject: name, Time: at(i), After: policy(i)})
	}
	for range 2 {
		v, stop := keep(t, path, trail)
		kept := map[string]bool{}
		for i, name := range names {
			rows := list(t, v, Filter{Project: name, Environment: name, Setting: name})
			assert.Contains(t, indices(rows), int64(i), "found by its whole name")
			own := list(t, v, Filter{Index: new(int64(i))})[0].Environment
			assert.LessOrEqual(t, len(own), maxName)
			assert.False(t, kept[own], "it is the name of an entry before")
			kept[own] = true
			if len(name) > maxName {
				assert.Equal(t, []int64{int64(i)}, indices(rows), "and alone")
			}
			require.NoError(t, v.Entries(t.Context(), Filter{Index: new(int64(i))}, func(e Entry) error {
				assert.True(t, e.Project == name && e.Environment == name && e.Setting == name, "the whole name is lost")
				return nil
			}))
		}
		settings, err := v.Settings(t.Context(), Filter{})
		require.NoError(t, err)
		assert.Len(t, settings, len(names))
		stop()
	}
}

// However long, the names and sentences of entries that wait to be written take little memory.
func TestWaitingRowsAreSmall(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("W", 1<<20)
	l := lineOf(audit.Recorded{Entry: audit.Entry{
		Type: long, Project: long, Environment: long, Subject: long,
		Detail: fmt.Appendf(nil, `{"summary":%q,"cause":%q,"actor":%q,"statements":[{"sentence":%q},{"sentence":%q}]}`, long, long, long, long, long),
	}})
	size := len(strings.Join(l.names[:], "")) + len(l.text)
	assert.LessOrEqual(t, size, 6*maxName+maxSummary+1+maxFurther)
	assert.Equal(t, "…", bounded(strings.Repeat("\x80", maxName), startOfName), "of a text that is none, nothing is kept")
}
