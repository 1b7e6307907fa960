package app

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/relay"
)

// recorded is an entry as the trail has it.
func recorded(t *testing.T, e audit.Entry, index int64) audit.Recorded {
	t.Helper()
	raw, err := json.Marshal(e)
	require.NoError(t, err)
	record, err := jsontext.Canonical(raw)
	require.NoError(t, err)
	e.Index = index
	leaf := record
	if len(record) > 1<<16-1 {
		leaf = fmt.Appendf(nil, `{"record_bytes":%d,"record_sha256":"%s"}`, len(record), jsontext.Hash(record))
	}
	return audit.Recorded{Entry: e, Record: record, Leaf: tlog.RecordHash(leaf)}
}

func placed(r audit.Recorded) audit.Place {
	return audit.Place{Index: r.Index, Origin: "origin", Leaf: r.Leaf, Size: r.Index + 1, Root: &tlog.Hash{2}}
}

// Whatever an entry holds and however small the server's messages are: its event gives its
// leaf, or says that it cannot, and gives the leaf's hash.
func TestAnEventSufficesForTheLeaf(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	ways := map[string]int{}
	for range 300 {
		e := randomEntry(rng)
		r := recorded(t, e, rng.Int64N(1<<40))
		event, err := eventOf("origin+1234", r, placed(r), []int{4 << 10, 40 << 10, 70 << 10, maxAuditEvent}[rng.IntN(4)])
		require.NoError(t, err)
		canonical, err := jsontext.Canonical(event.Body)
		require.NoError(t, err)
		require.Equal(t, string(canonical), string(event.Body), "the body is canonical")
		place, leaf, err := audit.ReadEvent(event.Body)
		require.NotNil(t, place)
		require.Equal(t, r.Leaf, place.Leaf, "%s", r.Record)
		short, large := len(event.Body) < len(r.Record), len(r.Record) > 1<<16-1
		ways[fmt.Sprint("short ", short, ", large ", large)]++
		if short && !large {
			require.ErrorIs(t, err, audit.ErrLeafOmitted)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, r.Leaf, tlog.RecordHash(leaf))
	}
	t.Log(ways)
	require.Len(t, ways, 4, "each way was taken")
}

func randomEntry(rng *rand.Rand) audit.Entry {
	e := audit.Entry{
		Type: "settings." + randomText(rng), Project: "p" + randomText(rng), Subject: "s" + randomText(rng),
		Time: time.Unix(0, rng.Int64()).UTC(), Before: randomJSON(rng, 4), Detail: randomJSON(rng, 2),
	}
	if rng.IntN(2) == 0 {
		e.Environment = randomText(rng)
	}
	if rng.IntN(3) > 0 {
		e.After = randomJSON(rng, 4)
	}
	if rng.IntN(3) == 0 {
		e.After = json.RawMessage(`"` + strings.Repeat("<é&", rng.IntN(1<<15)) + `"`)
	}
	return e
}

func randomText(rng *rand.Rand) string {
	letters := []rune("ab<>&\"\\/\u2028\n\x00é😀 trail omitted")
	text := make([]rune, rng.IntN(12))
	for i := range text {
		text[i] = letters[rng.IntN(len(letters))]
	}
	return string(text)
}

func randomJSON(rng *rand.Rand, depth int) json.RawMessage {
	var v any
	switch kind := rng.IntN(8); {
	case kind < 4 && depth > 0:
		object := map[string]any{"trail": 1, "omitted": nil}
		for range rng.IntN(5) {
			object[randomText(rng)] = randomJSON(rng, depth-1)
		}
		v = object
	case kind == 4 && depth > 0:
		v = []any{randomJSON(rng, depth-1), randomJSON(rng, depth-1)}
	case kind == 5:
		return json.RawMessage([]string{"1e21", "-0", "9007199254740993", "0.1", "1.0E-7", "123456789012345678901234567890"}[rng.IntN(6)])
	case kind == 6:
		v = rng.NormFloat64()
	case kind == 7:
		v = nil
	default:
		v = randomText(rng)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func TestAuditEntriesBecomeEvents(t *testing.T) {
	t.Parallel()
	e := audit.Entry{
		Type: "settings.changed", Project: "p", Environment: "e", Subject: "rbac_policy", Time: time.Unix(1, 0).UTC(),
		Before: json.RawMessage(`{"b": 1, "a": 2}`), After: json.RawMessage(`{}`),
	}
	event, err := eventOf("origin+1234", recorded(t, e, 7), audit.Place{Index: 7, Origin: "origin", Leaf: tlog.Hash{1}}, maxAuditEvent)
	require.NoError(t, err)
	assert.Equal(t, "origin+1234@7", event.ID)
	assert.Equal(t, relay.TrailSource, event.Source)
	assert.Contains(t, string(event.Body), `"before":{"a":2,"b":1}`, "canonical, as in the trail")
	assert.Contains(t, string(event.Body), `"trail":{"index":7,"leaf":"AQAA`, "with its place")
}

// A large entry keeps its changes, as far as there is room, and has the hashes of the rest.
func TestALargeEntryKeepsItsChanges(t *testing.T) {
	t.Parallel()
	changes := func(n, size int) json.RawMessage {
		list := make([]map[string]string, n)
		for i := range list {
			list[i] = map[string]string{"path": fmt.Sprintf("/%d", i), "new": strings.Repeat("é", size)}
		}
		raw, err := json.Marshal(map[string]any{"changes": list, "summary": "many"})
		require.NoError(t, err)
		return raw
	}
	noise := json.RawMessage(`{"noise":"` + strings.Repeat("y", maxAuditEvent) + `"}`)
	for name, c := range map[string]struct {
		detail     json.RawMessage
		some, omit bool
	}{
		"all changes":    {changes(3, 10), true, false},
		"some changes":   {changes(700, 1000), true, true},
		"no changes":     {nil, false, false},
		"another detail": {noise, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := audit.Entry{
				Type: "settings.changed", Project: "p", Subject: "email_templates", Time: time.Unix(1, 0).UTC(), Detail: c.detail,
				After: json.RawMessage(`"` + strings.Repeat("x", maxAuditEvent) + `"`),
			}
			r := recorded(t, e, 8)
			event, err := eventOf("origin+1234", r, placed(r), maxAuditEvent)
			require.NoError(t, err)
			require.LessOrEqual(t, len(event.Body), maxAuditEvent)
			var got struct {
				audit.Entry
				Omitted audit.Omitted
			}
			require.NoError(t, json.Unmarshal(event.Body, &got))
			require.Equal(t, []any{len(r.Record), jsontext.Hash(r.Record)}, []any{got.Omitted.RecordBytes, got.Omitted.RecordSHA256})
			canonical, err := jsontext.Canonical(event.Body)
			require.NoError(t, err)
			require.Equal(t, string(canonical), string(event.Body), "the body is canonical")
			_, leaf, err := audit.ReadEvent(event.Body)
			require.NoError(t, err)
			require.Equal(t, r.Leaf, tlog.RecordHash(leaf), "the leaf is of the whole record")
			require.Equal(t, jsontext.Hash(e.After), got.Omitted.AfterSHA256)
			require.Empty(t, got.After)
			require.Empty(t, got.Omitted.BeforeSHA256)
			require.Equal(t, c.omit, got.Omitted.Changes > 0)
			var detail struct{ Changes []json.RawMessage }
			if c.some {
				require.NoError(t, json.Unmarshal(got.Detail, &detail))
				require.Greater(t, len(detail.Changes), 2)
				if c.omit {
					require.Equal(t, 700, len(detail.Changes)+got.Omitted.Changes)
					require.Greater(t, len(event.Body), maxAuditEvent*9/10, "there is room for more")
				}
			}
		})
	}
}
