package cli

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// A follower goes on after an absence of the relay, longer than one attempt: it lists each
// entry once, those made meanwhile too, however many, and tells of the absence twice.
func TestFollowingGoesOnAfterAnAbsence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trail := trailtest.New(t)
	made := 0
	add := func(n int) {
		for range n {
			e := scaleEntry(made)
			_, err := trail.Append(t.Context(), e)
			require.NoError(t, err)
			made++
		}
	}
	for _, filter := range [][]string{{"--limit", "2"}, {"--limit", "2", "--text", "by change"}} {
		add(1)
		before := made
		stop := serveTrail(t, trail, dir)
		ctx, cancel := context.WithCancel(t.Context())
		var out, told waiting.Output
		ended := make(chan int, 1)
		go func() {
			ended <- Program{}.Execute(ctx, append([]string{"trail", "list", "--follow", "--output", "json", "--data-dir", dir}, filter...), &out, &told)
		}()
		waiting.Until(t, func() bool { return strings.Contains(out.String(), "index") }, "nothing is listed")
		add(1)
		waiting.Until(t, func() bool { return strings.Contains(out.String(), `"index":`+strconv.Itoa(made-1)) }, "a new entry is not listed")
		stop()
		waiting.Until(t, func() bool { return strings.HasPrefix(told.String(), "the relay cannot be followed") }, "the absence is not told")
		add(3)
		stop = serveTrail(t, trail, dir)
		waiting.Until(t, func() bool { return strings.Count(told.String(), "\n") == 2 }, "the return is not told")
		add(1)
		waiting.Until(t, func() bool { return strings.Contains(out.String(), `"index":`+strconv.Itoa(made-1)) }, "the entries after the absence are not listed")
		cancel()
		assert.Equal(t, ExitOK, <-ended)
		stop()
		assert.True(t, strings.HasSuffix(told.String(), "\nthe relay answers again\n"), told.String())
		var got, want []int64
		for _, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
			var r timeline.Row
			require.NoError(t, json.Unmarshal([]byte(line), &r))
			got = append(got, r.Index)
		}
		for i := max(0, before-2); i < made; i++ {
			want = append(want, int64(i))
		}
		assert.Equal(t, want, got)
	}
}
