package journal

import (
	"encoding/binary"
	"sync"

	"github.com/auditrelay/auditrelay/relay"
)

// Decoded records are kept for the other sinks: so many, of so many bytes in all.
// Sinks that keep up read the same records within moments of each other.
const (
	decodedRecords = 16
	decodedBytes   = 16 << 20
)

// decodedCache decodes each record once for all sources that read it at about
// the same time: events are immutable, so they can share one copy. A source
// that is far behind decodes for itself.
type decodedCache struct {
	mu      sync.Mutex
	records map[recordKey]*decodedRecord // guarded by mu
	order   []recordKey                  // as they came; guarded by mu
	bytes   int                          // of those that are decoded; guarded by mu
}

// recordKey tells records apart, also where a server that lost its newest ones
// gave a number twice.
type recordKey struct{ seq, sum uint64 }

func keyOf(seq uint64, data []byte) recordKey {
	if len(data) < recordHeader {
		return recordKey{seq: seq}
	}
	return recordKey{seq, binary.LittleEndian.Uint64(data[16:])}
}

// decodedRecord is filled by the first source that asks; others wait for it.
type decodedRecord struct {
	once   sync.Once
	events []relay.Event
	size   int  // of the events: see recordReader
	large  bool // there are more events than these, to be read by who wants them
	cut    int  // how many times labels were left out
	err    error

	counted int // what the cache counts for it; guarded by the cache's mu
}

func newDecodedCache() *decodedCache { return &decodedCache{records: map[recordKey]*decodedRecord{}} }

// decode gives the record data, which has the number seq; fresh says that this
// call has decoded it. Its events must not be appended to.
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
	reader, err := openPieces(data)
	if err == nil {
		r.events, r.size, err = reader.next(nil, pieceBytes)
	}
	if r.err = err; err != nil {
		return
	}
	if r.cut = reader.cut; reader.given < reader.events {
		r.large, r.events, r.size = true, nil, 0
	}
}

// count lets go of the oldest records where a new one takes their room.
func (c *decodedCache) count(key recordKey, r *decodedRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.records[key] != r {
		return // gone already
	}
	r.counted = r.size
	for c.bytes += r.size; c.bytes > decodedBytes && len(c.order) > 1; {
		c.dropOldest()
	}
}

// dropOldest lets go of a record. mu is held.
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
