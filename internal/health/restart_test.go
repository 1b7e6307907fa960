package health

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// newKept is a hand with a file, a learnt rhythm, and an API that declares status; an
// empty one is not read.
func newKept(t *testing.T) (h *hand, status *management.StreamingStatus) {
	t.Helper()
	h, status = newHand(t), new(management.StreamingStatus)
	*status = management.StatusActive
	h.file = filepath.Join(t.TempDir(), FileName)
	h.looks = func() []streaming.Health {
		look := streaming.Health{Project: live.Project, Environment: live.Environment}
		if *status != "" {
			look.Status, look.DestinationType, look.LastLook = *status, management.GrafanaLoki, h.now
		}
		return []streaming.Health{look}
	}
	h.restart()
	*h.keeper.watches[0].Model = *busy()
	return h, status
}

// down stops the relay for a time.
func (h *hand) down(seconds int) {
	h.t.Helper()
	require.NoError(h.t, h.keeper.writer.save(true))
	h.now = h.now.Add(time.Duration(seconds) * time.Second)
	h.restart()
}

func (h *hand) status() Status { return h.keeper.Status()[0] }

// each20 pushes in the rhythm of busy.
func (h *hand) each20(e *received.Environment) {
	if h.now.Unix()%20 == 0 {
		e.Took(h.at(5, time.Second))
	}
}

// at is a push of events of an age.
func (h *hand) at(n int, age time.Duration) received.Push {
	l := &received.Lateness{}
	for range n {
		l.Add(age)
	}
	return received.Push{Events: int64(n), Newest: h.now.Add(-age).UnixNano(), Lateness: l}
}

// A restart ends no silence: only a push does.
func TestARestartWhileSilent(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(300, h.each20)
	h.pass(1800, nil)
	require.Equal(t, Silent, h.status().State, h.status().Reason)
	before := h.status()
	for range 2 {
		h.down(5)
		h.pass(60, nil)
	}
	now := h.status()
	assert.Equal(t, Silent, now.State, now.Reason)
	assert.Equal(t, before.Since.UTC(), now.Since.UTC())
	assert.Equal(t, before.Reason, now.Reason)
	require.NotNil(t, now.Gap)
	assert.Equal(t, before.Gap.Begun.UTC(), now.Gap.Begun.UTC())
	h.pass(100, h.each20)
	assert.Equal(t, []string{"flowing silent", "silent gapped"}, h.transitions())
	assert.Len(t, h.entries(subjectGap), 1)
}

// After a restart, a relay that cannot read the API ends no gap.
func TestARestartWhileDisabledAndTheAPIAway(t *testing.T) {
	t.Parallel()
	h, status := newKept(t)
	h.pass(300, h.each20)
	*status = management.StatusDisabled
	h.pass(600, nil)
	began := h.status().Gap.Begun
	*status = ""
	h.down(60)
	h.pass(120, nil)
	now := h.status()
	assert.Equal(t, Disabled, now.State, now.Reason)
	require.NotNil(t, now.Gap, "no push has come")
	h.pass(300, nil)
	assert.Equal(t, Silent, h.status().State, h.status().Reason)
	require.NotNil(t, h.status().Gap, "nor now")
	*status = management.StatusActive
	h.pass(200, h.each20)
	now = h.status()
	assert.Equal(t, Gapped, now.State, now.Reason)
	require.Len(t, now.Gaps, 1)
	assert.Equal(t, began.UTC(), now.Gaps[0].Begun.UTC())
	assert.InDelta(t, 270, now.Gaps[0].EventsLost, 30, "five each 20 s")
	assert.Equal(t, []string{"flowing disabled", "disabled silent", "silent gapped"}, h.transitions())
}

// After the end of a trouble that kept all pushes away, the next push has its usual time.
func TestEnabledAgainIsNotSilent(t *testing.T) {
	t.Parallel()
	h, status := newKept(t)
	h.pass(300, h.each20)
	*status = management.StatusDisabled
	h.pass(3600, nil)
	*status = management.StatusActive
	h.pass(60, nil)
	h.pass(100, h.each20)
	assert.Equal(t, []string{"flowing disabled", "disabled gapped"}, h.transitions())
}

// A stream that goes on in spite of DISABLED does so after a restart.
func TestARestartWhilePushesGoOnAfterDisabled(t *testing.T) {
	t.Parallel()
	h, status := newKept(t)
	h.pass(100, h.each20)
	*status = management.StatusDisabled
	h.pass(200, h.each20)
	require.Equal(t, Flowing, h.status().State)
	entered := len(h.transitions())
	h.down(5)
	h.pass(20, h.each20) // entered before the pushes could tell
	h.pass(180, h.each20)
	assert.Len(t, h.transitions(), entered, "%v", h.transitions())
	assert.Empty(t, h.entries(subjectGap))
}

// After the clock was set back, a refused environment takes pushes as it did, and a gap
// that seems older than the trail's newest is entered too.
func TestTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(300, h.each20)
	h.pass(60, wrong)
	h.pass(100, h.each20)
	h.down(-3 * 3600)
	h.pass(600, h.each20)
	h.pass(60, wrong)
	h.down(-3 * 3600)
	h.pass(200, h.each20)
	assert.Equal(t, Gapped, h.status().State, h.status().Reason)
	causes := []string{}
	for _, g := range h.status().Gaps {
		causes = append(causes, g.Cause)
		assert.True(t, g.Ended.After(g.Begun), "%s to %s", g.Begun, g.Ended)
	}
	assert.Equal(t, []string{"refused", "refused"}, causes)
	assert.Len(t, h.entries(subjectGap), 2)
}

// A clock that was set back makes no push of an environment that has only refused ones.
func TestTheClockIsSetBackBeforeAnyPush(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(30, func(e *received.Environment) { e.Refused(received.Form) })
	h.down(-3600)
	assert.Zero(t, h.status().Observed.LastPush)
	assert.Empty(t, h.keeper.watches[0].Past, "nothing is lost while the relay is down")
}

// Two troubles a minute apart are two gaps; the time between them has lost nothing.
func TestTwoTroublesAMinuteApart(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	each := func(e *received.Environment) { e.Took(h.at(10, time.Second)) }
	*h.keeper.watches[0].Model = Rhythm{}
	h.pass(600, each)
	for range 2 {
		h.pass(10, wrong)
		h.pass(50, each)
	}
	h.pass(100, each)
	gaps := h.status().Gaps
	require.Len(t, gaps, 2)
	for i, g := range gaps {
		assert.InDelta(t, 100, g.EventsLost, 25, "ten seconds of ten events")
		assert.Equal(t, noon.Add(10*time.Minute+time.Duration(i)*time.Minute), g.Begun.UTC())
		assert.Equal(t, 10*time.Second, g.Ended.Sub(g.Begun))
	}
}

// A downtime right after a gap is a gap of its own.
func TestADowntimeBehindAGap(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(300, h.each20)
	h.pass(60, wrong)
	h.pass(30, h.each20)
	h.down(3600)
	h.pass(200, h.each20)
	gaps := h.status().Gaps
	require.Len(t, gaps, 2)
	assert.Equal(t, []string{"refused", CauseRelayDown}, []string{gaps[0].Cause, gaps[1].Cause})
	assert.InDelta(t, 900, gaps[1].EventsLost, 50)
	assert.Len(t, h.entries(subjectGap), 2)
}

// Pushes that the sender has sent again are no loss; those refused for good are one, however
// little of the rest is missing.
func TestRefusedForGoodOrNot(t *testing.T) {
	t.Parallel()
	for reason, lost := range map[string]int64{received.Unavailable: 0, received.Credential: 40} {
		h, _ := newKept(t)
		*h.keeper.watches[0].Model = Rhythm{}
		each := func(e *received.Environment) { e.Took(h.at(10, time.Second)) }
		h.pass(600, each)
		h.pass(20, func(e *received.Environment) { e.Refused(reason) })
		h.book.Of(live).Took(h.at(150, 10*time.Second))
		h.pass(100, each)
		sum := int64(0)
		for _, g := range h.status().Gaps {
			sum += g.EventsLost
		}
		assert.InDelta(t, lost, sum, 20, reason)
	}
}

// A jump of the clock is no silence, and costs nothing.
func TestTheClockJumps(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{3 * time.Hour, -3 * time.Hour} {
		h, _ := newKept(t)
		h.pass(300, h.each20)
		h.now = h.now.Add(by)
		h.keeper.jumped(by, h.now)
		h.pass(15, nil)
		h.pass(300, h.each20)
		assert.Empty(t, h.transitions(), by)
		assert.Empty(t, h.status().Gaps, by)
	}
	now := time.Now()
	assert.Zero(t, jump(now, now.Add(time.Hour)))
}

// An environment that left the configuration, and comes back, has its rhythm still.
func TestAnEnvironmentComesBack(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(300, h.each20)
	require.NoError(t, h.keeper.writer.save(true))
	other, err := New(Options{Book: h.book, File: h.file})
	require.NoError(t, err)
	require.NoError(t, other.writer.save(true))
	h.now = h.now.Add(24 * time.Hour)
	h.restart()
	h.pass(20, nil)
	assert.Equal(t, Unknown, h.status().State, "no push has come since")
	h.pass(100, h.each20)
	assert.Equal(t, Flowing, h.status().State, h.status().Reason)
	assert.Empty(t, h.status().Gaps)
	h.pass(1200, nil)
	assert.Equal(t, Silent, h.status().State, h.status().Reason)
}
