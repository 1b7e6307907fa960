package cluster

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Two relays use the log whose end is lost, and they know different parts of it. Whoever notices the
// loss, in whatever order: what is acknowledged after it stays, and what was lost is named.
func TestTwoRelaysLoseTheEndOfALog(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second int    // how many records that are lost each of them appends
		read          bool   // each has read those of the other one
		what          string // is rolled back
	}{
		"both know all of it":                            {first: 20, read: true, what: "*_EVENTS"},
		"the second one knows nothing of it":             {first: 20, what: "*_EVENTS"},
		"the first one knows nothing of it":              {second: 20, what: "*_EVENTS"},
		"the first one knows nothing, with the table":    {second: 20, what: "*"},
		"the first one knows half of it":                 {first: 10, second: 10, what: "*_EVENTS"},
		"the first one knows half of it, with the table": {first: 10, second: 10, what: "*"},
		"the first one lacks little, with the table":     {first: 18, second: 2, what: "*"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startRestorable(t)
			b := newBackend(t, srv.srv.ClientURL(), 1)
			both := []*Log{b.log(t, "events"), b.another(t).log(t, "events")}
			stays := insist(t, both[0], 0, 10)
			know := func() {
				for _, l := range both {
					read(t, l, 1)
					require.NoError(t, l.store.table.Sync(t.Context()))
				}
			}
			know()
			srv.save()
			lost := merged(t, insist(t, both[0], 100, c.first), insist(t, both[1], 200, c.second))
			if c.read {
				know()
			}
			for _, l := range both {
				require.NoError(t, l.store.table.Sync(t.Context()))
			}
			srv.rollBack(c.what)
			want := slices.Collect(maps.Values(stays))
			for round := range 3 {
				for i, l := range both {
					want = slices.AppendSeq(want, maps.Values(insist(t, l, 1000*(i+1)+100*round, 5)))
				}
			}
			for _, l := range both {
				require.NoError(t, l.compare(t.Context()))
			}
			for _, l := range both {
				records, gaps := read(t, l, 1)
				assert.Subset(t, slices.Collect(maps.Values(records)), want)
				for pos := range lost {
					assert.True(t, slices.ContainsFunc(gaps, func(g store.Gap) bool { return g.From <= pos && pos <= g.To }), "position %d has no name", pos)
				}
			}
		})
	}
}
