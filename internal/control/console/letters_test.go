package console_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestLettersAreListed(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a", "b")
	events := relaytest.Events(6, relaytest.Environments("acme/live", "acme/test"))
	s.reject("a", "message is Too Large", 3, events[:4]...)
	between := time.Now()
	s.reject("b", "schema", 1, events[4:]...)

	all := s.letters(deadletters.Filter{}, true)
	require.Equal(t, eventIDs(events), letterIDs(all))
	for i := range all {
		assert.Equal(t, events[i], all[i].Event)
	}
	assert.Equal(t, "message is Too Large", all[0].Reason)
	assert.Equal(t, 3, all[0].Attempts)

	for name, c := range map[string]struct {
		filter deadletters.Filter
		want   []relay.Event
	}{
		"sink":        {deadletters.Filter{Sink: "b"}, events[4:]},
		"since":       {deadletters.Filter{Since: between}, events[4:]},
		"until":       {deadletters.Filter{Until: between}, events[:4]},
		"reason":      {deadletters.Filter{Reason: "too large"}, events[:4]},
		"id":          {deadletters.Filter{ID: events[5].ID}, events[5:]},
		"environment": {deadletters.Filter{Project: "acme", Environment: "test", Sink: "b"}, events[5:]},
		"number":      {deadletters.Filter{Sequence: 3}, events[2:3]},
		"through":     {deadletters.Filter{Through: 2}, events[:2]},
		"limit":       {deadletters.Filter{Limit: 3}, events[:3]},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.letters(c.filter, false)
			assert.Equal(t, eventIDs(c.want), letterIDs(got))
			for i := range got {
				assert.Empty(t, got[i].Body, "a list shows no bodies")
				assert.Len(t, c.want[i].Body, got[i].BodyBytes)
			}
		})
	}
}

func TestLettersAreReplayed(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a", "b")
	events := relaytest.Events(60)
	s.reject("a", "too large", 3, events[:45]...)
	s.reject("b", "schema", 1, events[45:]...)
	s.sinks["a"].Respond = relaytest.Refusing(events[7].ID, events[31].ID)

	p, err := s.replayed(console.ReplayLetters{DryRun: true})
	require.NoError(t, err)
	assert.Equal(t, map[string]uint64{"a": 45, "b": 15}, p.Sinks)
	assert.Empty(t, s.sinks["a"].Calls())
	require.Len(t, s.letters(deadletters.Filter{}, false), 60)

	p, err = s.replayed(console.ReplayLetters{})
	require.NoError(t, err)
	assert.Equal(t, []uint64{60, 60, 58, 2}, []uint64{p.Total, p.Done, p.Delivered, p.Refused})
	assert.Len(t, s.sinks["a"].Arrived(), 43)
	assert.Equal(t, eventIDs(events[45:]), eventIDs(s.sinks["b"].Arrived()))

	left := s.letters(deadletters.Filter{}, true)
	require.Equal(t, []string{events[7].ID, events[31].ID}, letterIDs(left))
	assert.Equal(t, "a", left[0].Sink)
	assert.Equal(t, "an event is refused", left[0].Reason, "its new reason")
	assert.Greater(t, left[0].Attempts, 3, "the attempts are added up")
	assert.Equal(t, events[7], left[0].Event)
}

func TestLettersGoToAnotherSink(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a")
	events := relaytest.Events(4)
	s.reject("gone", "too large", 2, events...)

	_, err := s.replayed(console.ReplayLetters{})
	require.ErrorContains(t, err, `4 dead letters are of sink "gone", which is not in the running configuration: name a sink by --to`)
	_, err = s.replayed(console.ReplayLetters{To: "other"})
	require.ErrorContains(t, err, `there is no sink "other" in the running configuration; it has a`)

	misspelt := deadletters.Filter{Sink: "gnoe"}
	_, err = s.replayed(console.ReplayLetters{Filter: misspelt})
	require.ErrorContains(t, err, `there is no sink "gnoe" in the running configuration; it has a`)
	err = s.Letters(t.Context(), console.ListLetters{Filter: misspelt}, nil)
	require.ErrorContains(t, err, `there is no sink "gnoe" in the running configuration; it has a`)
	require.Len(t, s.letters(deadletters.Filter{Sink: "gone"}, false), 4, "it has letters")
	require.Empty(t, s.letters(deadletters.Filter{Sink: "a"}, false), "it is configured")

	s.sinks["a"].Respond = relaytest.Naming(relay.Permanent(errors.New("no such topic")), events[1].ID)
	p, err := s.replayed(console.ReplayLetters{To: "a"})
	require.NoError(t, err)
	assert.Equal(t, []uint64{3, 1}, []uint64{p.Delivered, p.Refused})
	left := s.letters(deadletters.Filter{}, false)
	require.Equal(t, []string{events[1].ID}, letterIDs(left))
	assert.Equal(t, "gone", left[0].Sink, "it is still the sink's that refused it first")
	assert.Equal(t, "sink a: no such topic", left[0].Reason)
	assert.Equal(t, 3, left[0].Attempts)
}

// A letter is removed only after its sink has the event: ended before by its client, or
// by the relay's shutdown, the replay leaves it.
func TestAReplayThatIsEndedLosesNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *stage, cancel func()){
		"by its client":   func(_ *stage, cancel func()) { cancel() },
		"by the shutdown": func(s *stage, _ func()) { s.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "a")
			events := relaytest.Events(30)
			s.reject("a", "too large", 1, events...)
			s.sinks["a"].Respond = func(call int, _ []relay.Event) relaytest.Outcome {
				if call == 0 {
					return relaytest.Outcome{}
				}
				return busy
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failing, ended := make(chan struct{}, 1000), make(chan error, 1)
			go func() {
				ended <- s.ReplayLetters(ctx, console.ReplayLetters{}, func(p *console.Progress) {
					if p.Failing == "the destination is down" {
						failing <- struct{}{}
					}
				})
			}()
			<-failing
			_, err := s.replayed(console.ReplayLetters{})
			require.ErrorContains(t, err, "being replayed or discarded already")
			if name == "by its client" {
				end(s, cancel)
				require.ErrorIs(t, <-ended, context.Canceled)
				assert.Equal(t, eventIDs(events[10:]), letterIDs(s.letters(deadletters.Filter{}, false)))
				waiting.Until(t, func() bool { // the ended one gives way
					_, err := s.replayed(console.ReplayLetters{DryRun: true})
					return err == nil
				})
				return
			}
			end(s, cancel)
			require.ErrorContains(t, <-ended, "the relay is shutting down")
		})
	}
}

func TestLettersAreDiscarded(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a")
	events := relaytest.Events(9)
	s.reject("a", "too large", 1, events[:5]...)
	var p console.Progress
	report := func(now *console.Progress) { p = *now }
	require.NoError(t, s.DiscardLetters(t.Context(), console.DiscardLetters{DryRun: true}, report))
	assert.Equal(t, []uint64{5, 0, 5}, []uint64{p.Total, p.Removed, p.Last})
	s.reject("a", "came later", 1, events[5:]...)
	require.Len(t, s.letters(deadletters.Filter{}, false), 9)

	all := console.DiscardLetters{Filter: deadletters.Filter{Through: p.Last}}
	s.lost = errors.New("no trail")
	require.ErrorContains(t, s.DiscardLetters(t.Context(), all, report), "no trail")
	require.Len(t, s.letters(deadletters.Filter{}, false), 9, "nothing goes that is not in the trail")
	s.lost, s.losses = nil, nil
	require.NoError(t, s.DiscardLetters(t.Context(), all, report))
	assert.Equal(t, []console.Loss{{
		Type: "deadletters.discarded", Project: "acme", Environment: "production", Sink: "a", Person: s.losses[0].Person,
		Detail: map[string]any{"sink": "a", "event_ids": eventIDs(events[:5])},
	}}, s.losses)
	assert.Equal(t, uint64(5), p.Removed)
	assert.Equal(t, eventIDs(events[5:]), letterIDs(s.letters(deadletters.Filter{}, false)), "what came later stays")
}

// An unreadable letter hides no other, and stays.
func TestADamagedLetter(t *testing.T) {
	t.Parallel()
	s := newStage(t, "a")
	events := relaytest.Events(2)
	s.reject("a", "too large", 1, events[0])
	letters, err := s.store.Log(t.Context(), deadletters.LogName, store.Options{})
	require.NoError(t, err)
	_, err = letters.Append(t.Context(), store.Draft{Kind: 1, Key: "a", Data: []byte(`{"event":"the-id"}` + "\nARJ1 and then nothing of use")})
	require.NoError(t, err)
	s.reject("a", "too large", 1, events[1])

	all := s.letters(deadletters.Filter{}, true)
	require.Equal(t, []string{events[0].ID, "the-id", events[1].ID}, letterIDs(all))
	assert.Contains(t, all[1].Damage, "corrupt record")
	p, err := s.replayed(console.ReplayLetters{})
	require.NoError(t, err)
	assert.Equal(t, []uint64{3, 3, 2, 1}, []uint64{p.Total, p.Done, p.Delivered, p.Damaged})
	assert.Equal(t, []string{"the-id"}, letterIDs(s.letters(deadletters.Filter{}, false)))
	require.NoError(t, s.dead.Remove(t.Context(), []uint64{2}))
	require.NoError(t, s.dead.Remove(t.Context(), []uint64{2}), "it is gone already")
	require.NoError(t, s.dead.Remove(t.Context(), []uint64{99}), "it never was")
	assert.Empty(t, s.letters(deadletters.Filter{}, false))
}
