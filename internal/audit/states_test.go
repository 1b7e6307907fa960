package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func longState(i int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"html":%q,"value":%d}`, strings.Repeat("<p>", 200), i))
}

// change appends the next state of a resource, as a look at the settings does.
func change(t *testing.T, trail *Trail, subject string, to json.RawMessage) *Entry {
	t.Helper()
	e, err := Update(t.Context(), trail, "acme", "live", subject, func(last Entry, found bool) (*Entry, error) {
		next := testEntry(0)
		next.Subject, next.After = subject, to
		if found {
			next.Before = last.After
		}
		return &next, nil
	})
	require.NoError(t, err)
	return e
}

// changes makes a trail of two resources, their states long and short in turn, A → B → A too.
func changes(t *testing.T, trail *Trail) (before []string) {
	t.Helper()
	now := map[string]string{}
	for i := range 12 {
		subject := fmt.Sprintf("resource.%d", i%2)
		state := longState(i / 2 % 3)
		if i > 7 {
			state = json.RawMessage(fmt.Sprintf(`{"short":%d}`, i))
		}
		e := change(t, trail, subject, state)
		require.Equal(t, now[subject], string(e.Before), "the caller's entry stays whole")
		before = append(before, now[subject])
		now[subject] = string(state)
	}
	return before
}

// A state before is stored as a reference, and every reader gets it whole.
func TestAStateIsStoredOnce(t *testing.T) {
	t.Parallel()
	js, _ := startServer(t, t.TempDir())
	trail := openTrail(t, js, testOptions(t))
	before := changes(t, trail)
	stored := messages(t, js, "TEST_AUDIT")
	references := 0
	for i, m := range stored {
		if bytes.Contains(m.Data, []byte(`"before_sha256"`)) {
			references++
			require.NotContains(t, string(m.Data), `"before":`, "entry %d", i)
			require.Less(t, len(m.Data), 2*referFrom+len(longState(0)))
		}
	}
	require.Equal(t, 8, references, "entries with a long state before")
	for name, read := range readers(trail) {
		got := read(t)
		require.Len(t, got, len(before), name)
		for i, e := range got {
			require.Equal(t, before[i], string(e.Before), "%s: entry %d", name, i)
		}
	}
	requireWhole(t, trail, 12)
}

// readers are the ways to read all entries.
func readers(trail *Trail) map[string]func(t *testing.T) []Entry {
	return map[string]func(t *testing.T) []Entry{
		"Get": func(t *testing.T) (all []Entry) {
			for i := range trail.Size() {
				e, err := trail.Get(t.Context(), i)
				require.NoError(t, err)
				all = append(all, e.Entry)
			}
			return all
		},
		"Each": func(t *testing.T) (all []Entry) {
			require.NoError(t, trail.Each(t.Context(), 0, func(e Recorded) error { all = append(all, e.Entry); return nil }))
			return all
		},
		"Each from the middle": func(t *testing.T) (all []Entry) {
			all, err := trail.Read(t.Context(), 0, 5)
			require.NoError(t, err)
			require.NoError(t, trail.Each(t.Context(), 5, func(e Recorded) error { all = append(all, e.Entry); return nil }))
			return all
		},
		"Follow": func(t *testing.T) (all []Entry) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := trail.Follow(ctx, "journal", func(_ context.Context, e Recorded) error {
				body, err := EventBody(e, Place{Index: e.Index, Leaf: e.Leaf})
				require.NoError(t, err)
				leaf, err := LeafOfEvent(body)
				require.NoError(t, err)
				assert.Equal(t, string(e.Record), string(leaf), "the event has the state, and gives the leaf without")
				assert.Equal(t, len(e.Before) > 0, bytes.Contains(body, []byte(`"before":`)))
				if all = append(all, e.Entry); e.Index == trail.Size()-1 {
					cancel()
				}
				return nil
			})
			require.ErrorIs(t, err, context.Canceled)
			return all
		},
		"offline": func(t *testing.T) (all []Entry) {
			o := OpenOffline("TEST", trail.readStream)
			require.NoError(t, o.each(t.Context(), func(e Recorded) error { all = append(all, e.Entry); return nil }))
			last, err := o.Get(t.Context(), all[7].Index)
			require.NoError(t, err)
			require.Equal(t, all[7], last.Entry)
			return all
		},
	}
}

// The entry that has the state is lost, or altered: the state before is not known, by its
// hash, and nothing else suffers.
func TestALostStateIsNotKnown(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	js, _ := startServer(t, t.TempDir())
	trail := openTrail(t, js, o)
	before := changes(t, trail)
	require.NoError(t, trail.Close(t.Context()))
	entries, checkpoints := messages(t, js, "TEST_AUDIT"), messages(t, js, "TEST_CHECKPOINTS")
	alter(entries[3])
	d := damageable{o: o, entries: entries, checkpoints: checkpoints}
	trail, _ = d.reopen(t, entries, checkpoints, 1)
	for _, name := range []string{"Each", "offline"} { // the others want each index
		for _, e := range readers(trail)[name](t) {
			switch e.Index {
			case 2, 5: // behind the lost entry 0, and the altered entry 3
				require.Nil(t, e.Before, "%s: entry %d", name, e.Index)
				require.NotEmpty(t, e.BeforeSHA256)
			case 12: // names the damage
			default:
				require.Equal(t, before[e.Index], string(e.Before), "%s: entry %d", name, e.Index)
			}
		}
	}
	last, found, err := trail.Last(t.Context(), "acme", "live", "resource.0")
	require.NoError(t, err)
	require.True(t, found)
	require.JSONEq(t, `{"short":10}`, string(last.After))
}

// Another state before than the one referred to does not pass.
func TestAnotherStateBeforeIsFound(t *testing.T) {
	t.Parallel()
	e := testEntry(1)
	e.Before = longState(1)
	e.refer(&Entry{Index: 0, After: longState(1)})
	require.Nil(t, e.Before)
	record, err := encodeRecord(e)
	require.NoError(t, err)
	e.Before = longState(2)
	body, err := EventBody(Recorded{Entry: e, Record: record}, Place{Index: 1, Leaf: leafHash(record)})
	require.NoError(t, err)
	_, err = LeafOfEvent(body)
	require.ErrorIs(t, err, ErrNotTheRecord)
}

// A pass remembers a bounded number of bytes, however many resources there are.
func TestAPassRemembersFewStates(t *testing.T) {
	t.Parallel()
	reads := 0
	s := states{after: func(context.Context, int64) (json.RawMessage, error) {
		reads++
		return nil, nil
	}}
	after := json.RawMessage(`"` + strings.Repeat("x", maxStates/10) + `"`)
	for i := range 50 {
		e := testEntry(i)
		e.Index, e.Subject, e.After = int64(i), fmt.Sprint("s", i), after
		require.NoError(t, s.complete(t.Context(), &e))
		require.LessOrEqual(t, s.size, maxStates)
	}
	require.Len(t, s.newest, 9)
	old := int64(49)
	e := testEntry(49)
	e.Subject, e.Index, e.BeforeIndex, e.BeforeSHA256 = "s49", 50, &old, canonicalHashOf(after)
	require.NoError(t, s.complete(t.Context(), &e))
	require.Equal(t, string(after), string(e.Before))
	require.Zero(t, reads)
	ahead := int64(99)
	e.Before, e.BeforeIndex = nil, &ahead
	require.NoError(t, s.complete(t.Context(), &e))
	require.Nil(t, e.Before, "no entry refers to a later one")
}

func canonicalHashOf(raw json.RawMessage) string {
	e := Entry{Before: raw}
	e.refer(&Entry{After: raw})
	return e.BeforeSHA256
}
