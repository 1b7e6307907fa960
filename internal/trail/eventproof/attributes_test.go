package eventproof

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// Each attribute of an event is proven with it: a bundle with a forged one does not hold, one
// with the event's own is not one of a forged copy, and a span misses the event in such a copy.
func TestAForgedAttributeIsNotProven(t *testing.T) {
	t.Parallel()
	s, all := proven(t)
	defer s.shut()
	var list bytes.Buffer
	is := all[3]
	b, err := Prove(t.Context(), s.logs(), s.trail, QueryOf(&is))
	require.NoError(t, err)
	p, err := b.Verify()
	require.NoError(t, err)
	require.NoError(t, List(t.Context(), s.logs(), s.trail, b.EntryIndex, func(line any) error { return json.NewEncoder(&list).Encode(line) }))
	compareText := func(text []byte) int64 {
		c, err := Compare(bytes.NewReader(list.Bytes()), func(*ListHead) error { return nil }, bytes.NewReader(text))
		require.NoError(t, err)
		return c.Found
	}
	compare := func(e relay.Event) int64 { return compareText(cloudevents.AppendJSON(nil, &e)) }
	require.EqualValues(t, 1, compare(p.Event))
	for name, forge := range map[string]func(e *relay.Event){
		"id":           func(e *relay.Event) { e.ID = "other" },
		"source":       func(e *relay.Event) { e.Source = "/projects/other/environments/live" },
		"type":         func(e *relay.Event) { e.Type = "event_log.LOGOUT" },
		"subject":      func(e *relay.Event) { e.Subject += "other" },
		"time":         func(e *relay.Event) { e.Time = e.Time.Add(time.Nanosecond) },
		"project":      func(e *relay.Event) { e.Project = "other" },
		"environment":  func(e *relay.Event) { e.Environment += "other" },
		"received":     func(e *relay.Event) { e.Received = e.Received.Add(time.Nanosecond) },
		"no arrival":   func(e *relay.Event) { e.Received = time.Time{} },
		"body":         func(e *relay.Event) { e.Body = []byte(`{}`) },
		"a media type": func(e *relay.Event) { e.ContentType = "application/x+json" },
	} {
		forged := p.Event
		forge(&forged)
		changed := *b
		changed.CloudEvent = string(cloudevents.AppendJSON(nil, &forged))
		_, err = changed.Verify()
		require.Error(t, err, name)
		require.Error(t, p.Matches(QueryOf(&forged)), name)
		assert.Zero(t, compare(forged), name)
	}
	// A reader who takes the first of two equal names, or knows names as they are spelled, would
	// see a forged type.
	honest := cloudevents.AppendJSON(nil, &p.Event)
	for _, forged := range []string{`{"type":"event_log.FORGED",`, `{"Type":"event_log.FORGED",`} {
		text := append([]byte(forged), honest[1:]...)
		changed := *b
		changed.CloudEvent = string(text)
		_, err = changed.Verify()
		require.ErrorIs(t, err, cloudevents.ErrAmbiguous)
		assert.Zero(t, compareText(text), forged)
	}
}
