package cluster

import (
	"sync"

	"github.com/auditrelay/auditrelay/internal/store"
)

// recentBytes bounds the records that a log has in memory.
const recentBytes = 4 << 20

// recent has the newest records that this process appended, so that those who follow the
// log do not ask the servers for each. Positions are never given out twice, so that nothing
// in it is ever wrong.
type recent struct {
	mu     sync.Mutex // guards the fields below
	frames map[store.Pos][]byte
	order  []store.Pos
	bytes  int
}

// put adds a record. Its memory belongs to recent from now on.
func (r *recent) put(pos store.Pos, frame []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frames == nil {
		r.frames = map[store.Pos][]byte{}
	}
	r.frames[pos], r.order, r.bytes = frame, append(r.order, pos), r.bytes+len(frame)
	for r.bytes > recentBytes {
		r.bytes -= len(r.frames[r.order[0]])
		delete(r.frames, r.order[0])
		r.order = r.order[1:]
	}
}

// from returns the records from a position on, as far as they are there.
func (r *recent) from(pos store.Pos) (frames [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; r.frames[pos] != nil; pos++ {
		frames = append(frames, r.frames[pos])
	}
	return frames
}
