package ingest

import (
	"errors"
	"fmt"
	"net/http"
	"time"
	"unsafe"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/traces"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/wire"
	"github.com/auditrelay/auditrelay/relay"
)

// push is one push at work, with its memory. One goroutine uses it, and then another push
// does.
type push struct {
	limits config.IngestLimits
	lease  lease
	extra  int64 // bytes besides the buffers: of a decompressor, then of a decoder
	body   body
	query  wire.LabelSet // labels in the URL
	ids    ids
	recent Recent // nil for none
	batch  batch
	report report
	trace  *traces.Push // nil for none
}

// batch holds the entries of a push for the journal.
type batch struct {
	records record.Batch
	group   record.Group
	content string // the media type of the open group, "" for none
	entry   record.Entry

	keys       []EventKey // of the records
	epoch      uint64     // of push.recent, before the records are durable
	duplicates int        // entries already durable

	newest   int64
	lateness received.Lateness // of the records with a time of their own
	bytes    int64
	repeated int64 // bytes of the duplicates
	spread   int64 // of everything besides the bodies, counted with each event
}

func newPush(idKey secret.Text) *push { return &push{ids: newIDs(idKey)} }

// size is the memory of the push.
func (p *push) size() int64 {
	return int64(cap(p.body.raw)) + int64(cap(p.body.plain)) + int64(p.batch.records.Cap()) + int64(cap(p.batch.keys))*keySize + p.extra
}

const keySize = int64(unsafe.Sizeof(EventKey{}))

// keptSize bounds the memory a push keeps for the next one.
const keptSize = 4 << 20

// release gives the push's memory back to the pool, or to the collector.
func (h *Handler) release(p *push) {
	p.batch.records.Reset()
	p.extra = 0
	p.lease.release()
	p.body.raw, p.body.plain, p.body.decoded = p.body.raw[:0], p.body.plain[:0], nil
	p.body.source.Reset(nil)
	p.batch.group, p.batch.entry, p.report, p.query = record.Group{}, record.Entry{}, report{}, p.query.Kept()
	if p.size() <= keptSize {
		h.pushes.Put(p)
	}
}

// start prepares the push for decoding.
func (p *push) start(now time.Time, env credentials.Environment, source string, h *Handler) {
	p.limits, p.recent = h.limits, h.recent
	p.batch.keys, p.batch.duplicates = p.batch.keys[:0], 0
	if p.recent != nil {
		p.batch.epoch = p.recent.Epoch()
	}
	p.batch.group = record.Group{
		Source: source, Project: env.Project, Environment: env.Environment, Received: now,
	}
	p.batch.content = ""
	p.batch.newest, p.batch.lateness, p.batch.bytes, p.batch.repeated, p.batch.spread = 0, received.Lateness{}, 0, 0, 0
	p.report = report{most: h.limits.Entries}
}

func (p *push) decodeDatadog() error {
	limits := wire.DatadogLimits{Labels: p.labelLimit(), Line: int(p.limits.LineBytes)}
	if err := p.hold(limits.Room(len(p.body.decoded))); err != nil {
		return err
	}
	err := wire.DecodeDatadog(p.body.decoded, limits, p)
	if errors.Is(err, wire.ErrEmpty) {
		return &refusal{status: http.StatusBadRequest, reason: reasonEmpty, text: err.Error()}
	}
	return err
}

func (p *push) labelLimit() wire.LabelLimit {
	return wire.LabelLimit{Count: p.limits.Labels, Bytes: int(p.limits.LabelBytes)}
}

// queryLabels reads the attributes in the URL, as Datadog's intakes do.
func (p *push) queryLabels(r *http.Request) error {
	p.query.Reset(p.labelLimit())
	query := r.URL.RawQuery
	var err error
	for _, name := range [...]string{"ddsource", "hostname", "service"} {
		if v := queryValue(query, name); v != "" && err == nil {
			err = p.query.Add(relay.Label{Name: name, Value: v})
		}
	}
	if err == nil {
		err = wire.AddTags(&p.query, queryValue(query, "ddtags"))
	}
	p.batch.group.Labels = p.query.Labels
	if err != nil {
		return fmt.Errorf("the labels in the URL: %w", err)
	}
	return nil
}

// add takes an entry. After a nil error it is in the batch, or durable already.
func (p *push) add(body []byte) error {
	content := record.ContentType(body)
	if content != p.batch.content {
		p.batch.content, p.batch.group.ContentType = content, content
		p.batch.records.Begin(p.batch.group)
	}
	p.batch.entry.Body = body
	p.ids.identify(&p.batch.entry, p.batch.group.Source, content == record.ContentJSON)
	if err := p.account(); err != nil {
		return err
	}
	p.batch.newest = max(p.batch.newest, p.batch.entry.Time)
	if p.known() {
		p.batch.repeated += int64(len(body))
		return nil
	}
	p.batch.records.Add(&p.batch.entry)
	if late := p.batch.group.Received.UnixNano() - p.batch.entry.Time; late != 0 {
		p.batch.lateness.Add(time.Duration(late))
	}
	p.batch.bytes += int64(len(body))
	return nil
}

// known reports whether an earlier push made the entry durable.
//
// An entry still on its way to the disk does not count, in this push or another: skipped
// here, and failed there, it would be acknowledged and lost. So if an event comes again
// before its first push is done, it is stored twice.
func (p *push) known() bool {
	if p.recent == nil {
		return false
	}
	key := p.recent.Key(p.batch.group.Source, p.batch.entry.ID, p.batch.entry.Body)
	if p.recent.Has(key) {
		p.batch.duplicates++
		return true
	}
	p.batch.keys = append(p.batch.keys, key)
	return false
}

// taken counts the entries already durable, or durable with the batch.
func (p *push) taken() int { return p.batch.records.Len() + p.batch.duplicates }

// maxSpread bounds the bytes besides the bodies of a push's events, as a multiple of
// decompressed_bytes. A push holds a stream's labels once, but each sink gets them with
// every event.
const maxSpread = 8

// account makes room for the entry in the batch and for its key, within the budget. It
// bounds the bytes of labels twice: in the batch, before each run of events, and at the
// sinks.
func (p *push) account() error {
	const step = 256 << 10
	if len(p.batch.keys) == cap(p.batch.keys) && p.recent != nil {
		n := len(p.batch.keys) + 64
		if err := p.lease.grow(p.size() + int64(len(p.batch.keys)+n)*keySize); err != nil {
			return err
		}
		p.batch.keys = append(make([]EventKey, 0, len(p.batch.keys)+n), p.batch.keys...)
	}
	room := p.batch.records.Room(&p.batch.entry)
	size := p.batch.records.Size() + room
	if p.batch.spread += int64(room - len(p.batch.entry.Body)); p.batch.spread > maxSpread*int64(p.limits.DecompressedBytes) {
		return tooLarge("the labels of the body's entries are too many")
	}
	if size <= p.batch.records.Cap() {
		return nil
	}
	if int64(size) > 2*int64(p.limits.DecompressedBytes)+step {
		return tooLarge("the labels of the body's entries are too many")
	}
	size += max(size/4, min(size, step))
	if err := p.lease.grow(p.size() + int64(size)); err != nil { // the old memory counts until it is copied
		return err
	}
	p.batch.records.Grow(size)
	p.lease.shrink(p.size())
	return nil
}

// cost is what the push costs its environment's quota of bytes: its events, or all of a body that
// cannot be decoded, as far as it was decompressed. One that others left no memory for costs nothing.
func (p *push) cost(err error) int64 {
	if err != nil && asRefusal(err).retryAfter == 0 {
		return int64(max(len(p.body.raw), len(p.body.plain), len(p.body.decoded)))
	}
	return p.batch.bytes + p.batch.repeated
}

// Stream implements wire.Handler.
func (p *push) Stream(labels []relay.Label) error {
	p.batch.group.Labels = labels
	p.batch.content = "" // the next entry opens a group
	return nil
}

// Entry implements wire.Handler.
func (p *push) Entry(at wire.Place, e *wire.Entry) error {
	if err := p.report.count(1); err != nil {
		return err
	}
	if len(e.Body) > int(p.limits.LineBytes) {
		why := fmt.Errorf("the line has %d bytes, at most %d are taken", len(e.Body), p.limits.LineBytes)
		p.report.refuse(1, wire.Problem{Place: at, Err: why})
		return nil
	}
	p.batch.entry.Time, p.batch.entry.Labels = e.Time, e.Labels
	p.ids.id = p.ids.id[:0]
	if !e.Timed {
		// Without a time, two events of the same text would have one ID. Their arrival
		// tells them apart.
		p.batch.entry.Time = p.batch.group.Received.UnixNano()
		p.ids.id = appendOrdinal(p.ids.id, at.Entry)
	}
	return p.add(e.Body)
}

// Refuse implements wire.Handler.
func (p *push) Refuse(problem wire.Problem) error {
	p.report.refuse(problem.Entries, problem)
	return p.report.count(max(problem.Entries, 1))
}

// lokiError gives a push without streams the same status as Loki does.
func lokiError(err error) error {
	r := &refusal{status: http.StatusUnprocessableEntity, reason: reasonEmpty}
	switch {
	case !errors.Is(err, wire.ErrNoStreams):
		return err
	case errors.Is(err, wire.ErrOtherForm):
		r.reason = "malformed"
	}
	r.text = err.Error()
	return r
}

// reasonEmpty is that of a push without anything to take, such as the trial of a connection. It is not in
// the book of arrivals, since nothing is lost.
const reasonEmpty = "empty"
