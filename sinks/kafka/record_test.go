package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// The headers are those of relay.Event.Attributes, whichever attributes are empty.
func TestHeadersFollowAttributes(t *testing.T) {
	t.Parallel()
	full := relaytest.Events(1)[0]
	full.Subject = "user-1"
	bare := relay.Event{ID: "1", Source: "/projects/p", Type: "settings.changed"}
	for _, e := range []relay.Event{full, bare} {
		var want []kafka.Header
		for name, value := range e.Attributes {
			want = append(want, kafka.Header{Key: "ce_" + name, Value: []byte(value)})
		}
		if e.ContentType != "" {
			want = append(want, kafka.Header{Key: "content-type", Value: []byte(e.ContentType)})
		}
		assert.Equal(t, want, records(t, encoded(t, []relay.Event{e}, []int32{0}, form{key: environmentKey}, 0))[0].Headers)
	}
}

// The events of several pushes in one batch have their own headers each.
func TestHeadersOfOnePushAreNotAnothers(t *testing.T) {
	t.Parallel()
	first := relaytest.Events(1)[0]
	events := []relay.Event{first}
	for _, change := range []func(e *relay.Event){
		func(*relay.Event) {},
		func(e *relay.Event) { e.Received = e.Received.Add(time.Millisecond) },
		func(e *relay.Event) { e.Source += "/x" },
		func(e *relay.Event) { e.Project += "x" },
		func(e *relay.Event) { e.Environment = "" },
		func(e *relay.Event) { e.ContentType = "text/plain" },
	} {
		e := events[len(events)-1]
		change(&e)
		events = append(events, e)
	}
	var run []int32
	for i := range events {
		run = append(run, int32(i))
	}
	got := records(t, encoded(t, events, run, form{key: environmentKey}, 0))
	for i, e := range events {
		alone := records(t, encoded(t, []relay.Event{e}, []int32{0}, form{key: environmentKey}, 0))
		assert.Equal(t, alone[0].Headers, got[i].Headers, i)
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	events := relaytest.Events(3)
	events[1].Body = nil
	got := records(t, encoded(t, events, []int32{2, 1}, form{key: environmentKey}, 0))
	require.Len(t, got, 2)
	assert.Equal(t, string(events[2].Body), string(got[0].Value))
	assert.Equal(t, "acme/production", string(got[0].Key))
	assert.Equal(t, events[2].Time.UnixMilli(), got[0].Time.UnixMilli())
	assert.NotNil(t, got[1].Value, "an empty body must not be a tombstone")
	assert.Empty(t, got[1].Value)
}

func TestRecordTime(t *testing.T) {
	t.Parallel()
	received := time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct{ at, want time.Time }{
		"a year late":    {received.AddDate(-1, 0, 0), received.AddDate(-1, 0, 0)},
		"a little ahead": {received.Add(time.Minute), received.Add(time.Minute)},
		"far ahead":      {received.Add(2 * time.Hour), received},
		"the epoch":      {time.Unix(0, 0), received},
		"before it":      {time.Date(1800, 1, 1, 0, 0, 0, 0, time.UTC), received},
		"none":           {time.Time{}, received},
	} {
		assert.Equal(t, c.want, recordTime(&relay.Event{Time: c.at, Received: received}), name)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	e := relay.Event{ID: "i", Subject: "s", Project: "p", Environment: "e"}
	for name, want := range map[string]string{"environment": "p/e", "subject": "s", "id": "i"} {
		key := keyNamed(name)
		assert.Equal(t, want, string(key(nil, &e)))
		assert.Nil(t, key(nil, &relay.Event{}), "no key is nil, not empty")
	}
	e.Body = []byte(`{"user":{"id":"u-\u00e9"},"n":12.50,"t":true,"empty":"","null":null,"list":[{"x":"last"}]}`)
	for name, want := range map[string]string{"/user/id": "u-é", "/n": "12.50", "/t": "true", "/list/0/x": "last"} {
		key := keyNamed(name)
		assert.Equal(t, want, string(key(nil, &e)))
	}
	for _, name := range []string{"/nowhere", "/user", "/list", "/null", "/empty"} {
		key := keyNamed(name)
		assert.Nil(t, key(nil, &e), name)
		assert.Nil(t, key(make([]byte, 0, 9), &e), name)
	}
	none := keyNamed("none")
	assert.Nil(t, none(nil, &e))
	project := relay.Event{Project: "p"}
	assert.Equal(t, "p", string(environmentKey(nil, &project)))
}

func TestValidTopic(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "a.b_c-9", strings.Repeat("a", 249), "..."} {
		assert.True(t, validTopic(name), name)
	}
	for _, name := range []string{"", ".", "..", "a b", "a/b", "ä", strings.Repeat("a", 250), "a\x00"} {
		assert.False(t, validTopic(name), name)
	}
}

func FuzzTopicValue(f *testing.F) {
	for _, s := range []string{"", "event_log.Login", "a/b c", "\xff", "..", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got := topicValue([]byte("t."), value)
		assert.Len(t, got, len(value)+2)
		assert.True(t, len(got) > 249 || validTopic(string(got)), "%q", got)
	})
}
