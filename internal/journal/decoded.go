package journal

import (
	"encoding/binary"
	"sync"

	"github.com/auditrelay/auditrelay/relay"
)

// decodedRecords is how many decoded records are kept for the other sinks.
// Sinks that keep up read the same records within moments of each other.
const decodedRecords = 16

// decodedCache decodes each record once for all sources that read it at about
// the same time: events are immutable, so they can share one copy. A source
// that is far behind decodes for itself.
type decodedCache struct {
	mu      sync.Mutex
	records map[recordKey]*decodedRecord // guarded by mu
	order   []recordKey                  // as they came; guarded by mu
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
	err    error
}

func newDecodedCache() *decodedCache { return &decodedCache{records: map[recordKey]*decodedRecord{}} }

// decode gives the events of the record data, which has the number seq. Its
// slice must not be appended to.
func (c *decodedCache) decode(seq uint64, data []byte) ([]relay.Event, error) {
	r := c.record(keyOf(seq, data))
	r.once.Do(func() { r.events, r.err = decodeRecord(nil, data) })
	return r.events, r.err
}

func (c *decodedCache) record(key recordKey) *decodedRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.records[key]; ok {
		return r
	}
	if len(c.order) == decodedRecords {
		delete(c.records, c.order[0])
		c.order = append(c.order[:0], c.order[1:]...)
	}
	r := &decodedRecord{}
	c.records[key] = r
	c.order = append(c.order, key)
	return r
}
