package journal

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

func manyLabels(n int, value string) []relay.Label {
	all := make([]relay.Label, n)
	for i := range all {
		all[i] = relay.Label{Value: value}
	}
	return all
}

// manyOnes labels would take more than a piece, were they not cut.
const manyOnes = 500_000

// storedBombs are records of earlier versions with any number of labels: each takes little
// on disk.
func storedBombs() map[string]*record.Batch {
	one := func(labels int) *record.Entry {
		return &record.Entry{ID: []byte("e"), Body: []byte("{}"), Labels: manyLabels(labels, "")}
	}
	all := map[string]*record.Batch{}
	add := func(name string, common []relay.Label, e *record.Entry, n int) {
		b := &record.Batch{}
		b.Begin(record.Group{Source: "/projects/p", Project: "p", Received: time.Now(), Labels: common})
		for range n {
			b.Add(e)
		}
		all[name] = b
	}
	add("an event of very many labels", nil, one(manyOnes), 1)
	add("a stream of very many labels", manyLabels(manyOnes, ""), one(0), 3)
	add("a thousand labels copied for each event", manyLabels(1000, ""), one(1), 2000)
	add("a long label with each event", []relay.Label{{Name: "a", Value: strings.Repeat("x", 200<<10)}}, one(0), 2000)
	add("a long label is left out", []relay.Label{{Name: "a", Value: strings.Repeat("x", 2<<20)}}, one(0), 100)
	return all
}

// TestStoredBombs reads them by two sources at once, back, and as a span. Never is more of
// a record in memory than a piece and those read ahead.
func TestStoredBombs(t *testing.T) {
	dir := t.TempDir()
	bombs := storedBombs()
	total := 0
	o := open(t, dir, testConfig)
	for name, b := range bombs {
		require.NoError(t, o.Append(t.Context(), b), name)
		total += b.Len()
	}
	for _, again := range []bool{false, true} {
		if again {
			o.shut(t)
			o = open(t, dir, testConfig)
		}
		for _, name := range []string{"a", "b"} {
			s, err := o.Source(t.Context(), name, relay.BatchLimit{Events: 5000, Bytes: 4 << 20})
			require.NoError(t, err)
			n := 0
			for n < total {
				batch, err := s.Next(t.Context())
				require.NoError(t, err)
				require.LessOrEqual(t, written(batch.Events), record.PieceBytes+(1<<20))
				n += len(batch.Events)
				if again {
					require.NoError(t, s.Ack(t.Context(), batch.Position))
				}
			}
			require.Equal(t, total, n)
			s.Close()
		}
		n := 0
		require.NoError(t, o.ReadBack(t.Context(), time.Time{}, math.MaxUint64, func(events []relay.Event) bool {
			require.LessOrEqual(t, written(events), record.PieceBytes+(1<<20))
			n += len(events)
			return true
		}))
		assert.Equal(t, total, n)
		span, err := o.set.Span(t.Context(), time.Time{}, time.Time{}, relay.BatchLimit{Events: 5000, Bytes: 4 << 20}, nil)
		require.NoError(t, err)
		for {
			batch, err := span.Next(t.Context())
			if err != nil {
				require.ErrorIs(t, err, ErrSpanEnd)
				break
			}
			require.LessOrEqual(t, written(batch.Events), record.PieceBytes+(1<<20))
		}
		assert.EqualValues(t, total, span.Events)
	}
	state, err := o.state(t.Context())
	require.NoError(t, err)
	acked, _, err := o.position(t.Context(), "a", &state)
	require.NoError(t, err)
	assert.Equal(t, state.End, acked.pos, "all is acknowledged")
}

// written counts a sink's bytes for events, labels with each.
func written(events []relay.Event) (n int) {
	for i := range events {
		n += int(unsafe.Sizeof(events[i])) + len(events[i].Body)
		for _, l := range events[i].Labels {
			n += int(unsafe.Sizeof(l)) + len(l.Name) + len(l.Value)
		}
	}
	return n
}

func TestLabelsCutAreCounted(t *testing.T) {
	for name, b := range storedBombs() {
		data, n := b.Segment(0)
		r, err := record.Open(record.Append(nil, data, n))
		require.NoError(t, err, name)
		events, _, err := r.Next(nil, 1)
		require.NoError(t, err, name)
		labels := events[0].Labels
		kept, last := len(labels), labels[len(labels)-1]
		switch name {
		case "an event of very many labels", "a stream of very many labels":
			assert.Equal(t, record.MostLabels+1, kept, name)
			assert.Equal(t, relay.Label{Name: record.LabelsCut, Value: strconv.Itoa(manyOnes - record.MostLabels)}, last, name)
		case "a long label is left out":
			assert.Equal(t, []relay.Label{{Name: record.LabelsCut, Value: "1"}}, labels, name)
		default:
			assert.NotEqual(t, record.LabelsCut, last.Name, name)
		}
		assert.Equal(t, "{}", string(events[0].Body), name)
	}
}

// A record whose end cannot be read gives nothing at all, however early its first
// piece ends.
func TestDamageBehindTheFirstPiece(t *testing.T) {
	b := &record.Batch{}
	for range 5000 {
		b.Begin(record.Group{Source: "/projects/p"})
		b.Add(&record.Entry{ID: []byte("e"), Body: []byte("{}")})
	}
	cut := b.Bytes()[:b.Size()-1]
	for i, rec := range [][]byte{record.Append(nil, cut, 5000), record.Append(nil, b.Bytes(), 4999), record.Append(nil, b.Bytes(), 5001)} {
		r, err := record.Open(rec)
		require.NoError(t, err)
		events, _, err := r.Next(nil, 1)
		require.ErrorIs(t, err, record.ErrCorrupt, fmt.Sprint(i))
		require.Empty(t, events)
	}
}

// An acknowledgement of a piece covers the records before, and the record is read again
// from its start.
func TestAcknowledgePieces(t *testing.T) {
	dir := t.TempDir()
	o := open(t, dir, testConfig)
	small := &record.Batch{}
	small.Begin(record.Group{Source: "/projects/p"})
	small.Add(&record.Entry{ID: []byte("small"), Body: []byte("{}")})
	require.NoError(t, o.Append(t.Context(), small))
	large := storedBombs()["a thousand labels copied for each event"]
	require.NoError(t, o.Append(t.Context(), large))
	next := func(s *Source) relay.Batch {
		batch, err := s.Next(t.Context())
		require.NoError(t, err)
		return batch
	}
	s := o.source(t, "a")
	first := next(s)
	require.Equal(t, "small", first.Events[0].ID)
	second, third := next(s), next(s)
	require.Greater(t, second.Position, first.Position)
	require.Greater(t, third.Position, second.Position)
	require.NoError(t, s.Ack(t.Context(), second.Position))
	require.NoError(t, s.Ack(t.Context(), third.Position), "nothing is new before it")
	s.Close()
	o.shut(t)
	o = open(t, dir, testConfig)
	s = o.source(t, "a")
	defer s.Close()
	again := next(s)
	require.Len(t, again.Events, len(second.Events))
	require.Equal(t, "e", again.Events[0].ID, "what was acknowledged does not come again")
}

// A batch may hold a record, and a piece of the next one. Its acknowledgement covers only the record
// that is whole, and the last piece's covers both.
func TestAPieceSharesABatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := open(t, dir, testConfig)
	small := &record.Batch{}
	small.Begin(record.Group{Source: "/projects/p"})
	small.Add(&record.Entry{ID: []byte("small"), Body: []byte("{}")})
	large := storedBombs()["a thousand labels copied for each event"]
	for _, b := range []*record.Batch{small, large, small} {
		require.NoError(t, o.Append(t.Context(), b))
	}
	from := func() *Source {
		s, err := o.Source(t.Context(), "a", relay.BatchLimit{Events: 5000, Bytes: record.PieceBytes * 3 / 2})
		require.NoError(t, err)
		waiting.Until(t, func() bool { return len(s.decoded) == decodedAhead })
		return s
	}
	acked := func() (uint64, bool) {
		at, known, err := o.Acknowledged(t.Context(), "a")
		require.NoError(t, err)
		return at, known
	}
	s := from()
	first, err := s.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, "small", first.Events[0].ID)
	require.Greater(t, len(first.Events), 1, "a piece is in the same batch")
	assert.EqualValues(t, 1, DeliveredRecord(first.Position))
	require.NoError(t, s.Ack(t.Context(), first.Position))
	at, known := acked()
	assert.True(t, known)
	assert.EqualValues(t, 1, at, "the record in pieces is not covered")
	s.Close()
	o.shut(t)

	o = open(t, dir, testConfig)
	s = from()
	defer s.Close()
	events := read(t, s, large.Len()+1, true)
	assert.Equal(t, "e", events[0].ID, "it comes again from its start")
	assert.Equal(t, "small", events[len(events)-1].ID)
	at, _ = acked()
	assert.EqualValues(t, 3, at)
}
