package kafka

import "github.com/auditrelay/auditrelay/relay"

// lane is the memory of one partition's requests of a delivery: one is on its
// way while the next is encoded. What a broker refuses is sent in halves beside
// the latter.
type lane struct {
	turns [2]body
	half  body
}

// body is a run of events as a produce request carries them.
type body struct {
	batch

	run  []int32 // indexes into the events of the delivery
	full bool    // as large as brokers take
	err  error   // why the batch is not complete
}

// maxKeptBody bounds the memory that a body keeps for the next delivery.
const maxKeptBody = 2 << 20

func (l *lane) reset() {
	for _, b := range []*body{&l.turns[0], &l.turns[1], &l.half} {
		b.run = nil
		b.forget()
	}
}

// encode makes b the body of the events at the indexes in run.
func (b *body) encode(s *Sink, events []relay.Event, run []int32) {
	b.run = run
	b.err = b.batch.encode(events, run, s.form, s.compression)
}
