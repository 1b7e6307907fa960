package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"
)

// eventBody is the body of the event of an entry with the state after.
func eventBody(tb testing.TB, after string) (body, record []byte) {
	tb.Helper()
	e := testEntry(1)
	e.After = json.RawMessage(after)
	record, err := encodeRecord(e)
	require.NoError(tb, err)
	body, err = EventBody(Recorded{Entry: e, Record: record}, Place{Index: 1, Origin: "o", Leaf: leafHash(record)}, maxEventBody)
	require.NoError(tb, err)
	return body, record
}

// Stores write JSON again: in another order, with spaces, other escapes and other numbers of
// equal value.
func TestAnEventWrittenAnewKeepsItsLeaf(t *testing.T) {
	t.Parallel()
	body, record := eventBody(t, `{"a":1e21,"é":"<&>","n":0.10}`)
	var members map[string]any
	require.NoError(t, json.Unmarshal(body, &members))
	anew, err := json.MarshalIndent(members, "", "  ")
	require.NoError(t, err)
	require.NotEqual(t, body, anew)
	for name, body := range map[string][]byte{
		"as sent":       body,
		"indented":      anew,
		"long number":   bytes.Replace(body, []byte("1e+21"), []byte("1000000000000000000000.0"), 1),
		"escaped":       bytes.Replace(body, []byte("é"), []byte(`\u00E9`), 1),
		"without trail": without(t, body, trailMember),
	} {
		_, leaf, err := ReadEvent(body)
		require.NoError(t, err, name)
		assert.Equal(t, string(record), string(leaf), name)
	}
}

func without(t *testing.T, body []byte, name string) []byte {
	t.Helper()
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(body, &members))
	delete(members, name)
	raw, err := json.Marshal(members)
	require.NoError(t, err)
	return raw
}

func TestAnEventWithoutItsLeafSaysWhy(t *testing.T) {
	t.Parallel()
	body, record := eventBody(t, `{"a":1,"note":"x"}`)
	sum := strings.Repeat("0a", 32)
	for name, c := range map[string]struct {
		body string
		is   error
		text string
	}{
		"redacted":          {strings.Replace(string(body), `"note":"x"`, `"note":"***"`, 1), ErrNotTheRecord, "entry 1 has the leaf"},
		"member removed":    {strings.Replace(string(body), `,"note":"x"`, ``, 1), ErrNotTheRecord, ""},
		"another event":     {`{"event_id":"x","action":"login"}`, ErrNoEntry, ""},
		"a checkpoint":      {`{"type":"trail.checkpoint","checkpoint":"x","project":"p","subject":"s"}`, ErrNoEntry, ""},
		"no object":         {`[1]`, nil, "cannot unmarshal"},
		"null":              {`null`, ErrNoEntry, ""},
		"no JSON":           {`{"type":`, nil, "make JSON canonical"},
		"duplicate name":    {strings.Replace(string(body), `"type":`, `"type":"x","type":`, 1), nil, "make JSON canonical"},
		"duplicate, hidden": {strings.Replace(string(body), `"type":`, `"\u0074ype":"x","type":`, 1), nil, "make JSON canonical"},
		"small omitted":     {`{"type":"t","project":"p","subject":"s","omitted":{"record_bytes":500,"record_sha256":"` + sum + `"}}`, ErrLeafOmitted, "500 bytes"},
		"odd omitted":       {`{"type":"t","project":"p","subject":"s","omitted":{"record_bytes":70000,"record_sha256":"0A"}}`, nil, "are not a record's"},
		"odd size":          {`{"type":"t","project":"p","subject":"s","omitted":{"record_bytes":-1,"record_sha256":"` + sum + `"}}`, nil, "are not a record's"},
		"no leaf":           {`{"type":"t","project":"p","subject":"s","trail":{"index":1}}`, nil, "it has no leaf"},
		"odd trail":         {`{"type":"t","project":"p","subject":"s","trail":7}`, nil, "read the member trail"},
	} {
		place, _, err := ReadEvent([]byte(c.body))
		require.Error(t, err, name)
		if c.is != nil {
			require.ErrorIs(t, err, c.is, name)
		}
		require.ErrorContains(t, err, c.text, name)
		if c.is == ErrNotTheRecord { //nolint:errorlint // the table's own value
			assert.Equal(t, leafHash(record), place.Leaf, "the root can be computed all the same: %s", name)
		}
	}
}

// FuzzReadEvent: a stranger's bytes give an error or a leaf, the same leaf for JSON of the
// same meaning, and never the leaf of another entry.
func FuzzReadEvent(f *testing.F) {
	body, _ := eventBody(f, `{"a":1e21,"é":"<&>"}`)
	f.Add(body)
	f.Add([]byte(`{"type":"t","project":"p","subject":"s","omitted":{"record_bytes":70000,"record_sha256":"` + strings.Repeat("0a", 32) + `"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		place, leaf, err := ReadEvent(body)
		if err != nil {
			require.Nil(t, leaf)
			return
		}
		if place != nil {
			require.Equal(t, place.Leaf, tlog.RecordHash(leaf))
		}
		if _, err := decodeRecord(leaf, 0); err != nil || !json.Valid(leaf) {
			return
		}
		_, again, err := ReadEvent(leaf)
		if bytes.HasPrefix(leaf, []byte(`{"record_bytes":`)) {
			return // a digest is no record
		}
		require.NoError(t, err)
		require.Equal(t, string(leaf), string(again))
	})
}
