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

// Cache decodes a record once for all sources that read it at about the same time, or not at
// all if they read it shortly after it was made. Events are immutable, so sources can share
// them. A source that is far from the journal's end decodes for itself. Once every source has
// read a record, the cache drops it. A Cache is safe for concurrent use.
//
// It knows a record by its checksum, which no other record has, since each has a salt.
type Cache struct {
	mu      sync.Mutex
	sources int        // guarded by mu
	records []*Decoded // as they came; guarded by mu
	bytes   int        // of the decoded ones; guarded by mu
	newest  uint64     // the position of the newest record that a source has read; guarded by mu
}

// Decoded is the content of a record.
type Decoded struct {
	Events []relay.Event
	Size   int  // of the events: see [Reader]
	Large  bool // too many events to keep: the caller reads them in pieces
	Cut    int  // events with labels left out
	Err    error

	sum     uint64    // the record's checksum
	once    sync.Once // the first source decodes, others wait for it
	counted int       // its bytes in the cache; guarded by the cache's mu
	reads   int       // calls of Decode; guarded by the cache's mu
}

// NewCache makes an empty cache for a number of sources. If there are more, some decode a
// record again; if there are fewer, records stay up to the cache's bounds.
func NewCache(sources int) *Cache { return &Cache{sources: sources} }

// Serve replaces the number of sources.
func (c *Cache) Serve(sources int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources = sources
}

// Decode decodes rec, the record at a position. fresh means this call did the work. Nothing may
// be appended to the record's events.
func (c *Cache) Decode(pos uint64, rec []byte) (d *Decoded, fresh bool) {
	d = c.entry(pos, Checksum(rec))
	d.once.Do(func() {
		fresh = true
		d.fill(Open(rec))
		c.mu.Lock()
		defer c.mu.Unlock()
		if slices.Contains(c.records, d) { // else it was dropped already
			c.count(d)
		}
	})
	return d, fresh
}

// Keep takes the content of a record that was just made, for the sources that will read it,
// unless even the first of them is far from last, the position of the newest record in the
// journal.
func (c *Cache) Keep(last uint64, rec []byte, d *Decoded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newest+cachedRecords <= last {
		return
	}
	d.sum = Checksum(rec)
	c.insert(d)
	c.count(d)
}

// Content decodes a batch of so many events that was just made. Its events refer to raw, which
// nobody may change from now on.
func Content(raw []byte, events int) *Decoded {
	d := &Decoded{}
	d.once.Do(func() { d.fill(readerOf(raw, events), nil) })
	return d
}

func (d *Decoded) fill(reader *Reader, err error) {
	if err == nil {
		d.Events, d.Size, err = reader.Next(nil, PieceBytes)
	}
	if d.Err = err; err != nil {
		return
	}
	if d.Cut = reader.cut; !reader.Done() {
		d.Large, d.Events, d.Size = true, nil, 0
	}
}

// entry returns the entry in the cache of the record at a position, or a new one.
func (c *Cache) entry(pos, sum uint64) *Decoded {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest = max(c.newest, pos)
	i := slices.IndexFunc(c.records, func(d *Decoded) bool { return d.sum == sum })
	if i < 0 {
		i = c.insert(&Decoded{sum: sum})
	}
	d := c.records[i]
	if d.reads++; d.reads >= c.sources {
		c.drop(i)
	}
	return d
}

// insert adds an entry, in place of the oldest one if there are too many, and returns its place. mu is held.
func (c *Cache) insert(d *Decoded) int {
	if len(c.records) == cachedRecords {
		c.drop(0)
	}
	c.records = append(c.records, d)
	return len(c.records) - 1
}

// count adds a decoded record's bytes, and drops the oldest records beyond the bound. mu is held.
func (c *Cache) count(d *Decoded) {
	d.counted = d.Size
	for c.bytes += d.Size; c.bytes > cachedBytes && len(c.records) > 1; {
		c.drop(0)
	}
}

// drop removes the record at a place. mu is held.
func (c *Cache) drop(i int) {
	c.bytes -= c.records[i].counted
	c.records = slices.Delete(c.records, i, i+1)
}
