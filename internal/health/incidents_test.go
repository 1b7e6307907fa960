package health

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
)

// trickle pushes one event in 200 s, where fifty are usual.
func (h *hand) trickle(e *received.Environment) {
	if h.now.Unix()%200 == 0 {
		e.Took(h.at(1, time.Second))
	}
}

// Far fewer events than usual are a state of their own, with an estimate, over restarts.
func TestFarBelowUsual(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(300, h.each20)
	began := h.now
	h.pass(3600, h.trickle)
	now := h.status()
	require.Equal(t, Reduced, now.State, now.Reason)
	assert.Contains(t, now.Reason, "far fewer events")
	require.NotNil(t, now.Gap)
	assert.Equal(t, string(Reduced), now.Gap.Cause)
	assert.InDelta(t, 900-18, now.Gap.EventsLost, 30)
	for range 2 {
		h.down(5)
		h.pass(1200, h.trickle)
	}
	require.Equal(t, Reduced, h.status().State, h.status().Reason)
	h.pass(300, h.each20)
	now = h.status()
	require.Equal(t, Gapped, now.State, now.Reason)
	assert.Equal(t, []string{"flowing reduced", "reduced gapped"}, h.transitions())
	require.Len(t, now.Gaps, 1)
	g := now.Gaps[0]
	assert.InDelta(t, 0, g.Begun.Sub(began).Seconds(), 25, "since the last usual push")
	assert.InDelta(t, 1500-30, g.EventsLost, 60)
	assert.Less(t, g.EventsLostLeast, g.EventsLost)
	assert.Greater(t, g.EventsLostMost, g.EventsLost)
	assert.Len(t, h.entries(subjectGap), 1)
}

// A reduction that becomes a silence, and traffic that halves.
func TestReducedThenSilentAndHalf(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(300, h.each20)
	h.pass(2400, h.trickle)
	require.Equal(t, Reduced, h.status().State)
	h.pass(3600, nil)
	require.Equal(t, Silent, h.status().State, h.status().Reason)
	h.pass(300, h.each20)
	causes := []string{}
	for _, g := range h.status().Gaps {
		causes = append(causes, g.Cause)
	}
	assert.Equal(t, []string{"reduced", "silent"}, causes)

	h, _ = newKept(t)
	h.pass(300, h.each20)
	h.pass(2*24*3600, func(e *received.Environment) {
		if h.now.Unix()%40 == 0 {
			e.Took(h.at(5, time.Second))
		}
	})
	assert.Empty(t, h.transitions(), "half is no alarm")
}

// skewed pushes ten events a second, by a clock wrong by a time.
func (h *hand) skewed(by time.Duration) func(*received.Environment) {
	return func(e *received.Environment) { e.Took(h.at(10, time.Second+by)) }
}

// A wrong clock of the sender is told of, with its amount. After a restart of the relay, it
// makes no losses of events that were sent again.
func TestAWrongClockAndARestart(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{30 * time.Minute, -2 * time.Hour, 20 * time.Second, 20000 * time.Hour, -20000 * time.Hour} {
		h, _ := newKept(t)
		*h.keeper.watches[0].Model = Rhythm{}
		h.pass(900, h.skewed(by))
		if by.Abs() > time.Minute {
			require.Equal(t, Skewed, h.status().State, h.status().Reason)
			amount := (by + time.Second).Abs().String()
			assert.True(t, strings.Contains(h.status().Reason, amount), "%s: %s", amount, h.status().Reason)
		}
		entered := len(h.transitions())
		h.down(22)
		h.book.Of(live).Took(h.at(220, 11*time.Second+by))
		h.pass(300, h.skewed(by))
		assert.Empty(t, h.status().Gaps, by)
		assert.Empty(t, h.entries(subjectGap), by)
		assert.Len(t, h.transitions(), entered, "%s: %v", by, h.transitions())

		h.down(900) // and all of this time is sent again, for some minutes
		for age := 900 * time.Second; age > 0; age -= 5 * time.Second {
			h.book.Of(live).Took(h.at(50, age+by))
			h.pass(1, h.skewed(by))
		}
		h.pass(200, h.skewed(by))
		assert.Empty(t, h.status().Gaps, by)
		if by.Abs() > time.Minute { // else the backlog is late
			assert.Len(t, h.transitions(), entered, "%s: %v", by, h.transitions())
		}

		h.down(200) // and nothing of this time comes
		h.pass(300, h.skewed(by))
		require.Len(t, h.status().Gaps, 1, by)
		g := h.status().Gaps[0]
		assert.LessOrEqual(t, g.EventsLostLeast, int64(2000), by)
		assert.GreaterOrEqual(t, g.EventsLostMost, int64(2000), by)
		assert.Positive(t, g.EventsLostLeast, by)
		h.pass(300, h.skewed(0))
		if by.Abs() > time.Minute { // a backlog of 900 s was late
			assert.Equal(t, Gapped, h.status().State, "%s: %s", by, h.status().Reason)
		}
	}
}

// Where the sender's clocks disagree, or its clock is set before the gap is settled, the times
// do not tell which events are of the gap: none is lost here.
func TestClocksThatDisagree(t *testing.T) {
	t.Parallel()
	set := func(from, to time.Duration) func(int) time.Duration { // half a minute after the downtime
		return func(push int) time.Duration { return map[bool]time.Duration{true: from, false: to}[push < 652] }
	}
	for name, clock := range map[string]func(push int) time.Duration{
		"two workers":          func(push int) time.Duration { return time.Duration(push%2) * 5 * time.Minute },
		"one of five":          func(push int) time.Duration { return time.Duration(push%5/4) * 30 * time.Minute },
		"set right":            set(30*time.Minute, 0),
		"set right from years": set(20000*time.Hour, 0),
		"set right from ahead": set(-2*time.Hour, 0),
		"set wrong":            set(0, 30*time.Minute),
	} {
		h, _ := newKept(t)
		*h.keeper.watches[0].Model = Rhythm{}
		pushes := 0
		push := func(e *received.Environment) {
			e.Took(h.at(10, time.Second+clock(pushes)))
			pushes++
		}
		h.pass(600, push)
		h.down(22)
		for range 22 { // all of it is sent again
			h.book.Of(live).Took(h.at(10, 11*time.Second+clock(pushes)))
			pushes++
		}
		h.pass(300, push)
		assert.Empty(t, h.status().Gaps, name)
		assert.Empty(t, h.entries(subjectGap), name)
	}
}

// One of a sender's workers has a wrong clock. A backlog that arrives together with live pushes
// is not taken for a wrong clock.
func TestOneWorkersClock(t *testing.T) {
	t.Parallel()
	beside := func(age func() time.Duration) []string {
		h, _ := newKept(t)
		pushes := 0
		h.pass(1800, func(e *received.Environment) {
			if pushes++; pushes%5 == 0 {
				e.Took(h.at(10, age()))
				return
			}
			e.Took(h.at(10, time.Second))
		})
		assert.Contains(t, h.status().Reason, map[bool]string{true: "some of its events", false: "long after they happened"}[h.status().State == Skewed])
		return append(h.transitions(), string(h.status().State))
	}
	assert.Equal(t, []string{"flowing skewed", "skewed"}, beside(func() time.Duration { return 30 * time.Minute }))
	backlog := 3 * time.Hour
	assert.Equal(t, []string{"flowing late", "late"}, beside(func() time.Duration { backlog -= 20 * time.Second; return backlog }))
}

// Pushes that are refused for another reason than before are another incident: those of the
// first are sent again, and those of the second are not.
func TestRefusedForAnotherReason(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{0, 40 * time.Second} {
		h, _ := newKept(t)
		*h.keeper.watches[0].Model = Rhythm{}
		h.pass(600, h.skewed(by))
		h.pass(50, func(e *received.Environment) { e.Refused(received.Unavailable) })
		h.pass(48, wrong)
		h.book.Of(live).Took(h.at(500, 75*time.Second+by))
		h.pass(300, h.skewed(by))
		gaps := h.status().Gaps
		require.NotEmpty(t, gaps, by)
		g := gaps[len(gaps)-1]
		assert.Equal(t, received.Credential, g.RefusedBy, by)
		assert.InDelta(t, 48, g.RefusedPushes, 1, by)
		assert.InDelta(t, 480, g.EventsLost, 100, by)
		assert.Empty(t, gaps[:len(gaps)-1], "those before were sent again")
	}
}

// A backlog that is worked off is late; the sender's clock is right.
func TestABacklogIsNoWrongClock(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(300, h.each20)
	age := time.Hour
	h.pass(600, func(e *received.Environment) {
		e.Took(h.at(20, age))
		age -= time.Second
	})
	assert.Equal(t, []string{"flowing late"}, h.transitions())
}

// A silence right after a downtime is a gap of its own.
func TestASilenceAfterADowntime(t *testing.T) {
	t.Parallel()
	for _, between := range []int{0, 20} {
		h, _ := newKept(t)
		h.pass(300, h.each20)
		h.down(600)
		up := h.now
		h.pass(between, h.each20)
		h.pass(1800, nil)
		require.Equal(t, Silent, h.status().State, h.status().Reason)
		h.pass(300, h.each20)
		gaps := h.status().Gaps
		require.Len(t, gaps, 2, between)
		assert.Equal(t, CauseRelayDown, gaps[0].Cause)
		assert.InDelta(t, 150, gaps[0].EventsLost, 10)
		assert.True(t, gaps[0].Ended.Equal(up), "%s", gaps[0].Ended)
		assert.Equal(t, string(Silent), gaps[1].Cause)
		assert.InDelta(t, 450, gaps[1].EventsLost, 20)
		assert.False(t, gaps[1].Begun.Before(gaps[0].Ended))
		assert.Len(t, h.entries(subjectGap), 2)
	}
}

// A cause noticed long after a silence began has its own time.
func TestRefusedAfterASilence(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(300, h.each20)
	h.pass(3600, nil)
	require.Equal(t, Silent, h.status().State)
	h.pass(600, wrong)
	h.pass(300, h.each20)
	gaps := h.status().Gaps
	require.Len(t, gaps, 2)
	assert.Equal(t, []string{"silent", "refused"}, []string{gaps[0].Cause, gaps[1].Cause})
	assert.Equal(t, gaps[0].Ended, gaps[1].Begun)
	assert.Equal(t, noon.Add(3900*time.Second), gaps[1].Begun.UTC())
}

// An environment that flaps enters a bounded number of gaps, and loses no event of the count.
func TestFlappingGapsAreBounded(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	*h.keeper.watches[0].Model = Rhythm{}
	each := func(e *received.Environment) { e.Took(h.at(10, time.Second)) }
	h.pass(600, each)
	for range 40 {
		h.pass(15, wrong)
		h.pass(15, each)
	}
	h.pass(100, each)
	gaps := h.entries(subjectGap)
	assert.Len(t, gaps, maxGaps)
	sum := int64(0)
	for _, g := range h.status().Gaps {
		sum += g.EventsLost
	}
	assert.InDelta(t, 40*150, sum, 1200)
}

// Who annotates a gap's entry has seen the gap: then the environment flows, also after a
// restart.
func TestAReviewedGap(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(300, h.each20)
	h.pass(60, wrong)
	h.pass(200, h.each20)
	require.Equal(t, Gapped, h.status().State, h.status().Reason)
	require.NoError(t, h.keeper.writer.save(true))
	g := h.status().Gaps[0]
	require.Positive(t, g.Entry)
	h.pass(1, h.each20)
	assert.Contains(t, h.status().Action, "`auditrelay trail annotate")
	assert.Equal(t, 1, h.keeper.watches[0].unreviewed(h.now))
	h.keeper.options.Reviewed = func(index int64) bool { return index == g.Entry }
	h.pass(20, h.each20)
	assert.Equal(t, Flowing, h.status().State, h.status().Reason)
	assert.Zero(t, h.keeper.watches[0].unreviewed(h.now))
	assert.Len(t, h.status().Gaps, 1, "it is told of all the same")
	h.down(1)
	h.pass(30, h.each20)
	assert.Equal(t, Flowing, h.status().State, h.status().Reason)
}
