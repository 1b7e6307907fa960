package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
)

// sample is what was used: up to a moment, or during a measurement.
type sample struct {
	size
	at                time.Time
	seconds           float64
	events, delivered float64
	records, bytes    float64 // of the journal, compressed
	committing        float64 // the sum of the commits' times, in seconds
	relay, senders    float64 // seconds of a processor
	servers           []float64
	leader            int     // of the only stream of events
	syncs             float64 // of all servers, for each commit; 0 if unknown
}

func (s sample) since(before sample) sample {
	s.seconds = s.at.Sub(before.at).Seconds()
	s.events, s.delivered = s.events-before.events, s.delivered-before.delivered
	s.records, s.bytes, s.committing = s.records-before.records, s.bytes-before.bytes, s.committing-before.committing
	s.relay, s.senders = s.relay-before.relay, s.senders-before.senders
	servers := make([]float64, len(s.servers))
	for i := range servers {
		servers[i] = s.servers[i] - before.servers[i]
	}
	s.servers = servers
	return s
}

// nats is what all servers have used.
func (s *sample) nats() (sum float64) {
	for _, cpu := range s.servers {
		sum += cpu
	}
	return sum
}

// model says what an event costs, in seconds of a processor.
//
//	cost = push + (relays-1)·follow + records·(commit+record) + bytes·byte
//
// with the records and bytes of an event. What limits one shard is its leader: a stream is led by one
// server, which takes one record after the other.
type model struct {
	push   float64 // by the relay that takes and delivers it, to one webhook
	follow float64 // by each other relay
	commit float64 // by the relays, for a record
	record float64 // by the three servers, for a record
	byte   float64 // and for a byte of it

	leader, follower float64 // by one server, of the first sample, for an event
	records, bytes   float64 // for an event, as in the last sample
}

// modelOf fits the constants to samples, of which the first has one relay and one shard.
func modelOf(all []sample) (m model) {
	var ofRelays, ofServers []equation
	for i := range all {
		s := &all[i]
		ofRelays = append(ofRelays, equation{[]float64{s.events, float64(s.relays-1) * s.events, s.records}, s.relay})
		ofServers = append(ofServers, equation{[]float64{s.records, s.bytes}, s.nats()})
	}
	relay, servers := fit(ofRelays), fit(ofServers)
	m.push, m.follow, m.commit, m.record, m.byte = relay[0], relay[1], relay[2], servers[0], servers[1]
	first, last := &all[0], &all[len(all)-1]
	m.leader = first.servers[first.leader] / first.events
	m.follower = (first.nats() - first.servers[first.leader]) / float64(len(first.servers)-1) / first.events
	m.records, m.bytes = last.records/last.events, last.bytes/last.events
	return m
}

// cost is what one event costs.
func (m *model) cost(relays int, records, bytes float64) float64 {
	return m.push + float64(relays-1)*m.follow + records*(m.commit+m.record) + bytes*m.byte
}

// tell prints the measurements next to what the model says, the constants, and what they mean for more cores.
func (m *model) tell(out io.Writer, all []sample) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nrelays\tshards\tevents/s\tevents in a record\tcommit\tCPU µs an event: relays\tservers\tevents/s of one core: measured\tmodel\tdifference\tcores: relays\tservers\tsenders")
	for i := range all {
		s := &all[i]
		measured, said := s.events/(s.relay+s.nats()), 1/m.cost(s.relays, s.records/s.events, s.bytes/s.events)
		fmt.Fprintf(w, "%d\t%d\t%.0f\t%.0f\t%.1f ms\t%.2f\t%.2f\t%.0f\t%.0f\t%+.0f %%\t%.2f\t%.2f\t%.2f\n", s.relays, s.shards, s.events/s.seconds, s.events/s.records, 1e3*s.committing/s.records,
			1e6*s.relay/s.events, 1e6*s.nats()/s.events, measured, said, 100*(said/measured-1), s.relay/s.seconds, s.nats()/s.seconds, s.senders/s.seconds)
	}
	_ = w.Flush() // as all output here
	first := &all[0]
	fmt.Fprintf(out, `
an event costs a relay %.2f µs (taken, committed, delivered to one webhook), and each other relay %.2f µs, which follows it
a record costs the relays %.0f µs and the three servers %.0f µs, and a MB of it %.1f ms; an event is %.0f bytes there, after compression
with one stream an event costs its leader %.2f µs and each follower %.2f µs: a shard ends at about %.0f events/s
syncs of all servers for each commit: %s
`, 1e6*m.push, 1e6*m.follow, 1e6*m.commit, 1e6*m.record, 1e9*m.byte, m.bytes, 1e6*m.leader, 1e6*m.follower, 1/m.leader, known(first.syncs))
	m.extrapolate(out)
}

func known(syncs float64) string {
	if syncs == 0 {
		return "not counted, since strace is not here or may not look"
	}
	return fmt.Sprintf("%.1f", syncs)
}

const (
	relayCores = 16  // of a relay's machine, in the extrapolation
	busy       = 0.7 // of a core, at most
)

// extrapolate says what so many cores carry, at a load of busy. Relays are of relayCores each; their
// number and the rate depend on each other.
func (m *model) extrapolate(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\ncores\trelays of %d cores\tevents/s at %.0f %% load\tshards, at least\tMB/s into each copy\n", relayCores, 100*busy)
	for _, cores := range []float64{10, 100, 1000} {
		relays := m.relaysFor(cores)
		rate := busy * cores / m.cost(relays, m.records, m.bytes)
		fmt.Fprintf(w, "%.0f\t%d\t%.0f\t%.0f\t%.0f\n", cores, relays, rate, math.Ceil(rate*m.leader/busy), rate*m.bytes/1e6)
	}
	_ = w.Flush()
	const million = 1e6
	need := 0.0
	for cores := 1.0; cores <= 1e5; cores *= 1.02 {
		if busy*cores/m.cost(m.relaysFor(cores), m.records, m.bytes) >= million {
			need = math.Ceil(cores)
			break
		}
	}
	if need == 0 {
		fmt.Fprintln(out, "\na million events a second do not follow from this model, with any number of cores")
		return
	}
	fmt.Fprintf(out, "\na million events a second take about %.0f cores and %.0f shards\n", need, math.Ceil(million*m.leader/busy))
}

// relaysFor is how many relays some cores are enough for, when the servers have their share.
func (m *model) relaysFor(cores float64) int {
	for relays := 1; ; relays++ {
		relay := m.push + float64(relays-1)*m.follow + m.records*m.commit
		if of := relay / m.cost(relays, m.records, m.bytes); of*cores/relayCores <= float64(relays) {
			return relays
		}
	}
}
