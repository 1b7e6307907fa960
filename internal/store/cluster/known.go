package cluster

import (
	"sync"

	"github.com/auditrelay/auditrelay/internal/store"
)

// ringSize is how many of the newest records are known.
const ringSize = 1024

// spot is a position and the random number of the message there.
type spot struct {
	Pos   store.Pos `json:"pos"`
	Nonce uint64    `json:"nonce"`
}

// known has the newest records that this process appended or read. It notices a cluster
// that gives a position to another record.
type known struct {
	mu     sync.Mutex // guards the fields below
	ring   [ringSize]spot
	newest spot
	// base is the end of the log when it was opened, or when the cluster last lost its end:
	// no record can be appended at or before it.
	base store.Pos
	// doubt is the lowest position that was another record's, until the log is compared with
	// the stream; 0 for none.
	doubt store.Pos
}

// at returns the nonce at a position, if it is known. mu is held.
func (k *known) at(pos store.Pos) (nonce uint64, ok bool) {
	s := k.ring[pos%ringSize]
	return s.Nonce, s.Pos == pos && pos > 0
}

// see notes a record that was appended just now, or read. It reports whether it is the
// newest, and false in fits if the position is another record's, or may be: then the log
// has to be compared with the stream.
func (k *known) see(s spot, appended bool) (newest, fits bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	nonce, seen := k.at(s.Pos)
	old := s.Pos+ringSize <= k.newest.Pos
	switch {
	case seen && nonce == s.Nonce:
		return false, true
	case seen, appended && (old || s.Pos <= k.base):
		if k.doubt == 0 || s.Pos < k.doubt {
			k.doubt = s.Pos
		}
		return false, false
	case old:
		return false, true
	}
	k.ring[s.Pos%ringSize] = s
	if s.Pos > k.newest.Pos {
		k.newest = s
		return true, true
	}
	return false, true
}

// suspects are the places to compare: the newest one, and one that is in doubt.
func (k *known) suspects() (newest spot, doubted spot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if nonce, ok := k.at(k.doubt); ok {
		doubted = spot{k.doubt, nonce}
	}
	return k.newest, doubted
}

// spots returns the known places up to a position, the oldest first.
func (k *known) spots(to store.Pos) (all []spot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	to = min(to, k.newest.Pos)
	for pos := to - min(to, ringSize-1); pos <= to; pos++ {
		if nonce, ok := k.at(pos); ok {
			all = append(all, spot{pos, nonce})
		}
	}
	return all
}

// settle ends a doubt: the cluster lost nothing.
func (k *known) settle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.doubt = 0
}

// begin starts over after a loss, or at an open: the log ends with end, and newest is known.
func (k *known) begin(newest spot, after, end store.Pos) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.ring {
		if k.ring[i].Pos > after {
			k.ring[i] = spot{}
		}
	}
	k.newest, k.base, k.doubt = newest, end, 0
	if newest.Pos > 0 && newest.Nonce > 0 {
		k.ring[newest.Pos%ringSize] = newest
	}
}
