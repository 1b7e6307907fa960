package eventproof

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// A kill may fall between any two steps, and what commits told of is lost with it.
func TestSpansHaveNoGapAndNoOverlapOverKills(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 22))
	dir := t.TempDir()
	s := open(t, dir)
	events, had := int64(0), 0
	for range 6 {
		for range 1 + rng.IntN(30) {
			n := 1 + rng.IntN(30)
			s.push("event_log.LOGIN", n)
			events += int64(n)
			switch rng.IntN(6) {
			case 0:
				require.NoError(t, s.step(t.Context()))
			case 1:
				s.end()
			}
		}
		had = s.had
		s.shut() // the keeper does nothing then
		s = open(t, dir)
		s.had = had
	}
	s.end()
	spans := s.spans()
	counted := int64(0)
	for _, span := range spans {
		counted += span.Events
		s.requireRoot(span)
		assert.Empty(t, span.Missing)
		assert.Less(t, span.Events, int64(spanEvents+30), "a span ends with the record that fills it")
	}
	assert.Equal(t, events, counted)
	t.Logf("%d spans of %d events", len(spans), events)
	s.shut()
}

func TestTheRelaysOwnEventsMakeNoSpan(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	defer s.shut()
	for range 3 {
		s.push(Type, 1)
		s.push("trail.checkpoint", 1)
		s.end()
	}
	assert.Empty(t, s.spans(), "each span makes such an event, and would ask for the next")
	s.push("event_log.LOGIN", 1)
	s.end()
	spans := s.spans()
	require.Len(t, spans, 1)
	assert.EqualValues(t, 7, spans[0].Records, "they are proven with the next pushed event")
	s.end()
	assert.Len(t, s.spans(), 1)
}

// Without news of commits, the keeper reads the journal.
func TestWhatNobodyToldOfIsReadBack(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	defer s.shut()
	for range 20 {
		s.push("event_log.LOGIN", 1)
	}
	waiting, newest := s.inbox.take()
	require.Len(t, waiting, 20)
	require.EqualValues(t, 20, newest)
	s.inbox.put(waiting[6])
	s.inbox.put(waiting[19])
	s.end()
	spans := s.spans()
	require.Len(t, spans, 1)
	assert.EqualValues(t, 20, spans[0].Records)
	s.requireRoot(spans[0])
	s.Note(waiting[3]) // late news of a known record changes nothing
	s.push("event_log.LOGIN", 1)
	s.end()
	s.requireRoot(s.spans()[1])
}

// Records that were noted before the keeper began are not read, nor hashed, a second time.
func TestWhatWasNotedBeforeItBeganIsNotRead(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	defer s.shut()
	s.push("event_log.LOGIN", 1)
	s.push("event_log.LOGIN", 1)
	waiting, _ := s.inbox.take()
	waiting[1].Events = 5 // as the journal does not have it
	s.inbox.put(waiting[1])
	require.NoError(t, s.resume(t.Context()))
	require.NoError(t, s.take(t.Context()))
	require.NoError(t, s.reach(t.Context(), s.newest+1))
	assert.EqualValues(t, 1+5, s.open.span.Events)
}

func TestAnEntryOfUnknownFateIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	defer s.shut()
	s.push("event_log.LOGIN", 3)
	require.NoError(t, s.step(t.Context()))
	before := s.open
	s.end()
	s.open = before // as if the answer had been lost: the entry is there
	s.push("event_log.LOGIN", 4)
	s.due = time.Now()
	require.ErrorIs(t, s.step(t.Context()), errMoved)
	require.NoError(t, s.resume(t.Context()))
	s.end()
	spans := s.spans()
	require.Len(t, spans, 2)
	assert.EqualValues(t, 4, spans[1].Events)
}

func TestTrimmedPositionsAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	s.push("event_log.LOGIN", 1)
	s.end()
	for range 5 {
		s.pushLarge()
	}
	gone, err := s.journal.Trim(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, 5, gone, "the store keeps its newest segment")
	s.shut() // before a span was made
	s = open(t, dir)
	defer s.shut()
	s.end()
	spans := s.spans()
	require.Len(t, spans, 2)
	assert.Equal(t, []Missing{{From: 2, To: 5, Reason: reasonTrimmed}}, spans[1].Missing)
	s.requireRoot(spans[1])
}

// What commits told of is in the span, whatever is trimmed afterwards.
func TestTrimmingDoesNotWaitForSpans(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	defer s.shut()
	for range 4 {
		s.pushLarge()
	}
	_, err := s.journal.Trim(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	s.end()
	spans := s.spans()
	require.Len(t, spans, 1)
	assert.Empty(t, spans[0].Missing)
	assert.EqualValues(t, 4, spans[0].Records)
}

func TestDamagedPositionsAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for range 30 {
		s.push("event_log.LOGIN", 1)
	}
	s.shut()
	_, err := damage.Of(dir).FlipRecord(journal.EventsLog, 15)
	require.NoError(t, err)

	s = open(t, dir)
	defer s.shut()
	s.end()
	spans := s.spans()
	require.Len(t, spans, 1)
	require.Len(t, spans[0].Missing, 1, "%+v", spans)
	missing := spans[0].Missing[0]
	assert.Equal(t, reasonLost, missing.Reason)
	assert.Equal(t, missing.From, missing.To, "one flipped bit takes one record")
	assert.EqualValues(t, 29, spans[0].Records)
	waiting.Until(t, func() bool { // the start names them in the background
		quarantined, err := s.files.Quarantine.All(t.Context())
		return err == nil && len(quarantined) > 0
	})
	s.requireRoot(spans[0])
}
