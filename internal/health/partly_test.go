package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
)

// Pushes that are refused for good again and again are lost, however many others are taken.
func TestSomePushesAreRefusedForGood(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(300, h.each20)
	began := h.now
	h.pass(1800, func(e *received.Environment) {
		if h.now.Unix()%80 == 0 { // one in four
			e.Refused(received.TooLarge)
			return
		}
		h.each20(e)
	})
	now := h.status()
	require.Equal(t, Refused, now.State, now.Reason)
	assert.Equal(t, "some of its pushes, again and again: they exceed a limit on sizes; others are taken", now.Reason)
	assert.Contains(t, now.Action, "ingest.limits")
	assert.InDelta(t, 0, now.Since.Sub(began).Seconds(), 120)
	require.NotNil(t, now.Gap)
	assert.Equal(t, received.TooLarge, now.Gap.RefusedBy)
	assert.InDelta(t, 450/4, now.Gap.EventsLost, 25)
	h.pass(1200, h.each20)
	assert.Equal(t, []string{"flowing refused", "refused gapped"}, h.transitions())
	require.Len(t, h.status().Gaps, 1)
	assert.InDelta(t, 450/4, h.status().Gaps[0].EventsLost, 40)
}

// A few bad pushes at once are none, nor are those that the sender repeats, or that may be anybody's.
func TestRefusalsThatAreNoLoss(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(300, h.each20)
	h.pass(100, func(e *received.Environment) {
		h.each20(e)
		e.Refused(received.Form)
		e.Took(received.Push{Duplicates: 1})
	})
	h.pass(1800, func(e *received.Environment) {
		for _, reason := range []string{received.Credential, received.Quota, received.Busy, received.Aborted} {
			e.Refused(reason)
		}
		h.each20(e)
		e.Took(received.Push{Duplicates: 1})
	})
	assert.Empty(t, h.transitions())
	assert.Equal(t, Flowing, h.status().State, h.status().Reason)
}

// Far fewer events than usual, while others are refused, have these refusals for a cause.
func TestReducedByRefusals(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(300, h.each20)
	h.pass(3600, func(e *received.Environment) {
		if h.now.Unix()%200 == 0 {
			e.Refused(received.Quota)
		}
		h.trickle(e)
	})
	now := h.status()
	require.Equal(t, Reduced, now.State, now.Reason)
	assert.Contains(t, now.Reason, "; others are refused: its quota is spent")
	assert.Contains(t, now.Action, "raise the quota of shop/live")
}

func TestWhatGoesOn(t *testing.T) {
	t.Parallel()
	var h hour
	seen := int64(0)
	h.note(0, 0)
	at := func(minute int) (first int64, goesOn bool) {
		seen++
		h.note(time.Duration(minute)*time.Minute, seen)
		return h.goesOn()
	}
	_, goesOn := at(0)
	assert.False(t, goesOn)
	_, goesOn = at(5)
	assert.False(t, goesOn)
	first, goesOn := at(9)
	assert.True(t, goesOn)
	assert.Zero(t, first)
	_, goesOn = at(16)
	assert.False(t, goesOn, "the first is too long ago, and so is the second")
	first, goesOn = at(18)
	assert.True(t, goesOn)
	assert.EqualValues(t, 9, first)
	assert.EqualValues(t, 3, h.from(first))
	h.note(10*time.Hour, seen)
	_, goesOn = h.goesOn()
	assert.False(t, goesOn)
	assert.Zero(t, h.from(first))
}
