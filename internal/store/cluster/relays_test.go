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
// loss, in whatever order: what is acknowledged after it stays, at positions after those that were
// given out before, and what was lost is named.
func TestTwoRelaysLoseTheEndOfALog(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second int    // how many records that are lost each of them appends
		read          bool   // each has read those of the other one
		what          string // is rolled back
		down          int    // the second one is down then, and starts again after so many records of the first one
		told          bool   // the table says by then how far the first one has come
	}{
		"both know all of it":                            {first: 20, read: true, what: "*_EVENTS"},
		"the second one knows nothing of it":             {first: 20, what: "*_EVENTS"},
		"the first one knows nothing of it":              {second: 20, what: "*_EVENTS"},
		"the first one knows nothing, with the table":    {second: 20, what: "*"},
		"the first one knows half of it":                 {first: 10, second: 10, what: "*_EVENTS"},
		"the first one knows half of it, with the table": {first: 10, second: 10, what: "*"},
		"the first one lacks little, with the table":     {first: 18, second: 2, what: "*"},
		"the second one starts before it is overtaken":   {second: 20, what: "*_EVENTS", down: 5},
		"the second one starts after it is overtaken":    {second: 20, what: "*_EVENTS", down: 35},
		"the second one starts late, with the table":     {second: 20, what: "*", down: 35},
		"the second one lost one record, and is told":    {second: 1, what: "*_EVENTS", down: 35, told: true},
		"the second one lost some records, and is told":  {second: 20, what: "*_EVENTS", down: 35, told: true},
		"the second one starts very late, and is told":   {second: 20, what: "*_EVENTS", down: ringSize + 40, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startRestorable(t)
			b := newBackend(t, srv.srv.ClientURL(), 1)
			second := b.another(t)
			both := []*Log{b.log(t, "events"), second.log(t, "events")}
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
			if c.down > 0 {
				second.kill()
			}
			srv.rollBack(c.what)
			early := slices.Collect(maps.Values(stays))
			newest := slices.Max(slices.Collect(maps.Keys(lost)))
			want := slices.Clone(early)
			if c.down > 0 {
				want = slices.AppendSeq(want, maps.Values(insist(t, both[0], 5000, c.down)))
				if c.told {
					require.NoError(t, both[0].store.table.Sync(t.Context()))
				}
				second.open(t)
				both[1] = second.log(t, "events")
			}
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
				for pos, text := range records {
					assert.False(t, !slices.Contains(early, text) && pos <= newest, "%s at %d: a sink that has had %d passes it over", text, pos, newest)
				}
				for pos := range lost {
					assert.True(t, slices.ContainsFunc(gaps, func(g store.Gap) bool { return g.From <= pos && pos <= g.To }), "position %d has no name", pos)
				}
			}
		})
	}
}
