package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// arrays returns the ids in each record of a run of events in batch mode.
func arrays(t *testing.T, events []relay.Event, key keyFunc) (of [][]string, all []readRecord) {
	t.Helper()
	run := make([]int32, len(events))
	for i := range run {
		run[i] = int32(i)
	}
	all = records(t, encoded(t, events, run, form{key: key, mode: batchMode}, 0))
	for _, r := range all {
		var ids []string
		for text, err := range cloudevents.Split(r.Value) {
			require.NoError(t, err)
			e, err := cloudevents.ParseJSON(text)
			require.NoError(t, err)
			ids = append(ids, e.ID)
		}
		of = append(of, ids)
	}
	return of, all
}

// A record has consecutive events of one key, or of none.
func TestABatchRecordHasOneKey(t *testing.T) {
	t.Parallel()
	events := relaytest.Events(7)
	keys := []string{"a", "a", "", "", "b", "a", "a"}
	for i := range events {
		events[i].ID, events[i].Subject = fmt.Sprint(i), keys[i]
	}
	of, all := arrays(t, events, keyNamed("subject"))
	assert.Equal(t, [][]string{{"0", "1"}, {"2", "3"}, {"4"}, {"5", "6"}}, of)
	assert.Equal(t, [][]byte{[]byte("a"), nil, []byte("b"), []byte("a")}, [][]byte{all[0].Key, all[1].Key, all[2].Key, all[3].Key})
	of, all = arrays(t, events, keyNamed("none"))
	assert.Len(t, of, 1)
	assert.Nil(t, all[0].Key)
}

// A record has at most maxArray bytes, or one event, and as many events as fit.
func TestABatchRecordIsBounded(t *testing.T) {
	t.Parallel()
	events := relaytest.Events(500, relaytest.BodyBytes(617))
	events[200].Body = []byte(`"` + strings.Repeat("x", maxArray) + `"`)
	events[300].ContentType, events[300].Body = "text/plain", []byte(strings.Repeat("\x01", maxArray/12)) // each takes six bytes
	of, all := arrays(t, events, environmentKey)
	var ids []string
	for i, r := range all {
		ids = append(ids, of[i]...)
		if len(of[i]) > 1 {
			assert.LessOrEqual(t, len(r.Value), maxArray)
		}
		if i+1 < len(of) {
			first, _, _ := strings.Cut(string(all[i+1].Value), `},{"specversion"`)
			assert.Greater(t, len(r.Value)+len(first), maxArray, "record %d could hold one more", i)
		}
	}
	assert.Contains(t, of, []string{events[200].ID}, "the large event is alone")
	assert.Equal(t, idsOf(events), ids)
}

// Neither retention nor a search by time passes over an event: the time of a record is that of
// its latest event, if brokers take that time.
func TestTheTimeOfABatchRecord(t *testing.T) {
	t.Parallel()
	events := relaytest.Events(3)
	at := events[0].Received
	events[0].Time, events[1].Time, events[2].Time = at.Add(-time.Hour), at.Add(time.Minute), at.AddDate(1, 0, 0)
	events[2].Received = at.Add(time.Second)
	_, all := arrays(t, events, environmentKey)
	require.Len(t, all, 1)
	assert.Equal(t, at.Add(time.Minute).UnixMilli(), all[0].Time.UnixMilli())
}

func TestBatchModeAllocatesNothing(t *testing.T) {
	events := relaytest.Events(500)
	run := everyOther(len(events))
	var b batch
	f := form{key: environmentKey, mode: batchMode}
	assert.Zero(t, testing.AllocsPerRun(20, func() { _ = b.encode(events, run, f, 0) }))
}

// Whatever a batch contains, as much of it as can be read is read, and then the whole is shown
// as it is.
func TestHostileBatches(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 100_000)
	for value, want := range map[string][]string{
		`[{"a":1},{"b":2}]`:    {`{"a":1}`, `{"b":2}`},
		"[ {} ,\n[1] , null ]": {"{}", "[1]", "null"},
		`[]`:                   nil,
		``:                     nil,
		`{"a":1}`:              {`{"a":1}`},
		`[{"a":1},{"b":`:       {`{"a":1}`, `[{"a":1},{"b":`},
		`[{"a":1}]{"b":2}`:     {`{"a":1}`, `[{"a":1}]{"b":2}`},
		"\x00garbage":          {"\x00garbage"},
		"[{}," + deep:          {"{}", "[{}," + deep},
		`[` + strings.Repeat("0,", 100_000) + `0]`: slices.Repeat([]string{"0"}, 100_001),
	} {
		var read []string
		err := eachEvent(&protocol.Record{Value: protocol.NewBytes([]byte(value)), Headers: []protocol.Header{
			{Key: "Content-Type", Value: []byte(cloudevents.BatchMediaType + "; charset=utf-8")},
		}}, func(r Record) bool {
			assert.True(t, len(r.Body) == len(value) || cap(r.Body) <= 64, "an event keeps its batch in memory")
			read = append(read, string(r.Body))
			return true
		})
		require.NoError(t, err)
		require.Equal(t, want, read)
	}
}
