package cluster

import (
	"cmp"
	"slices"
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
	// turn is the newest one by which positions were counted here.
	turn turn
	// ahead says that newest is after the begin of that turn, which another relay began: some known
	// positions would be given out again. Up to agreed they are what they were before the turn.
	ahead  bool
	agreed store.Pos
}

// at returns the nonce at a position, if it is known. mu is held.
func (k *known) at(pos store.Pos) (nonce uint64, ok bool) {
	s := k.ring[pos%ringSize]
	return s.Nonce, s.Pos == pos && pos > 0
}

// see notes a record that was appended just now, or read, and whose position was counted by a
// turn. It reports whether it is the newest, and false in fits if the position is another
// record's, or may be: then the log has to be compared with the stream.
func (k *known) see(s spot, by turn, appended bool) (newest, fits bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if by != k.turn { // another one began meanwhile
		return false, false
	}
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
	for _, s := range k.ring {
		if s.Pos > 0 && s.Pos <= to {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b spot) int { return cmp.Compare(a.Pos, b.Pos) })
	return all
}

// isAhead reports whether known positions are after the begin of a turn that another relay began,
// and up to where they are what they were.
func (k *known) isAhead() (agreed store.Pos, is bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.agreed, k.ahead
}

// settle ends a doubt: the cluster lost nothing.
func (k *known) settle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.doubt = 0
}

// follow goes on by another turn, whoever began it: up to agreed positions are what they were
// before. It reports false if newer positions are known here than that turn counts as lost. mu is
// held.
func (k *known) follow(t turn, agreed store.Pos) bool {
	k.turn = t
	if k.ahead {
		agreed = min(agreed, k.agreed)
	}
	end := t.first() - 1
	k.ahead, k.agreed = k.newest.Pos > end, agreed
	if !k.ahead {
		k.begin(spot{Pos: end}, agreed, end)
	}
	return !k.ahead
}

// open starts with a log that ends with end, and whose newest record is known.
func (k *known) open(newest spot, t turn, end store.Pos) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn, k.ahead = t, false
	k.begin(newest, ^store.Pos(0), end)
}

// resume takes over what an earlier process of this relay knew up to its newest record, however far
// other relays have gone on since. It counted by another meta if another relay has begun a turn since.
func (k *known) resume(newest spot, records []spot, was, now *meta) {
	k.mu.Lock()
	defer k.mu.Unlock()
	agreed := now.agrees(was)
	for _, s := range records {
		if s.Pos <= min(newest.Pos, agreed) {
			k.ring[s.Pos%ringSize] = s
		}
	}
	switch {
	case newest.Pos <= agreed: // other relays may have gone on, although it was lost
		k.doubt = newest.Pos
	case newest.Pos >= now.last().first():
		k.ahead, k.agreed = true, agreed
	}
}

// begin starts over: the log ends with end, and newest is known. mu is held.
func (k *known) begin(newest spot, after, end store.Pos) {
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
