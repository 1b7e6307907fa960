package health

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

var (
	test         = credentials.Environment{Project: "shop", Environment: "test"}
	silencesNoon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	ann          = workspace.Person{User: "ann", Host: "desk"}
)

// clocked are books over one trail, with a clock set by hand.
type clocked struct {
	t     *testing.T
	now   time.Time
	trail *audit.Trail
}

func newClocked(t *testing.T) *clocked {
	t.Helper()
	return &clocked{t: t, now: silencesNoon, trail: trailtest.New(t)}
}

func (c *clocked) book(log audit.Log) *Silences {
	b := NewSilences(log, []credentials.Environment{live, test})
	b.now = func() time.Time { return c.now }
	return b
}

func (c *clocked) started() *Silences {
	c.t.Helper()
	b := c.book(c.trail)
	require.NoError(c.t, b.Load(c.t.Context()))
	return b
}

func (c *clocked) add(b *Silences, of credentials.Environment, length time.Duration) Silence {
	c.t.Helper()
	s, err := b.Add(c.t.Context(), of, Silence{Until: c.now.Add(length), Reason: "upgrade", Person: ann})
	require.NoError(c.t, err)
	return s
}

func (c *clocked) entries() []audit.Entry { return trailtest.Entries(c.t, c.trail) }

func silencedBy(b *Silences, of credentials.Environment) string {
	s, _ := b.Present(of)
	return s.ID
}

// The newest entry of an environment is its state: a restart at any line finds it.
func TestTheTrailIsTheState(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	b := c.started()
	long := c.add(b, live, 3*time.Hour)
	short := c.add(b, live, time.Hour)
	all := c.add(b, AllEnvironments, 2*time.Hour)
	for _, b := range []*Silences{b, c.started()} {
		assert.Equal(t, []Silence{all, long, short}, b.List())
		assert.Equal(t, long.ID, silencedBy(b, live), "the one that lasts longest")
		assert.Equal(t, all.ID, silencedBy(b, test))
	}
	c.now = c.now.Add(90 * time.Minute)
	assert.Equal(t, []Silence{all, long}, b.List(), "one is over")

	other := c.started()
	ended, err := other.End(t.Context(), long.ID, workspace.Person{User: "bob", Host: "rack"})
	require.NoError(t, err)
	assert.Equal(t, long, ended)
	for _, b := range []*Silences{other, c.started()} {
		assert.Equal(t, []Silence{all}, b.List())
		assert.Equal(t, all.ID, silencedBy(b, live))
	}
	_, err = other.End(t.Context(), long.ID, ann)
	require.ErrorIs(t, err, ErrNoSilence)
	_, err = b.End(t.Context(), long.ID, ann) // it has not heard of the end
	require.NoError(t, err)
	assert.Equal(t, []Silence{all}, b.List())

	entries := c.entries()
	require.Len(t, entries, 4)
	var sentences []string
	for _, e := range entries {
		var d silenceDetail
		require.NoError(t, json.Unmarshal(e.Detail, &d))
		sentences = append(sentences, e.Type+" "+e.Project+" "+d.Severity+": "+d.Summary)
	}
	assert.Equal(t, []string{
		"silence.added shop medium: silence of shop/live until 2026-11-22 15:00:00 UTC by ann@desk: upgrade",
		"silence.added shop medium: silence of shop/live until 2026-11-22 13:00:00 UTC by ann@desk: upgrade",
		"silence.added - medium: silence of all environments until 2026-11-22 14:00:00 UTC by ann@desk: upgrade",
		"silence.ended shop low: silence of shop/live ended by bob@rack, before 2026-11-22 15:00:00 UTC; its reason was: upgrade",
	}, sentences)
	var last silenceDetail
	require.NoError(t, json.Unmarshal(entries[3].Detail, &last))
	assert.Empty(t, last.Silences, "those that are over drop out")
}

func TestImpossibleSilences(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	b := c.started()
	good := Silence{Until: silencesNoon.Add(time.Hour), Reason: "upgrade", Person: ann}
	for message, change := range map[string]func(*Silence){
		"it would end at once":            func(s *Silence) { s.Until = silencesNoon },
		"it is longer than 30 days":       func(s *Silence) { s.Until = silencesNoon.Add(LongestSilence + time.Second) },
		"it needs a reason":               func(s *Silence) { s.Reason = "" },
		"reason is longer than 500 bytes": func(s *Silence) { s.Reason = strings.Repeat("x", longestReason+1) },
	} {
		s := good
		change(&s)
		_, err := b.Add(t.Context(), live, s)
		require.ErrorIs(t, err, ErrImpossibleSilence)
		require.ErrorContains(t, err, message)
	}
	_, err := b.Add(t.Context(), credentials.Environment{Project: "shop", Environment: "other"}, good)
	require.ErrorContains(t, err, "shop/other is not in the running configuration")
	for range mostSilences {
		c.add(b, live, time.Hour)
	}
	_, err = b.Add(t.Context(), live, good)
	require.ErrorIs(t, err, ErrImpossibleSilence)
	require.ErrorContains(t, err, "shop/live has 100 already; end one of them")
	c.add(b, test, LongestSilence)
	assert.Len(t, c.entries(), mostSilences+1)
}

// Silences added at the same time, by two relays too, are all kept.
func TestSilencesAtOnce(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	b := c.started()
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			_, err := b.Add(context.Background(), live, Silence{Until: silencesNoon.Add(time.Hour), Reason: "upgrade"})
			assert.NoError(t, err)
		})
	}
	all.Wait()
	assert.Len(t, b.List(), 5)
	assert.ElementsMatch(t, b.List(), c.started().List())
}

// unsure is a trail that loses answers.
type unsure struct {
	audit.Log
	lost, unread error
}

func (u *unsure) AppendIf(ctx context.Context, e audit.Entry, newest int64) (int64, error) {
	index, err := u.Log.AppendIf(ctx, e, newest)
	if u.lost != nil {
		return 0, u.lost
	}
	return index, err
}

func (u *unsure) Last(ctx context.Context, project, environment, subject string) (audit.Entry, bool, error) {
	if u.unread != nil && environment == live.Environment {
		return audit.Entry{}, false, u.unread
	}
	return u.Log.Last(ctx, project, environment, subject)
}

// After an append of unknown outcome the trail is read again. What cannot be read holds up
// nothing else.
func TestALostAnswer(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	log := &unsure{Log: c.trail, lost: errors.New("no answer")}
	b := c.book(log)
	require.NoError(t, b.Load(t.Context()))
	_, err := b.Add(t.Context(), live, Silence{Until: silencesNoon.Add(time.Hour), Reason: "upgrade"})
	require.ErrorContains(t, err, "no answer")
	assert.Empty(t, b.List())
	log.unread = errors.New("unreadable")
	require.ErrorContains(t, b.Load(t.Context()), "read the silences of shop/live: unreadable")
	log.unread = nil
	require.NoError(t, b.Load(t.Context()))
	assert.Len(t, b.List(), 1, "it had arrived")

	log.lost = audit.ErrConflict // as where the answer to an earlier attempt was lost
	_, err = b.Add(t.Context(), test, Silence{Until: silencesNoon.Add(time.Hour), Reason: "upgrade"})
	require.NoError(t, err)
	assert.Len(t, b.List(), 2)
	assert.Len(t, c.entries(), 2, "it is entered once")

	log.unread = errors.New("unreadable")
	b = c.book(log)
	require.Error(t, b.Load(t.Context()))
	assert.Equal(t, "shop/test", b.List()[0].Project+"/"+b.List()[0].Environment)
	_, err = b.End(t.Context(), "00000000", ann)
	require.ErrorContains(t, err, "unreadable", "it may be among those")
	var none *Silences
	require.NoError(t, none.Load(t.Context()))
	assert.Empty(t, silencedBy(none, live))
}
