package record

import (
	"slices"
	"sync"

	"github.com/auditrelay/auditrelay/relay"
)

// The bounds of a cache: records, and bytes of their events. Sinks that keep up read the same
// records within moments of each other.
const (
	cachedRecords = 16
	cachedBytes   = 16 << 20
)

// Cache decodes a record once for all sources that read it at about the same time. Events are
// immutable, so sources can share them. A source that is far behind decodes for itself. Once
// every source has read a record, the cache drops it. A Cache is safe for concurrent use.
type Cache struct {
	sources int

	mu      sync.Mutex
	records map[cacheKey]*Decoded // guarded by mu
	order   []cacheKey            // as they came; guarded by mu
	bytes   int                   // of the decoded ones; guarded by mu
}

// cacheKey identifies a record. The number alone does not, since a server that has lost its
// newest records gives their numbers to others.
type cacheKey struct{ seq, sum uint64 }

// Decoded is the content of a record.
type Decoded struct {
	Events []relay.Event
	Size   int  // of the events: see [Reader]
	Large  bool // too many events to keep: the caller reads them in pieces
	Cut    int  // events with labels left out
	Err    error

	once    sync.Once // the first source decodes, others wait for it
	counted int       // its bytes in the cache; guarded by the cache's mu
	reads   int       // calls of Decode; guarded by the cache's mu
}

// NewCache makes an empty cache for a number of sources. If there are more, some decode a
// record again; if there are fewer, records stay up to the cache's bounds.
func NewCache(sources int) *Cache {
	return &Cache{sources: sources, records: map[cacheKey]*Decoded{}}
}

// Decode decodes rec, the record with number seq. fresh means this call did the work.
// Nothing may be appended to the record's events.
func (c *Cache) Decode(seq uint64, rec []byte) (d *Decoded, fresh bool) {
	key := cacheKey{seq, Checksum(rec)}
	d = c.entry(key)
	d.once.Do(func() {
		fresh = true
		d.fill(rec)
		c.count(key, d)
	})
	return d, fresh
}

func (d *Decoded) fill(rec []byte) {
	reader, err := Open(rec)
	if err == nil {
		d.Events, d.Size, err = reader.Next(nil, PieceBytes)
	}
	if d.Err = err; err != nil {
		return
	}
	if d.Cut = reader.LabelsLeftOut(); !reader.Done() {
		d.Large, d.Events, d.Size = true, nil, 0
	}
}

// entry returns the record's entry in the cache, or a new one.
func (c *Cache) entry(key cacheKey) *Decoded {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.records[key]
	if d == nil {
		if len(c.order) == cachedRecords {
			c.drop(c.order[0])
		}
		d = &Decoded{}
		c.records[key] = d
		c.order = append(c.order, key)
	}
	if d.reads++; d.reads >= c.sources {
		c.drop(key)
	}
	return d
}

// count adds a decoded record's bytes, and drops the oldest records beyond the bound.
func (c *Cache) count(key cacheKey, d *Decoded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.records[key] != d {
		return // dropped already
	}
	d.counted = d.Size
	for c.bytes += d.Size; c.bytes > cachedBytes && len(c.order) > 1; {
		c.drop(c.order[0])
	}
}

// drop removes a record. mu is held.
func (c *Cache) drop(key cacheKey) {
	c.bytes -= c.records[key].counted
	delete(c.records, key)
	i := slices.Index(c.order, key)
	c.order = slices.Delete(c.order, i, i+1)
}
