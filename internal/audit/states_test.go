package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
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
func changes(t *testing.T, trail *Trail) (before, after []string) {
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
		after = append(after, string(state))
	}
	return before, after
}

// A state that an earlier entry has is stored as a reference, and every reader gets it whole.
func TestAStateIsStoredOnce(t *testing.T) {
	t.Parallel()
	js, _ := startServer(t, t.TempDir())
	trail := openTrail(t, js, testOptions(t))
	before, after := changes(t, trail)
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
	for _, i := range []int{6, 7} { // A again
		require.Contains(t, string(stored[i].Data), fmt.Sprintf(`"after_index":%d,"after_sha256":`, i-6))
		require.NotContains(t, string(stored[i].Data), `"after":`)
	}
	for name, read := range readers(trail) {
		got := read(t)
		require.Len(t, got, len(before), name)
		for i, e := range got {
			require.Equal(t, before[i], string(e.Before), "%s: entry %d", name, i)
			require.Equal(t, after[i], string(e.After), "%s: entry %d", name, i)
		}
	}
	requireWhole(t, trail, 12)
}

// getMessage is the Getter of an open trail.
func (t *Trail) getMessage(ctx context.Context, seq uint64) (Message, bool, error) {
	msg, err := t.entries.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Message{}, false, nil
	}
	if err != nil {
		return Message{}, false, err
	}
	return Message{msg.Sequence, msg.Subject, msg.Header, msg.Data}, true, nil
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
				assert.Equal(t, len(e.After) > 0, bytes.Contains(body, []byte(`"after":`)))
				if all = append(all, e.Entry); e.Index == trail.Size()-1 {
					cancel()
				}
				return nil
			})
			require.ErrorIs(t, err, context.Canceled)
			return all
		},
		"offline": func(t *testing.T) (all []Entry) {
			o := OpenOffline("TEST", trail.readStream, trail.getMessage)
			require.NoError(t, o.each(t.Context(), 0, func(e Recorded) error { all = append(all, e.Entry); return nil }))
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
	before, after := changes(t, trail)
	require.NoError(t, trail.Close(t.Context()))
	entries, checkpoints := messages(t, js, "TEST_AUDIT"), messages(t, js, "TEST_CHECKPOINTS")
	alter(entries[3])
	d := damageable{o: o, entries: entries, checkpoints: checkpoints}
	trail, _ = d.reopen(t, entries, checkpoints, 1)
	for _, name := range []string{"Each", "offline"} { // the others want each index
		for _, e := range readers(trail)[name](t) {
			switch e.Index {
			case 2, 5, 8: // refer to the lost entry 0, or the altered entry 3
				require.Nil(t, e.Before, "%s: entry %d", name, e.Index)
				require.NotEmpty(t, e.BeforeSHA256)
			case 12: // names the damage
				continue
			default:
				require.Equal(t, before[e.Index], string(e.Before), "%s: entry %d", name, e.Index)
			}
			if e.Index == 6 { // refers to the lost entry 0
				require.Nil(t, e.After, name)
				require.NotEmpty(t, e.AfterSHA256)
			} else if e.Index != 3 {
				require.Equal(t, after[e.Index], string(e.After), "%s: entry %d", name, e.Index)
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
	index := int64(0)
	for _, member := range []string{"before", "after"} {
		e := testEntry(1)
		e.After = nil
		e.BeforeSHA256, e.BeforeIndex = canonicalHashOf(longState(1)), &index
		e.AfterSHA256, e.AfterIndex = canonicalHashOf(longState(3)), &index
		record, err := encodeRecord(e)
		require.NoError(t, err)
		e.Before, e.After = longState(1), longState(3)
		whole, err := EventBody(Recorded{Entry: e, Record: record}, Place{Index: 1, Leaf: leafHash(record)})
		require.NoError(t, err)
		leaf, err := LeafOfEvent(whole)
		require.NoError(t, err)
		require.Equal(t, string(record), string(leaf))
		if e.Before = longState(2); member == "after" {
			e.Before, e.After = longState(1), longState(2)
		}
		body, err := EventBody(Recorded{Entry: e, Record: record}, Place{Index: 1, Leaf: leafHash(record)})
		require.NoError(t, err)
		_, err = LeafOfEvent(body)
		require.ErrorIs(t, err, ErrNotTheRecord)
		require.ErrorContains(t, err, "the state "+member)
	}
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
		require.LessOrEqual(t, s.size, maxStates/2)
	}
	require.LessOrEqual(t, len(s.young)+len(s.old), 10)
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
	canonical, err := jsondiff.Canonical(raw)
	if err != nil {
		panic(err)
	}
	return jsondiff.Hash(canonical)
}

// A setting goes through a few states, or from one to another and back: each is stored once,
// over restarts of the relay, also where it was short, or gone, between.
func TestStatesThatComeBackAreStoredOnce(t *testing.T) {
	t.Parallel()
	for name, cycle := range map[string][]int{"there and back": {1, 2}, "three": {1, 2, 3}, "gone between": {1, 0, 2, 0, 1, 2, 0, 0}} {
		js, _ := startServer(t, t.TempDir())
		o := testOptions(t)
		trail := openTrail(t, js, o)
		var states []string
		for i := range 24 {
			if i == 11 {
				require.NoError(t, trail.Close(t.Context()))
				trail = openTrail(t, js, o)
			}
			state := json.RawMessage("null")
			if n := cycle[i%len(cycle)]; n > 0 {
				state = longState(n)
			}
			change(t, trail, "resource.0", state)
			change(t, trail, "resource.1", longState(100+i)) // another setting, between
			states = append(states, string(state))
		}
		times := map[string]int{}
		for i, m := range messages(t, js, "TEST_AUDIT") {
			require.Equal(t, i > 1, bytes.Contains(m.Data, []byte(fmt.Sprintf(`"previous_index":%d,`, i-2))))
			for _, state := range states {
				if len(state) > referFrom && bytes.Contains(m.Data, []byte(state)) {
					times[state]++
					break
				}
			}
		}
		for state, n := range times {
			require.Equal(t, 1, n, "%s: %.40s", name, state)
		}
		for way, read := range readers(trail) {
			for i, e := range read(t) {
				if i%2 == 0 {
					require.Equal(t, states[i/2], string(e.After), "%s, %s: entry %d", name, way, i)
				}
			}
		}
	}
}

// The newest entry's state stands in an older entry, and that one is lost: the newest state
// known counts, as a newer entry may say otherwise. The next look enters the state again,
// whole, and as the state that stood; another state is a change from the known one, unsure.
func TestALostStateIsEnteredAgain(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	js, _ := startServer(t, t.TempDir())
	trail := openTrail(t, js, o)
	for _, n := range []int{1, 2, 1} {
		change(t, trail, "resource.0", longState(n))
	}
	require.NoError(t, trail.Close(t.Context()))
	d := damageable{o: o, entries: messages(t, js, "TEST_AUDIT"), checkpoints: messages(t, js, "TEST_CHECKPOINTS")}
	for _, now := range []int{1, 3} {
		d.o.KeyFile = copyKey(t, o.KeyFile, true)
		trail, _ := d.reopen(t, d.entries, d.checkpoints, 1)
		last, found, err := trail.Last(t.Context(), "acme", "live", "resource.0")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, string(longState(2)), string(last.After))
		require.True(t, last.Unsure)
		require.Equal(t, int64(2), last.Unknown.Index)
		var before json.RawMessage
		for range 2 { // the second time there is nothing to enter
			_, err = Update(t.Context(), trail, "acme", "live", "resource.0", func(last Entry, _ bool) (*Entry, error) {
				if string(last.After) == string(longState(now)) && !last.Unsure {
					return nil, nil //nolint:nilnil // as looks do
				}
				e := testEntry(0)
				before = last.After
				e.Before, e.After = last.After, longState(now)
				return &e, nil
			})
			require.NoError(t, err)
		}
		if now == 1 {
			require.Equal(t, string(longState(1)), string(before), "no change")
		} else {
			require.Equal(t, string(longState(2)), string(before))
		}
		require.Equal(t, int64(5), trail.Size(), "two changes, the lost one, the naming, and one new entry")
		last, found, err = trail.Last(t.Context(), "acme", "live", "resource.0")
		require.NoError(t, err)
		require.True(t, found)
		require.Nil(t, last.Unknown)
		require.Nil(t, last.AfterIndex, "stored whole")
		require.Equal(t, string(longState(now)), string(last.After))
		require.NoError(t, trail.Close(t.Context()))
	}
}

// No entry refers to one that is lost, though a sound one does.
func TestALostStateIsNotReferredTo(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	js, _ := startServer(t, t.TempDir())
	trail := openTrail(t, js, o)
	for _, n := range []int{1, 2, 1, 3} {
		change(t, trail, "resource.0", longState(n))
	}
	require.NoError(t, trail.Close(t.Context()))
	d := damageable{o: o}
	trail, _ = d.reopen(t, messages(t, js, "TEST_AUDIT"), messages(t, js, "TEST_CHECKPOINTS"), 1)
	for _, n := range []int{1, 2, 1} {
		change(t, trail, "resource.0", longState(n))
	}
	for index, holder := range map[int64]int64{5: 5, 6: 1, 7: 5} { // 4 names the damage
		e, err := trail.Get(t.Context(), index)
		require.NoError(t, err)
		require.NotNil(t, e.After)
		if holder == index {
			require.Nil(t, e.AfterIndex, "entry %d", index)
		} else {
			require.Equal(t, holder, *e.AfterIndex, "entry %d", index)
		}
	}
}

// An earlier version wrote references to states before only, and no previous_index.
func TestReferencesOfEarlierVersions(t *testing.T) {
	t.Parallel()
	js, _ := startServer(t, t.TempDir())
	trail := openTrail(t, js, testOptions(t))
	change(t, trail, "resource.0", longState(1))
	index, e := int64(0), testEntry(0)
	e.BeforeSHA256, e.BeforeIndex, e.After = canonicalHashOf(longState(1)), &index, longState(2)
	_, err := trail.Append(t.Context(), e)
	require.NoError(t, err)
	change(t, trail, "resource.0", longState(1))
	got, err := trail.Read(t.Context(), 0, 3)
	require.NoError(t, err)
	require.Equal(t, string(longState(1)), string(got[1].Before))
	require.Equal(t, int64(0), *got[2].AfterIndex, "found by before_index")
	require.Equal(t, string(longState(1)), string(got[2].After))
	requireWhole(t, trail, 3)
}
