package kafka

import (
	"io"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/auditrelay/auditrelay/internal/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// recordReader gives kafka-go the records of a run of events, one at a time
// and each in the same memory, so that a record costs no allocation.
type recordReader struct {
	events []relay.Event
	run    []int32 // indexes into events, those still to be read
	form   form

	record     kafka.Record
	keyBytes   payload
	valueBytes payload
	headers    []kafka.Header
	buf        []byte // what key and headers point into
	object     []byte // in structured mode, the value
}

// form is what a record is made of.
type form struct {
	key        keyFunc
	structured bool // one JSON object; else the body, with headers
}

// read prepares r to read events at the indexes in run.
func (r *recordReader) read(events []relay.Event, run []int32, f form) {
	r.events, r.run, r.form = events, run, f
}

// ReadRecord implements kafka.RecordReader. The record is valid until the next call.
func (r *recordReader) ReadRecord() (*kafka.Record, error) {
	if len(r.run) == 0 {
		return nil, io.EOF
	}
	e := &r.events[r.run[0]]
	r.run = r.run[1:]
	r.buf, r.headers = r.buf[:0], r.headers[:0]

	r.record = kafka.Record{Time: recordTime(e), Value: &r.valueBytes}
	if key := r.form.key(r.buf, e); key != nil {
		r.keyBytes = payload{b: key}
		r.record.Key = &r.keyBytes
		r.buf = key
	}
	r.addContent(e)
	r.record.Headers = r.headers
	return &r.record, nil
}

// addContent sets the value, and adds the headers.
func (r *recordReader) addContent(e *relay.Event) {
	if r.form.structured {
		r.object = cloudevents.AppendJSON(r.object[:0], e)
		r.valueBytes = payload{b: r.object}
		r.header("content-type", cloudevents.MediaType)
		return
	}
	// An event with an empty body is an empty value and not a null one: a null
	// deletes, in a compacted topic.
	r.valueBytes = payload{b: e.Body}
	r.addHeaders(e)
}

// maxAhead is how far an event's time may lie behind its reception. Brokers
// refuse what is more than an hour ahead of their clock (KIP-937).
const maxAhead = 30 * time.Minute

// recordTime is the event's own time, or, where that is one that brokers
// refuse, the time of its reception. ce_time has it in any case.
func recordTime(e *relay.Event) time.Time {
	if e.Time.Unix() <= 0 || e.Time.Sub(e.Received) > maxAhead {
		return e.Received
	}
	return e.Time
}

// addHeaders follows relay.Event.Attributes, without its allocations.
func (r *recordReader) addHeaders(e *relay.Event) {
	r.header("ce_specversion", relay.SpecVersion)
	r.header("ce_id", e.ID)
	r.header("ce_source", e.Source)
	r.header("ce_type", e.Type)
	r.optional("ce_subject", e.Subject)
	r.timeHeader("ce_time", e.Time)
	r.optional("ce_project", e.Project)
	r.optional("ce_environment", e.Environment)
	r.timeHeader("ce_receivedtime", e.Received)
	r.optional("content-type", e.ContentType)
}

func (r *recordReader) header(name, value string) {
	start := len(r.buf)
	r.buf = append(r.buf, value...)
	r.headerSince(name, start)
}

func (r *recordReader) optional(name, value string) {
	if value != "" {
		r.header(name, value)
	}
}

func (r *recordReader) timeHeader(name string, t time.Time) {
	start := len(r.buf)
	r.buf = t.UTC().AppendFormat(r.buf, time.RFC3339Nano)
	r.headerSince(name, start)
}

// headerSince adds a header whose value stands in buf from start on. Where buf
// grows later, the value stays valid in the memory that it was written to.
func (r *recordReader) headerSince(name string, start int) {
	r.headers = append(r.headers, kafka.Header{Key: name, Value: r.buf[start:len(r.buf):len(r.buf)]})
}

// recordSize is about what a record of e takes before compression, in bytes. In
// structured mode a body that is no JSON takes up to a third more, or more still
// where much of it is escaped: what brokers say to that narrows the limit.
func recordSize(e *relay.Event) int64 {
	const names, times, rest = 120, 60, 30
	return int64(len(e.Body)+len(e.ID)+len(e.Source)+len(e.Type)+len(e.Subject)+len(e.ContentType)+
		2*(len(e.Project)+len(e.Environment))) + names + times + rest
}

// payload is a kafka.Bytes over memory that is not copied.
type payload struct{ b []byte }

func (p *payload) Len() int     { return len(p.b) }
func (p *payload) Close() error { return nil }

func (p *payload) Read(dst []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(dst, p.b)
	p.b = p.b[n:]
	return n, nil
}

// WriteTo spares io.Copy a buffer.
func (p *payload) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(p.b)
	p.b = p.b[n:]
	return int64(n), err
}
