package health

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// hand moves a keeper's clock by hand, with a trail on a real server.
type hand struct {
	t      *testing.T
	now    time.Time
	trail  *audit.Trail
	log    audit.Log // nil: trail
	file   string
	looks  func() []streaming.Health // nil: no API
	book   *received.Book
	keeper *Keeper

	silences *Silences // nil: none
}

func newHand(t *testing.T) *hand {
	t.Helper()
	h := &hand{t: t, now: noon, trail: trailtest.New(t)}
	h.restart()
	return h
}

func (h *hand) newSilences() *Silences {
	b := NewSilences(h.trail, []credentials.Environment{live})
	b.now = func() time.Time { return h.now }
	return b
}

func (h *hand) restart() {
	h.t.Helper()
	h.book = received.New(func() time.Time { return h.now })
	o := Options{Environments: []config.Environment{environment()}, Book: h.book, Trail: h.trail, Silences: h.silences, File: h.file, Declared: h.looks}
	if h.log != nil {
		o.Trail = h.log
	}
	var err error
	h.keeper, err = New(o)
	require.NoError(h.t, err)
	h.keeper.begin(h.now)
}

// pass lets seconds pass, calls each in every one, and enters at the end.
func (h *hand) pass(seconds int, each func(*received.Environment)) {
	h.t.Helper()
	h.seconds(seconds, each)
	require.NoError(h.t, h.keeper.enter(h.t.Context()))
}

func (h *hand) seconds(n int, each func(*received.Environment)) {
	for range n {
		if each != nil {
			each(h.book.Of(live))
		}
		h.keeper.tick(h.now)
		h.now = h.now.Add(time.Second)
	}
}

func good(e *received.Environment) {
	e.Took(received.Push{Events: 10, Newest: 1, Lateness: &received.Lateness{}}) // without times
}
func wrong(e *received.Environment) { e.Refused(received.Credential) }

// entries gives the details of the trail's entries of a subject.
func (h *hand) entries(subject string) (all []change) {
	h.t.Helper()
	for _, e := range trailtest.Entries(h.t, h.trail) {
		var c change
		if e.Subject == subject {
			require.NoError(h.t, json.Unmarshal(e.Detail, &c))
			all = append(all, c)
		}
	}
	return all
}

func (h *hand) transitions() (all []string) {
	for _, c := range h.entries(Subject) {
		all = append(all, string(c.From)+" "+string(c.To))
	}
	return all
}

func TestTransitionsEnterOnce(t *testing.T) {
	t.Parallel()
	h := newHand(t)
	h.pass(5, nil)
	h.pass(60, good)
	assert.Empty(t, h.transitions(), "a first start is no news")
	h.pass(5, wrong)
	h.pass(60, wrong)
	assert.Equal(t, []string{"flowing refused"}, h.transitions())
	c := h.entries(Subject)[0]
	assert.Equal(t, "live: event log is refused since 2026-11-18 12:01:05 UTC: the credential is not valid; no push was taken since", c.Summary)
	assert.Equal(t, "critical", string(c.Severity))
	assert.Contains(t, c.Action, "auditrelay credentials rotate shop/live")

	h.restart()
	h.pass(5, nil)
	now := h.keeper.Status()[0]
	assert.Equal(t, Refused, now.State, "the trail's newest entry is the state")
	assert.True(t, noon.Add(65*time.Second).Equal(now.Since))
	h.pass(60, wrong)
	assert.Len(t, h.transitions(), 1)
	h.seconds(60, good)
	h.restart() // before it was entered
	h.pass(60, good)
	h.pass(60, good)
	assert.Equal(t, []string{"flowing refused", "refused flowing"}, h.transitions())
}

// A relay that has not looked at the API yet says nothing new of a disabled stream.
func TestARestartBeforeTheFirstLook(t *testing.T) {
	t.Parallel()
	h := newHand(t)
	h.file = filepath.Join(t.TempDir(), FileName)
	var declared []streaming.Health
	look := func() {
		declared = []streaming.Health{{
			Project: live.Project, Environment: live.Environment, Status: management.StatusDisabled,
			DestinationType: management.GrafanaLoki, LastLook: h.now,
		}}
	}
	h.looks = func() []streaming.Health { return declared }
	h.restart()
	h.pass(60, good)
	h.pass(60, func(*received.Environment) { look() })
	assert.Equal(t, []string{"flowing disabled"}, h.transitions())
	require.NoError(t, h.keeper.writer.save(true))

	declared = nil
	h.restart()
	h.pass(20, nil)
	assert.Equal(t, Disabled, h.keeper.Status()[0].State)
	h.pass(60, func(*received.Environment) { look() })
	assert.Len(t, h.transitions(), 1)
}

// away is a trail out of use for some time.
type away struct {
	audit.Log
	gone bool
	deaf bool // the answers are lost
}

func (a *away) AppendIf(ctx context.Context, e audit.Entry, newest int64) (int64, error) {
	index, err := a.Log.AppendIf(ctx, e, newest)
	if a.deaf {
		return 0, errAway
	}
	return index, err
}

var errAway = errors.New("away")

func (a *away) Last(ctx context.Context, project, environment, subject string) (audit.Entry, bool, error) {
	if a.gone {
		return audit.Entry{}, false, errAway
	}
	return a.Log.Last(ctx, project, environment, subject)
}

func TestAnUnusableTrailLosesNoState(t *testing.T) {
	t.Parallel()
	h := newHand(t)
	log := &away{Log: h.trail}
	h.log = log
	h.restart()
	h.pass(60, good)
	log.gone = true
	h.seconds(10, wrong)
	require.ErrorIs(t, h.keeper.enter(t.Context()), errAway)
	assert.Equal(t, Refused, h.keeper.Status()[0].State)
	h.seconds(120, good)
	require.ErrorIs(t, h.keeper.enter(t.Context()), errAway)
	log.gone = false
	require.NoError(t, h.keeper.enter(t.Context()))
	assert.Equal(t, []string{"flowing gapped"}, h.transitions(), "the state of the outage is summed up")
	assert.Equal(t, 1, h.entries(Subject)[0].Skipped)
	assert.Len(t, h.entries(subjectGap), 1)
	require.NoError(t, h.keeper.enter(t.Context()))
	assert.EqualValues(t, 2, h.trail.Size())

	log.deaf = true
	h.seconds(10, wrong)
	require.ErrorIs(t, h.keeper.enter(t.Context()), errAway)
	log.deaf = false
	require.NoError(t, h.keeper.enter(t.Context()))
	assert.Equal(t, []string{"flowing gapped", "gapped refused"}, h.transitions(), "it was in the trail, though nobody had said so")
}

// A gap enters once, though the relay was killed between its entry and the file.
func TestGapsEnterOnce(t *testing.T) {
	t.Parallel()
	h := newHand(t)
	h.file = filepath.Join(t.TempDir(), FileName)
	h.restart()
	h.pass(60, good)
	h.pass(20, wrong)
	h.seconds(120, good)
	require.NoError(t, h.keeper.writer.save(true))
	require.NoError(t, h.keeper.enter(t.Context()))
	gaps := h.entries(subjectGap)
	require.Len(t, gaps, 1)
	assert.Regexp(t, `^live: about (19|20|21)\d events were lost \(\d+ to \d+\) from `, gaps[0].Summary)
	assert.Contains(t, gaps[0].Summary, " from 2026-11-18 12:01:00 UTC to 2026-11-18 12:01:20 UTC: the credential is not valid")
	h.restart()
	h.pass(60, good)
	kept := h.keeper.Status()[0].Gaps
	require.NotEmpty(t, kept, "the file has it")
	assert.Equal(t, "refused", kept[0].Cause)
	refused := 0
	for _, c := range h.entries(subjectGap) {
		if strings.Contains(c.Summary, "the credential") {
			refused++
		}
	}
	assert.Equal(t, 1, refused)
}

func TestTransitionsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHand(t)
	for range 20 {
		h.pass(20, good)
		h.pass(20, wrong)
	}
	assert.Len(t, h.transitions(), maxEntries)
}

// A silence hides neither a state nor an entry: it marks them. A gap of the silence is
// settled after it.
func TestASilenceMarksWhatHappensInIt(t *testing.T) {
	t.Parallel()
	h := newHand(t)
	h.silences = h.newSilences()
	h.restart()
	h.pass(60, good)
	assert.False(t, h.keeper.Status()[0].Silenced)
	s, err := h.silences.Add(t.Context(), live, Silence{Until: h.now.Add(time.Hour), Reason: "upgrade"})
	require.NoError(t, err)
	h.pass(60, wrong)
	now := h.keeper.Status()[0]
	assert.True(t, now.Silenced)
	assert.Equal(t, Refused, now.State)
	h.pass(20, good)
	_, err = h.silences.End(t.Context(), s.ID, s.Person)
	require.NoError(t, err)
	assert.False(t, h.keeper.Status()[0].Silenced)
	h.pass(120, good)
	h.pass(20, wrong)
	silenced := []string{}
	for _, c := range append(h.entries(Subject), h.entries(subjectGap)...) {
		silenced = append(silenced, string(c.To)+c.Silenced)
	}
	assert.Equal(t, []string{"refused" + s.ID, "gapped" + s.ID, "refused", s.ID}, silenced)
	h.silences = h.newSilences()
	_, err = h.silences.Add(t.Context(), AllEnvironments, Silence{Until: h.now.Add(time.Hour), Reason: "network"})
	require.NoError(t, err)
	h.silences = h.newSilences()
	h.restart()
	h.pass(5, wrong)
	assert.True(t, h.keeper.Status()[0].Silenced, "it is read from the trail")
}
