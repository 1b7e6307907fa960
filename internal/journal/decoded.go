package journal

import (
	"sync"

	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/relay"
)

// These bound the decoded records that are kept for the other sinks, in number and
// bytes. Sinks that keep up read the same records within moments of each other.
const (
	decodedRecords = 16
	decodedBytes   = 16 << 20
)

// decodedCache decodes a record once for all sources that read it at about the
// same time. Events are immutable, so sources can share them. A source that is far
// behind decodes for itself.
type decodedCache struct {
	mu      sync.Mutex
	records map[recordKey]*decodedRecord // guarded by mu
	order   []recordKey                  // as they came; guarded by mu
	bytes   int                          // of those that are decoded; guarded by mu
}

// recordKey identifies a record. The number alone does not: a server that lost its
// newest records gives their numbers out again.
type recordKey struct{ seq, sum uint64 }

func keyOf(seq uint64, data []byte) recordKey {
	return recordKey{seq, record.Checksum(data)}
}

// decodedRecord is filled by the first source that asks; others wait for it.
type decodedRecord struct {
	once   sync.Once
	events []relay.Event
	size   int  // of the events: see [record.Reader]
	large  bool // too many events to keep; sources read them in pieces
	cut    int  // how often labels were left out
	err    error

	counted int // bytes that the cache counts for it; guarded by the cache's mu
}

func newDecodedCache() *decodedCache { return &decodedCache{records: map[recordKey]*decodedRecord{}} }

// decode decodes data, the record with number seq; fresh says that this call did
// so, and no earlier one. Nothing may be appended to the record's events.
func (c *decodedCache) decode(seq uint64, data []byte) (r *decodedRecord, fresh bool) {
	key := keyOf(seq, data)
	r = c.record(key)
	r.once.Do(func() {
		fresh = true
		r.fill(data)
		c.count(key, r)
	})
	return r, fresh
}

func (r *decodedRecord) fill(data []byte) {
	reader, err := record.Open(data)
	if err == nil {
		r.events, r.size, err = reader.Next(nil, record.PieceBytes)
	}
	if r.err = err; err != nil {
		return
	}
	if r.cut = reader.LabelsLeftOut(); !reader.Done() {
		r.large, r.events, r.size = true, nil, 0
	}
}

// count accounts for a decoded record, and drops the oldest ones beyond the bound.
func (c *decodedCache) count(key recordKey, r *decodedRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.records[key] != r {
		return // dropped already
	}
	r.counted = r.size
	for c.bytes += r.size; c.bytes > decodedBytes && len(c.order) > 1; {
		c.dropOldest()
	}
}

// dropOldest drops the oldest record. mu is held.
func (c *decodedCache) dropOldest() {
	c.bytes -= c.records[c.order[0]].counted
	delete(c.records, c.order[0])
	c.order = append(c.order[:0], c.order[1:]...)
}

func (c *decodedCache) record(key recordKey) *decodedRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.records[key]; ok {
		return r
	}
	if len(c.order) == decodedRecords {
		c.dropOldest()
	}
	r := &decodedRecord{}
	c.records[key] = r
	c.order = append(c.order, key)
	return r
}
