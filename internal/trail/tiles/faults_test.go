package tiles

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Several files at once are lost, altered, cut off or put back to an older state, the checkpoint and the
// history often among them. A keeper writes all of them again.
func TestSeveralFaultsAtOnceAreMended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 300)
		h.run()
		dir := h.store.Log(0).dir
		older := files(t, dir)
		var more []audit.Entry
		for i := range 320 {
			more = append(more, entry(300+i))
		}
		h.add(append(more, long(620))...)
		h.run()
		good := files(t, dir)
		names := slices.Sorted(maps.Keys(good))
		for _, seed := range trailtest.Seeds(t, 25) {
			r := rand.New(rand.NewPCG(seed, 7))
			all, done := maps.Clone(good), ""
			for range 2 + r.IntN(2) {
				name := names[r.IntN(len(names))]
				if r.IntN(2) == 0 {
					name = []string{proof.CheckpointFile, proof.HistoryFile}[r.IntN(2)]
				}
				before, was := older[name]
				switch kind := r.IntN(5); {
				case kind == 0:
					delete(all, name)
				case kind == 1:
					all[name] = flip(good[name])
				case kind == 2:
					all[name] = good[name][:len(good[name])/2]
				case kind == 3 && was:
					all[name] = before
				default:
					all[name] = ""
				}
				done += fmt.Sprintf(" %s has %d bytes;", name, len(all[name]))
			}
			t.Logf("seed %d:%s", seed, done)
			put(t, dir, all)
			h.keepUntil(func() bool { return maps.Equal(good, files(t, dir)) })
		}
	})
}
