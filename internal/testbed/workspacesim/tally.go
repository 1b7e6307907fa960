package workspacesim

// Tally counts the events at a destination by their ids, in a bit for each. Its zero
// value is empty; it is not safe for concurrent use.
type Tally struct {
	Unique     int64 // distinct events
	Duplicates int64 // repetitions of events

	seen map[string][]uint64 // bits by sequence number, by the id's prefix
}

// Add counts an event, and reports whether its id is a simulator's.
func (t *Tally) Add(id string) bool {
	prefix, seq, ok := ParseEventID(id)
	if !ok {
		return false
	}
	bits, word := t.seen[prefix], int(seq/64)
	if word >= len(bits) {
		bits = append(bits, make([]uint64, word+1)...)
		if t.seen == nil {
			t.seen = map[string][]uint64{}
		}
		t.seen[prefix] = bits
	}
	if bits[word]>>(seq%64)&1 == 1 {
		t.Duplicates++
		return true
	}
	bits[word] |= 1 << (seq % 64)
	t.Unique++
	return true
}

// Missing counts the acknowledged events not arrived.
func (t *Tally) Missing(ledgers []Ledger) (n int64) {
	for _, l := range ledgers {
		bits := t.seen[l.Prefix]
		for _, r := range l.Acknowledged {
			for seq := r.From; seq < r.To; seq++ {
				if word := int(seq / 64); word >= len(bits) || bits[word]>>(seq%64)&1 == 0 {
					n++
				}
			}
		}
	}
	return n
}
