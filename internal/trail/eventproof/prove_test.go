package eventproof

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/relay"
)

// proven makes a journal of some spans, and returns it with its events.
func proven(t *testing.T) (*scene, []relay.Event) {
	s := open(t, t.TempDir())
	rng := rand.New(rand.NewPCG(3, 4))
	var all []relay.Event
	for range 40 {
		all = append(all, s.push("event_log.LOGIN", 1+rng.IntN(20))...)
		require.NoError(t, s.step(t.Context()))
	}
	s.end()
	return s, all
}

func TestAnyEventCanBeProven(t *testing.T) {
	t.Parallel()
	s, all := proven(t)
	defer s.shut()
	for i := 0; i < len(all); i += 1 + i%11 {
		q := Query{ID: all[i].ID}
		if i%2 == 0 {
			q = QueryOf(&all[i])
		}
		b, err := Prove(t.Context(), s.logs(), s.trail, q)
		require.NoError(t, err)
		text, err := json.Marshal(b)
		require.NoError(t, err)
		b, err = ParseBundle(text)
		require.NoError(t, err)
		p, err := b.Verify()
		require.NoError(t, err)
		require.NoError(t, p.Matches(QueryOf(&all[i])))
	}
	_, err := Prove(t.Context(), s.logs(), s.trail, Query{ID: "nobody's"})
	require.ErrorIs(t, err, ErrNotFound)
	changed := all[7]
	changed.Body = append(slices.Clone(changed.Body), ' ')
	_, err = Prove(t.Context(), s.logs(), s.trail, QueryOf(&changed))
	require.ErrorIs(t, err, ErrNotFound)
}

// A pushed event that came twice stands at two positions, and each has its proof.
func TestAnEventStoredTwiceIsProvenByPosition(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	defer s.shut()
	first := s.push("event_log.LOGIN", 1)
	s.had--
	second := s.push("event_log.LOGIN", 1)
	require.Equal(t, first[0].ID, second[0].ID)
	s.end()
	for i, e := range []relay.Event{first[0], second[0]} {
		b, err := Prove(t.Context(), s.logs(), s.trail, QueryOf(&e))
		require.NoError(t, err)
		assert.EqualValues(t, i+1, b.Position)
	}
}

func TestAChangedBundleProvesNothing(t *testing.T) {
	t.Parallel()
	s, all := proven(t)
	defer s.shut()
	e := &all[len(all)/2]
	sound, err := Prove(t.Context(), s.logs(), s.trail, QueryOf(e))
	require.NoError(t, err)
	require.Greater(t, len(sound.Path), 1)
	holds := func(b *Bundle) bool {
		p, err := b.Verify()
		return err == nil && p.Matches(QueryOf(e)) == nil && b.Entry == sound.Entry // the trail's proof is for this entry
	}
	require.True(t, holds(sound))
	for name, change := range map[string]func(b *Bundle){
		"position": func(b *Bundle) { b.Position++ },
		"leaf":     func(b *Bundle) { b.Leaf++ },
		"event":    func(b *Bundle) { b.Event++ },
		"path":     func(b *Bundle) { b.Path[0], b.Path[1] = b.Path[1], b.Path[0] },
		"shorter":  func(b *Bundle) { b.Path = b.Path[1:] },
		"longer":   func(b *Bundle) { b.Path = append(b.Path, b.Path[0]) },
		"no event": func(b *Bundle) { b.Event = -1 },
	} {
		b := *sound
		b.Path = slices.Clone(sound.Path)
		change(&b)
		assert.False(t, holds(&b), name)
	}
	require.Greater(t, len(sound.EventPath), 1)
	for name, change := range map[string]func(b *Bundle){
		"events":     func(b *Bundle) { b.RecordEvents++ },
		"salt":       func(b *Bundle) { b.Salt[0] ^= 1 },
		"no salt":    func(b *Bundle) { b.Salt = nil },
		"long salt":  func(b *Bundle) { b.Salt = append(b.Salt, 0) },
		"root":       func(b *Bundle) { b.RecordRoot[0] ^= 1 },
		"other":      func(b *Bundle) { b.CloudEvent = string(cloudevents.AppendJSON(nil, &all[0])) },
		"event path": func(b *Bundle) { b.EventPath[0], b.EventPath[1] = b.EventPath[1], b.EventPath[0] },
		"longer":     func(b *Bundle) { b.EventPath = append(b.EventPath, tlog.Hash{}) },
	} {
		b := *sound
		b.Salt, b.EventPath = slices.Clone(b.Salt), slices.Clone(b.EventPath)
		change(&b)
		assert.False(t, holds(&b), name)
	}
	for _, records := range []string{"0", "4611686018427387905", "9223372036854775807"} { // the last two once took for ever
		b := *sound
		b.Entry = regexp.MustCompile(`"records":\d+`).ReplaceAllString(sound.Entry, `"records":`+records)
		require.NotEqual(t, sound.Entry, b.Entry)
		_, err := b.Verify()
		require.Error(t, err, records)
		b = *sound
		b.RecordEvents = math.MaxInt
		_, err = b.Verify()
		require.Error(t, err)
	}
	for i := range sound.Entry {
		b := *sound
		entry := []byte(sound.Entry)
		entry[i] ^= 1
		b.Entry = string(entry)
		assert.False(t, holds(&b), "byte %d of the entry", i)
	}
}

// An event of a large commit is proven without the others, too.
func TestAnEventOfALargeRecord(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	defer s.shut()
	events := s.push("event_log.LOGIN", 2000)
	s.end()
	b, err := Prove(t.Context(), s.logs(), s.trail, QueryOf(&events[1234]))
	require.NoError(t, err)
	assert.Equal(t, 1234, b.Event)
	text, err := json.Marshal(b)
	require.NoError(t, err)
	assert.Less(t, len(text), 8<<10)
	p, err := b.Verify()
	require.NoError(t, err)
	require.NoError(t, p.Matches(QueryOf(&events[1234])))
}

// Records moved, removed, added or exchanged do not give the span's root.
func TestOtherRecordsDoNotGiveTheRoot(t *testing.T) {
	t.Parallel()
	s, _ := proven(t)
	defer s.shut()
	holds := func(span Span, leaves []tlog.Hash) error {
		tree := proof.Edge{}.With(leaves...)
		return span.holds(&tree)
	}
	for _, span := range s.spans() {
		leaves := s.leaves(span)
		require.NoError(t, holds(span, leaves))
		for i := range leaves {
			gone := slices.Delete(slices.Clone(leaves), i, i+1)
			twice := slices.Insert(slices.Clone(leaves), i, leaves[i])
			flipped := slices.Clone(leaves)
			flipped[i][0] ^= 1
			moved := slices.Clone(leaves)
			moved[i], moved[(i+1)%len(moved)] = moved[(i+1)%len(moved)], moved[i]
			for _, others := range [][]tlog.Hash{gone, twice, flipped, moved} {
				if slices.Equal(others, leaves) { // a span of one record
					continue
				}
				require.Error(t, holds(span, others))
				counted := span
				counted.Records = int64(len(others))
				require.Error(t, holds(counted, others))
			}
		}
	}
}

// A path leads from each leaf to the root, in a tree of any size.
func TestPathsLeadToTheRoot(t *testing.T) {
	t.Parallel()
	var leaves []tlog.Hash
	for n := range int64(70) {
		leaves = append(leaves, tlog.RecordHash([]byte{byte(n)}))
		root := proof.Edge{}.With(leaves...).Root()
		for leaf := range n + 1 {
			require.NoError(t, tlog.CheckRecord(pathIn(leaves, leaf), n+1, root, leaf, leaves[leaf]))
		}
	}
}

func FuzzParseBundle(f *testing.F) {
	f.Add([]byte(`{"format":"auditrelay.event-proof/1","position":1,"event":0,"cloud_event":"{}","salt":"QVJKMQ==","record_events":1,"leaf":0,"path":[],"entry_index":0,"entry":"{}"}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		if b, err := ParseBundle(text); err == nil {
			_, _ = b.Verify()
		}
	})
}
