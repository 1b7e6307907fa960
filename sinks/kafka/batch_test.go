package kafka

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func encoded(t testing.TB, events []relay.Event, run []int32, f form, c kafka.Compression) []byte {
	t.Helper()
	var b batch
	require.NoError(t, b.encode(events, run, f, c))
	return b.set
}

// readRecord is a record that does not depend on the batch's memory.
type readRecord struct {
	Time       time.Time
	Key, Value []byte
	Headers    []kafka.Header
}

// records reads a batch as kafka-go does, and checks its checksum.
func records(t testing.TB, set []byte) []readRecord {
	t.Helper()
	var rs protocol.RecordSet
	_, err := rs.ReadFrom(bytes.NewReader(set))
	require.NoError(t, err)
	var got []readRecord
	for {
		r, err := rs.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return got
		}
		require.NoError(t, err)
		require.Equal(t, int64(len(got)), r.Offset)
		got = append(got, readRecord{r.Time, all(t, r.Key), all(t, r.Value), r.Headers})
	}
}

// all returns nil for a null.
func all(t testing.TB, b kafka.Bytes) []byte {
	t.Helper()
	if b == nil {
		return nil
	}
	got, err := kafka.ReadAll(b)
	require.NoError(t, err)
	return append([]byte{}, got...)
}

// theirs is the same run as kafka-go encodes it.
func theirs(t testing.TB, events []relay.Event, run []int32, c kafka.Compression) []byte {
	t.Helper()
	var list []kafka.Record
	for _, i := range run {
		e := &events[i]
		r := kafka.Record{Time: recordTime(e), Value: kafka.NewBytes(append([]byte{}, e.Body...))}
		if key := environmentKey(nil, e); key != nil {
			r.Key = kafka.NewBytes(key)
		}
		for name, value := range e.Attributes {
			r.Headers = append(r.Headers, kafka.Header{Key: "ce_" + name, Value: []byte(value)})
		}
		if e.ContentType != "" {
			r.Headers = append(r.Headers, kafka.Header{Key: "content-type", Value: []byte(e.ContentType)})
		}
		list = append(list, r)
	}
	var b bytes.Buffer
	_, err := (&protocol.RecordSet{Version: 2, Attributes: protocol.Attributes(c), Records: kafka.NewRecordReader(list...)}).WriteTo(&b)
	require.NoError(t, err)
	return b.Bytes()
}

// edges are events at the limits of the format.
func edges() []relay.Event {
	events := relaytest.Events(6)
	events[0].Time = events[0].Time.Add(time.Hour) // later than those that follow
	events[1].Body = []byte{}
	events[2].Project, events[2].Environment = "", "" // no key
	events[3].Body = []byte(strings.Repeat("0123456789abcdef", 40_000))
	events[4].ID = strings.Repeat("long", 100)
	events[5].Time = time.Time{}
	return events
}

// Without compression the bytes are those of kafka-go.
func TestBatchIsKafkaGos(t *testing.T) {
	t.Parallel()
	events := append(edges(), relaytest.Events(500)...)
	for _, run := range [][]int32{{0}, {5, 4, 3, 2, 1, 0}, everyOther(len(events))} {
		require.Equal(t, theirs(t, events, run, 0), encoded(t, events, run, form{key: environmentKey}, 0))
	}
}

func everyOther(n int) []int32 {
	var run []int32
	for i := 0; i < n; i += 2 {
		run = append(run, int32(i))
	}
	return run
}

// Each compression contains the same records, even if the memory was used for something else
// before.
func TestBatchCompressed(t *testing.T) {
	t.Parallel()
	events := append(edges(), relaytest.Events(500)...)
	run := everyOther(len(events))
	want := records(t, theirs(t, events, run, 0))
	for _, c := range []kafka.Compression{0, kafka.Snappy, kafka.Lz4, kafka.Gzip, kafka.Zstd} {
		var b batch
		require.NoError(t, b.encode(events, []int32{3, 1}, form{key: environmentKey}, kafka.Gzip))
		for range 2 {
			require.NoError(t, b.encode(events, run, form{key: environmentKey}, c))
			require.Equal(t, want, records(t, b.set), c)
		}
	}
}

func TestBatchAllocatesNothing(t *testing.T) {
	events := relaytest.Events(500)
	run := everyOther(len(events))
	var b batch
	f := form{key: environmentKey}
	assert.Zero(t, testing.AllocsPerRun(20, func() { _ = b.encode(events, run, f, 0) }))
	// With the race detector, the encoder's pool loses what it holds.
	assert.Less(t, testing.AllocsPerRun(20, func() { _ = b.encode(events, run, f, kafka.Snappy) }), 10.0)
}

func FuzzBatch(f *testing.F) {
	f.Add("id", "/projects/p", "t", "p", "e", "application/json", []byte("{}"), int64(1), int64(2))
	f.Add("", "", "", "", "", "", []byte(nil), int64(-1), int64(1<<62))
	f.Fuzz(func(t *testing.T, id, source, kind, project, environment, media string, body []byte, at, received int64) {
		e := relay.Event{
			ID: id, Source: source, Type: kind, Project: project, Environment: environment, ContentType: media,
			Body: body, Time: time.Unix(0, at), Received: time.Unix(0, max(received, 1e6)),
		}
		events := []relay.Event{e, relaytest.Events(1)[0]}
		run := []int32{1, 0, 1}
		require.Equal(t, theirs(t, events, run, 0), encoded(t, events, run, form{key: environmentKey}, 0))
		require.Equal(t, records(t, theirs(t, events, run, 0)), records(t, encoded(t, events, run, form{key: environmentKey}, kafka.Snappy)))
	})
}
