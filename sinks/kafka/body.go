package kafka

import "github.com/auditrelay/auditrelay/relay"

// worker sends the events of a delivery, one partition after the other. It keeps its memory for
// the next delivery. While one request is on its way, the next is encoded; if a request is
// refused and sent in halves, those need a third body.
type worker struct {
	job

	sink   *Sink
	events []relay.Event // those of the delivery
	turns  [2]body
	half   body
}

// body is a run of events as a produce request carries them.
type body struct {
	batch

	run  []int32 // indexes into the events of the delivery
	full bool    // as large as brokers take it
	err  error   // why the batch is not complete
}

// maxKeptBody bounds the memory that a body keeps between deliveries.
const maxKeptBody = 2 << 20

func (w *worker) reset() {
	w.job, w.events = job{}, nil
	for _, b := range []*body{&w.turns[0], &w.turns[1], &w.half} {
		b.run = nil
		b.forget()
	}
}

// encode makes b the body of the events at the indexes in run.
func (b *body) encode(s *Sink, events []relay.Event, run []int32) {
	b.run, b.numbered = run, s.once != nil
	b.err = b.batch.encode(events, run, s.form, s.compression)
}
