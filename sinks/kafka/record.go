package kafka

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// record is the content of one Kafka record, in memory that is reused: an event, or in batch
// mode a run of events.
type record struct {
	key     []byte // nil means none
	value   []byte
	headers headers
	at      int64 // its timestamp

	shared    shared
	clock     cloudevents.Clock
	keyMemory []byte
	json      cloudevents.Encoder
	object    []byte // the value in structured mode

	array   cloudevents.Batch // the value in batch mode
	another []byte            // scratch: the next event's key
}

// form says how events become records.
type form struct {
	key  keyFunc
	mode mode
}

// mode is how a record's value holds events.
type mode byte

const (
	binaryMode     mode = iota // one event's body; its attributes are headers
	structuredMode             // one event as a JSON object
	batchMode                  // events of one key as a JSON array
)

// set makes r the record of the first events at the indexes in run, and returns how many it
// took: one, except in batch mode.
func (r *record) set(events []relay.Event, run []int32, f form) int {
	e := &events[run[0]]
	r.headers.reset()
	r.at = recordTime(e).UnixMilli()
	if r.key = f.key(r.keyMemory[:0], e); r.key != nil {
		r.keyMemory = r.key
	}
	switch f.mode {
	case batchMode:
		return r.setBatch(events, run, f.key)
	case structuredMode:
		r.object = r.json.Append(r.object[:0], e)
		r.value = r.object
		r.headers.add("content-type", cloudevents.MediaType)
	default:
		r.value = e.Body
		r.addHeaders(e)
	}
	return 1
}

// maxArray bounds the array of a record in batch mode, in bytes before compression. Several
// hundred events then share the cost of a record, so that a larger array would save brokers
// little. It is far below the usual limit of brokers and consumers, 1 MiB.
const maxArray = 128 << 10

// setBatch makes r the record of the events with one key at the start of run, up to maxArray
// bytes. Its timestamp is that of the latest event, since neither retention nor a search by
// time may pass over a record with a later event.
func (r *record) setBatch(events []relay.Event, run []int32, key keyFunc) int {
	r.array.Reset()
	n := 0
	for _, i := range run {
		e := &events[i]
		if n > 0 && !r.hasKeyOf(e, key) || !r.array.Add(e, maxArray) {
			break
		}
		r.at = max(r.at, recordTime(e).UnixMilli())
		n++
	}
	r.value = r.array.Text()
	r.headers.add("content-type", cloudevents.BatchMediaType)
	return n
}

func (r *record) hasKeyOf(e *relay.Event, key keyFunc) bool {
	another := key(r.another[:0], e)
	if another != nil {
		r.another = another
	}
	return (another == nil) == (r.key == nil) && bytes.Equal(another, r.key)
}

// forget drops the last events, and memory that has grown too large.
func (r *record) forget() {
	r.key, r.value = nil, nil
	r.shared.forget()
	if cap(r.object) > maxKeptBody {
		r.object = nil
	}
	r.array.Reset()
}

// append appends r in the form that it has in a batch. Its time and offset are relative to
// those of the batch's first record.
func (r *record) append(dst []byte, milliseconds, offset int64) []byte {
	const attributes = 1
	length := attributes + varintLen(milliseconds) + varintLen(offset) + r.keyLen() +
		varintLen(int64(len(r.value))) + len(r.value) + varintLen(int64(r.headers.count)) + len(r.headers.encoded)
	dst = binary.AppendVarint(dst, int64(length))
	dst = append(dst, 0)
	dst = binary.AppendVarint(dst, milliseconds)
	dst = binary.AppendVarint(dst, offset)
	if r.key == nil {
		dst = binary.AppendVarint(dst, -1)
	} else {
		dst = binary.AppendVarint(dst, int64(len(r.key)))
		dst = append(dst, r.key...)
	}
	// An empty body becomes an empty value and never a null, which deletes in a compacted
	// topic.
	dst = binary.AppendVarint(dst, int64(len(r.value)))
	dst = append(dst, r.value...)
	dst = binary.AppendVarint(dst, int64(r.headers.count))
	return append(dst, r.headers.encoded...)
}

func (r *record) keyLen() int {
	if r.key == nil {
		return varintLen(-1)
	}
	return varintLen(int64(len(r.key))) + len(r.key)
}

// maxAhead bounds how far the time of an event may be after its reception. Brokers refuse a
// record that is more than an hour ahead of their clock (KIP-937).
const maxAhead = 30 * time.Minute

// recordTime returns the event's own time, or the time of reception if brokers would refuse the
// former. ce_time is always the event's own.
func recordTime(e *relay.Event) time.Time {
	if e.Time.Unix() <= 0 || e.Time.Sub(e.Received) > maxAhead {
		return e.Received
	}
	return e.Time
}

// addHeaders adds the attributes of relay.Event.Attributes, in their order.
func (r *record) addHeaders(e *relay.Event) {
	r.shared.fit(e, &r.clock)
	r.headers.add("ce_specversion", relay.SpecVersion)
	r.headers.add("ce_id", e.ID)
	r.headers.join(&r.shared.source)
	r.headers.add("ce_type", e.Type)
	r.headers.optional("ce_subject", e.Subject)
	r.headers.time("ce_time", e.Time, &r.clock)
	r.headers.join(&r.shared.rest)
}

// recordSize estimates the bytes before compression of an event's record, or of its part of a
// batch's record. In JSON, a body that is not JSON takes a third more, and an escaped one even
// more. If a broker refuses it nevertheless, the limit is narrowed.
func recordSize(e *relay.Event) int64 {
	const names, times, rest = 120, 60, 30
	return int64(len(e.Body)+len(e.ID)+len(e.Source)+len(e.Type)+len(e.Subject)+len(e.ContentType)+
		2*(len(e.Project)+len(e.Environment))) + names + times + rest
}
