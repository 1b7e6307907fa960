package kafka

import (
	"bytes"

	"github.com/segmentio/kafka-go/protocol"
)

// lane is the memory of one partition's requests of a delivery: one is on its
// way while the next is encoded. What a broker refuses is sent in halves beside
// the latter.
type lane struct {
	turns [2]body
	half  body
}

// body is a run of events as a produce request carries them.
type body struct {
	run     []int32 // indexes into the events of the delivery
	set     bytes.Buffer
	err     error // why set is not complete
	records recordReader
}

// maxKeptBody bounds the memory that a body keeps for the next delivery.
const maxKeptBody = 2 << 20

func (l *lane) reset() {
	for _, b := range []*body{&l.turns[0], &l.turns[1], &l.half} {
		b.run, b.records.events = nil, nil
		if b.set.Cap() > maxKeptBody {
			b.set = bytes.Buffer{}
		}
	}
}

// recordFormat is the version of record batches that has headers: brokers since
// 0.11 take it.
const recordFormat = 2

// encode makes b the body of a run.
func (p *producer) encode(b *body, run []int32) {
	b.run = run
	b.records.read(p.events, run, p.sink.form)
	b.set.Reset()
	_, b.err = (&protocol.RecordSet{
		Version:    recordFormat,
		Attributes: protocol.Attributes(p.sink.compression),
		Records:    &b.records,
	}).WriteTo(&b.set)
}
