package timeline

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// Rows in stretches of few names, with clocks that go back and forth, and with holes: what is found
// is what is found by looking at each row.
func TestAFilterMissesNothing(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(23, 2))
	const n = 12*blockRows + 31
	x := Open(Options{Path: filepath.Join(t.TempDir(), FileName)})
	require.NoError(t, x.create())
	t.Cleanup(x.closeFile)
	name := func(of string, i, most int) string { return fmt.Sprint(of, "-", (i/200*7+random.IntN(2))%most) }
	for i := range n {
		if random.IntN(50) == 0 || i/blockRows == 5 {
			continue
		}
		detail, err := json.Marshal(told{
			Summary: fmt.Sprint("change ", i), Severity: severities[i/300%len(severities)], Direction: directions[i/500%len(directions)],
			Cause: name("cause", i, 3), Actor: name("actor", i, 40),
		})
		require.NoError(t, err)
		require.NoError(t, x.take(audit.Recorded{Entry: audit.Entry{
			Index: int64(i), Type: name("settings.kind", i, 9), Project: name("project", i, 5), Environment: fmt.Sprint("env-", i*i%1500),
			Subject: name("setting", i, 12), Time: start.Add(time.Duration(i+random.IntN(400)) * time.Minute), Detail: detail,
		}}))
	}
	require.NoError(t, x.flush())
	found := 0
	for range 500 {
		of := x.rows.show(int64(random.IntN(n)))
		f := Filter{Environment: of.Environment} // of a missing row none
		for range 1 + random.IntN(3) {
			switch random.IntN(8) {
			case 0:
				f.Type, f.Cause = of.Type, of.Cause
			case 1:
				f.Project, f.Environment = "*"+strings.TrimPrefix(of.Project, "project"), ""
			case 2:
				f.Environment = fmt.Sprint("env-", random.IntN(1500))
			case 3:
				f.Setting, f.Without = of.Setting, "settings.kind-1"
			case 4:
				f.Actor, f.Environment = of.Actor, ""
			case 5:
				f.Severity, f.Direction, f.Environment = of.Severity, []string{"", of.Direction}[random.IntN(2)], ""
			case 6:
				f.Since, f.Until, f.Environment = of.Time, of.Time.Add(time.Duration(random.IntN(1000))*time.Minute), ""
			case 7:
				f.From, f.Before = new(of.Index-50), new(of.Index+700)
			}
		}
		m := f.matcher(&x.rows)
		var want []int64
		for index := m.from; index < m.before; index++ {
			if index >= 0 && m.matches(index) {
				want = append(want, index)
			}
		}
		all, err := x.reading().chosen(t.Context(), f)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(want), fmt.Sprint(all), "%+v", f)
		f.Limit = 7
		newest, err := x.reading().chosen(t.Context(), f)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(want[max(0, len(want)-7):]), fmt.Sprint(newest), "%+v", f)
		found += len(want)
	}
	require.NotZero(t, found)
}

// Questions are answered while the keeper adds to a block that is half full: each finds at least what
// was there when it was asked.
func TestQuestionsWhileTheKeeperAdds(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	const n = blockRows + 40
	var adding sync.WaitGroup
	adding.Go(func() {
		for i := range n {
			if _, err := trail.Append(t.Context(), change(i, 8, 12)); !assert.NoError(t, err) {
				return
			}
		}
	})
	for found := 0; found < n && !t.Failed(); {
		before := int(trail.Size())
		rows := list(t, v, Filter{Text: "LUDS", Environment: "live", Severity: "low"})
		require.GreaterOrEqual(t, len(rows), before)
		_, err := v.Settings(t.Context(), Filter{Environment: "live"})
		require.NoError(t, err)
		found = len(rows)
	}
	adding.Wait()
}
