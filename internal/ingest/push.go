package ingest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash"
	"net/http"
	"strings"
	"time"
	"unsafe"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/credentials"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/json/jsonscan"
	"github.com/auditrelay/auditrelay/internal/recent"
	"github.com/auditrelay/auditrelay/internal/wire/datadog"
	"github.com/auditrelay/auditrelay/internal/wire/labelset"
	"github.com/auditrelay/auditrelay/internal/wire/loki"
	"github.com/auditrelay/auditrelay/relay"
)

// push is one push that is worked on, with the memory for it. It is used by
// one goroutine, and then by another push.
type push struct {
	lease  lease
	raw    []byte // the body as sent
	plain  []byte // the body decompressed
	body   []byte // what is decoded: raw or plain
	source bytes.Reader
	extra  int64 // bytes beside the buffers: of a decompressor, then of a decoder

	batch   journal.Batch
	group   journal.Group
	content string // the media type of the open group, "" for none
	entry   journal.Entry

	recent     Recent       // nil for none
	keys       []recent.Key // of what is in batch
	epoch      uint64       // of recent, before the batch is durable
	duplicates int          // entries that are durable already

	limits   config.IngestLimits
	entries  int // taken and not
	newest   int64
	bytes    int64
	spread   int64    // what stands beside the bodies, counted with each event
	refused  int      // entries that were not taken
	problems int      // what is wrong with them, or with streams without entries
	named    []string // the first problems

	query  labelset.Set // labels in the URL
	wanted [2]jsonscan.Wanted
	digest hash.Hash
	sum    [sha256.Size]byte
	id     []byte // an ordinal first, then the ID, where that is a hash
	head   []byte
	typ    []byte
}

func newPush(idKey secret.Text) *push {
	return &push{
		digest: hmac.New(sha256.New, []byte(idKey.Reveal())), typ: append([]byte(nil), typePrefix...),
		wanted: [2]jsonscan.Wanted{{Quoted: `"event_id"`}, {Quoted: `"action"`}},
	}
}

// size is the memory that the push has.
func (p *push) size() int64 {
	return int64(cap(p.raw)) + int64(cap(p.plain)) + int64(p.batch.Cap()) + int64(cap(p.keys))*keySize + p.extra
}

const keySize = int64(unsafe.Sizeof(recent.Key{}))

// keptSize is how much memory a push may keep for the next one.
const keptSize = 4 << 20

// release gives the push's memory back, or away.
func (h *Handler) release(p *push) {
	p.batch.Reset()
	p.extra = 0
	p.lease.release()
	p.raw, p.plain, p.body = p.raw[:0], p.plain[:0], nil
	p.source.Reset(nil)
	p.group, p.entry, p.named, p.query = journal.Group{}, journal.Entry{}, nil, p.query.Kept()
	if p.size() <= keptSize {
		h.pushes.Put(p)
	}
}

// start makes the push ready to be decoded.
func (p *push) start(now time.Time, env credentials.Environment, h *Handler) {
	p.limits, p.recent = h.limits, h.recent
	p.keys, p.duplicates = p.keys[:0], 0
	if p.recent != nil {
		p.epoch = p.recent.Epoch()
	}
	p.group = journal.Group{
		Source:  relay.SourceOf(env.Project, env.Environment),
		Project: env.Project, Environment: env.Environment, Received: now,
	}
	p.content = ""
	p.entries, p.refused, p.problems, p.newest, p.bytes, p.spread = 0, 0, 0, 0, 0, 0
}

func (p *push) decode(f form) error {
	labels := p.labelLimit()
	switch f.format {
	case lokiJSON:
		return lokiError(loki.DecodeJSON(p.body, labels, (*lokiHandler)(p)))
	case lokiProto:
		return lokiError(loki.DecodeProto(p.body, labels, (*lokiHandler)(p)))
	default:
		limits := datadog.Limits{Labels: labels, Line: int(p.limits.LineBytes)}
		if err := p.hold(limits.Room(len(p.body))); err != nil {
			return err
		}
		return datadog.Decode(p.body, limits, (*datadogHandler)(p))
	}
}

func (p *push) labelLimit() labelset.Limit {
	return labelset.Limit{Count: p.limits.Labels, Bytes: int(p.limits.LabelBytes)}
}

// queryLabels takes the attributes that Datadog's intakes take in the URL.
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
		err = datadog.AddTags(&p.query, queryValue(query, "ddtags"))
	}
	p.group.Labels = p.query.Labels
	if err != nil {
		return fmt.Errorf("the labels in the URL: %w", err)
	}
	return nil
}

// add takes an entry. A nil error means that it is in the batch, or durable
// already.
func (p *push) add(body []byte) error {
	content := contentType(body)
	if content != p.content {
		p.content, p.group.ContentType = content, content
		p.batch.Begin(p.group)
	}
	p.entry.Body = body
	p.identify(content == contentJSON)
	if err := p.account(); err != nil {
		return err
	}
	p.newest = max(p.newest, p.entry.Time)
	if p.known() {
		return nil
	}
	p.batch.Add(&p.entry)
	p.bytes += int64(len(body))
	return nil
}

// known reports whether the entry was made durable by an earlier push.
//
// What another push, or this one, is about to make durable does not count: were
// it left out here and failed there, it would be acknowledged and lost. So an
// event that is pushed again before the first push is done is stored twice.
func (p *push) known() bool {
	if p.recent == nil {
		return false
	}
	key := p.recent.Key(p.group.Source, p.entry.ID, p.entry.Body)
	if p.recent.Has(key) {
		p.duplicates++
		return true
	}
	p.keys = append(p.keys, key)
	return false
}

// taken counts the entries that are durable once the batch is.
func (p *push) taken() int { return p.batch.Len() + p.duplicates }

// maxSpread is how much may stand beside the bodies of a push's events, as a
// multiple of decompressed_bytes: a stream's labels go to each sink with every one
// of its events, though they come once.
const maxSpread = 8

// account makes room for the entry in the batch and for its key, as far as the
// budget goes. It bounds what is written of labels, in the batch, where they stand
// before each run of events, and at the sinks.
func (p *push) account() error {
	const step = 256 << 10
	if len(p.keys) == cap(p.keys) && p.recent != nil {
		n := len(p.keys) + 64
		if err := p.lease.grow(p.size() + int64(len(p.keys)+n)*keySize); err != nil {
			return err
		}
		p.keys = append(make([]recent.Key, 0, len(p.keys)+n), p.keys...)
	}
	room := p.batch.Room(&p.entry)
	size := p.batch.Size() + room
	if p.spread += int64(room - len(p.entry.Body)); p.spread > maxSpread*int64(p.limits.DecompressedBytes) {
		return tooLarge("the labels of the body's entries are too many")
	}
	if size <= p.batch.Cap() {
		return nil
	}
	if int64(size) > 2*int64(p.limits.DecompressedBytes)+step {
		return tooLarge("the labels of the body's entries are too many")
	}
	size += max(size/4, min(size, step))
	if err := p.lease.grow(p.size() + int64(size)); err != nil { // the old memory lives until it is copied
		return err
	}
	p.batch.Grow(size)
	p.lease.shrink(p.size())
	return nil
}

// count counts an entry, and refuses the push where there are too many.
func (p *push) count(n int) error {
	p.entries += n
	if p.entries > p.limits.Entries {
		return tooLarge("the push has more than the %d entries that are taken", p.limits.Entries)
	}
	return nil
}

func errLine(have int, most config.Size) error {
	return fmt.Errorf("the line has %d bytes, at most %d are taken", have, most)
}

// maxNamed is how many problems an answer names; maxProblem bounds each.
const (
	maxNamed   = 5
	maxProblem = 200
)

// refuse notes that n entries are not taken.
func (p *push) refuse(n int, problem error) {
	p.refused += n
	p.problems++
	if len(p.named) < maxNamed {
		text := problem.Error()
		p.named = append(p.named, text[:min(len(text), maxProblem)])
	}
}

// partial is the answer where not all entries were taken.
func (p *push) partial() error {
	more := ""
	if n := p.problems - len(p.named); n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	return &refusal{
		status: http.StatusBadRequest, reason: "partial",
		text: fmt.Sprintf("%d entries were taken, %d were not: %s%s", p.taken(), p.refused, strings.Join(p.named, "; "), more),
	}
}
