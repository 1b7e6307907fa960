package main

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// sinkNames are the relays' sinks, each a webhook of this process.
var sinkNames = []string{"hook-a", "hook-b"}

// receiver is what a sink delivers to. It knows which relay has sent a batch, since each
// relay has an address of its own for it.
type receiver struct {
	mu     sync.Mutex             // guards the fields below
	counts map[string][]uint8     // how often each event of the load came, by prefix and sequence number
	others workspacesim.Tally     // events of the simulated workspace
	audit  map[string]bool        // ids of the relays' own events
	change map[changed]int        // entries about settings
	known  map[changed]bool       // settings that a relay has looked at
	from   string                 // the relay that delivered last
	first  map[string][]time.Time // when each relay began to deliver after another one
	twice  map[string][]delivered // events that came again, by prefix
	whole  map[string]uint64      // up to which sequence number nothing is missing, by prefix
	held   string                 // the relay whose deliveries get no answer
	going  chan struct{}          // closed as soon as they get one
	waits  bool                   // a delivery waits for its answer
}

// changed is a setting.
type changed struct{ project, environment, setting string }

// delivered is an event that came again.
type delivered struct {
	seq uint64
	by  string
	at  time.Time
}

func newReceiver() *receiver {
	return &receiver{
		counts: map[string][]uint8{}, audit: map[string]bool{}, change: map[changed]int{}, known: map[changed]bool{},
		first: map[string][]time.Time{}, twice: map[string][]delivered{}, whole: map[string]uint64{},
	}
}

// posted is an event as a webhook gets it.
type posted struct {
	ID   string
	Data json.RawMessage
}

// takes answers the posts of a relay.
func (r *receiver) takes(relay string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		var batch []posted
		if err := json.NewDecoder(req.Body).Decode(&batch); err != nil {
			return // it was cut off, and nobody waits for an answer
		}
		if going := r.takeAll(batch, relay); going != nil {
			<-going
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// takeAll counts a batch. The answer is to wait for the channel, unless that is nil.
func (r *receiver) takeAll(batch []posted, relay string) (going <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.from != relay {
		r.from = relay
		r.first[relay] = append(r.first[relay], now)
	}
	for i := range batch {
		r.take(batch[i].ID, batch[i].Data, relay, now)
	}
	if r.held != relay {
		return nil
	}
	r.waits = true
	return r.going
}

// hold lets the deliveries of a relay wait for their answers until release.
func (r *receiver) hold(relay string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held, r.waits, r.going = relay, false, make(chan struct{})
}

// holds reports whether a delivery waits.
func (r *receiver) holds() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waits
}

// release lets all deliveries have their answers. It may be called again.
func (r *receiver) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != "" {
		r.held = ""
		close(r.going)
	}
}

// take counts an event. r.mu is held.
func (r *receiver) take(id string, data []byte, relay string, now time.Time) {
	prefix, seq, pushed := workspacesim.ParseEventID(id)
	switch {
	case !pushed:
		r.takeAudit(id, data)
	case !isLoad(prefix):
		r.others.Add(id)
	default:
		counts := r.counts[prefix]
		for uint64(len(counts)) <= seq {
			counts = append(counts, 0)
		}
		r.counts[prefix] = counts
		if counts[seq]++; counts[seq] > 1 {
			r.twice[prefix] = append(r.twice[prefix], delivered{seq, relay, now})
		}
	}
}

// takeAudit notes an entry of the audit trail. One that is delivered again has the same id.
func (r *receiver) takeAudit(id string, data []byte) {
	if r.audit[id] {
		return
	}
	r.audit[id] = true
	var e struct{ Type, Project, Environment, Subject string }
	if json.Unmarshal(data, &e) != nil {
		return
	}
	of := changed{e.Project, e.Environment, e.Subject}
	switch e.Type {
	case "settings.baseline":
		r.known[of] = true
	case "settings.changed":
		r.change[of]++
	}
}

// missing counts the events of ledgers that have not arrived. Where nothing was missing once, it
// does not look again.
func (r *receiver) missing(ledgers []workspacesim.Ledger) (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range ledgers {
		counts, whole := r.counts[l.Prefix], r.whole[l.Prefix]
		for whole < uint64(len(counts)) && counts[whole] > 0 {
			whole++
		}
		r.whole[l.Prefix] = whole
		for _, a := range l.Acknowledged {
			for seq := max(a.From, whole); seq < a.To; seq++ {
				if seq >= uint64(len(counts)) || counts[seq] == 0 {
					n++
				}
			}
		}
	}
	return n
}

// again counts the events that came more than once, without those whose push was repeated, and
// those.
func (r *receiver) again(repeated map[string][]workspacesim.Range) (twice, pushedTwice int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for prefix, all := range r.twice {
		for _, d := range all {
			if contains(repeated[prefix], d.seq) {
				pushedTwice++
			} else {
				twice++
			}
		}
	}
	return twice, pushedTwice
}

func contains(ranges []workspacesim.Range, seq uint64) bool {
	for _, r := range ranges {
		if r.From <= seq && seq < r.To {
			return true
		}
	}
	return false
}

// holder is the relay that delivered last.
func (r *receiver) holder() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from
}

// other is when the first other relay than one began to deliver after a moment; that moment, where
// it was another one already.
func (r *receiver) other(than string, after time.Time) (at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for relay, all := range r.first {
		for _, t := range all {
			if relay != than && t.After(after) && (!ok || t.Before(at)) {
				at, ok = t, true
			}
		}
	}
	if !ok && r.from != "" && r.from != than {
		return after, true
	}
	return at, ok
}

// knows reports whether the trail has the first state of a setting.
func (r *receiver) knows(of changed) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[of]
}

// entries is how many entries of the trail there are about a setting.
func (r *receiver) entries(of changed) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.change[of]
}
