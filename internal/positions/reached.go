package positions

import (
	"sync"

	"github.com/auditrelay/auditrelay/internal/datadir"
)

// reached holds how far the sinks of this process have come.
type reached struct {
	mu sync.Mutex
	by map[string]uint64 // sink to its newest acknowledged record; guarded by mu
}

// Begin notes the newest acknowledged record at the start of a sink's reading.
func (p *Positions) Begin(sink string, record uint64) {
	r := &p.reached
	r.mu.Lock()
	defer r.mu.Unlock()
	r.by[sink] = record
}

// Acknowledged notes an acknowledgement, as a watermark too.
func (p *Positions) Acknowledged(sink string, record uint64) {
	p.conn.Watermarks.Raise(consumerPrefix+sink, datadir.Watermark{Value: record, Stream: p.made})
	r := &p.reached
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, reading := r.by[sink]; reading {
		r.by[sink] = max(at, record)
	}
}

// End ends the notes for a sink: another relay may read on for it.
func (p *Positions) End(sink string) {
	r := &p.reached
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, sink)
}

// Reached is the newest record that a sink of this process has acknowledged. It returns
// false if this process does not read for the sink.
func (p *Positions) Reached(sink string) (record uint64, reading bool) {
	record = p.reached.at(sink)
	return record, record != Nobody
}

// at is how far the sink has come, or Nobody if this process does not read for it.
func (r *reached) at(sink string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if record, reading := r.by[sink]; reading {
		return record
	}
	return Nobody
}
