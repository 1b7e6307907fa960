package kafka

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/auditrelay/auditrelay/relay"
)

// inFlight bounds the produce requests that are under way at once, one per partition.
const inFlight = 8

// job is one partition of a delivery.
type job struct {
	topic     *topic
	partition *partition
	numbers   *numbers // nil without transactions
}

// resolve finds each event's topic, and the topics whose metadata has to be fetched.
func (s *Sink) resolve(events []relay.Event, now time.Time) {
	for i := range events {
		t := s.topicFor(&events[i])
		s.of = append(s.of, t)
		if t.used.Equal(now) {
			continue
		}
		t.used = now
		if s.wanted(t, now) {
			s.due = append(s.due, t)
		}
	}
}

// assign gives each event to its partition.
func (s *Sink) assign(events []relay.Event) {
	for i, t := range s.of {
		if t.err != nil {
			s.failed = append(s.failed, relay.Failure{Index: i, Err: t.err})
			continue
		}
		key := s.form.key(s.keyBuf[:0], &events[i])
		if key != nil {
			s.keyBuf = key
		}
		p := t.partitions[s.spread.choose(t, key)]
		if len(p.events) == 0 {
			s.work = append(s.work, job{topic: t, partition: p})
		}
		p.events = append(p.events, int32(i))
	}
}

// produceAll sends every partition its events, several partitions at once. When it returns,
// nothing is being sent any more.
func (s *Sink) produceAll(ctx context.Context, events []relay.Event) {
	var next atomic.Int32
	var group sync.WaitGroup
	for n := range min(inFlight, len(s.work)) {
		w := &s.workers[n]
		w.sink, w.events = s, events
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(s.work); i = int(next.Add(1)) - 1 {
				w.job = s.work[i]
				w.produce(ctx)
			}
		})
	}
	group.Wait()
	for _, j := range s.work {
		s.failed = append(s.failed, j.partition.failed...)
	}
}

// produce sends the events in order, in as many requests as their size needs. Each is sent
// after the previous one was acknowledged; meanwhile the next is encoded. produce stops at the
// first retryable error, so that nothing overtakes the events that are tried again.
func (w *worker) produce(ctx context.Context) {
	if w.partition.leader == nil {
		w.topic.stale.Store(true)
		w.fail(w.partition.events, w.named(kafka.LeaderNotAvailable))
		return
	}
	rest := w.partition.events
	current := &w.turns[0]
	w.encode(current, rest)
	for at := 1; ; at++ {
		rest = rest[len(current.run):]
		if len(rest) == 0 {
			_ = w.send(ctx, current) // it records the failures
			return
		}
		next := &w.turns[at%len(w.turns)]
		encoded := make(chan struct{})
		go func() {
			defer close(encoded)
			w.encode(next, rest)
		}()
		start := time.Now()
		err := w.send(ctx, current)
		took := time.Since(start)
		<-encoded // it reads rest, the events and the partition
		if err != nil {
			w.fail(rest, err)
			return
		}
		w.partition.took = took
		if current.full {
			w.sink.widen()
		}
		current = next
	}
}

// encode makes b the body of as much of rest as fits into a request.
func (w *worker) encode(b *body, rest []int32) {
	n, full := w.fit(rest)
	b.encode(w.sink, w.events, rest[:n])
	b.full = full
}

// send sends a run of events. If the broker refuses it, its halves are sent one after the
// other, down to the records that are refused. An error is retryable: the failures from there
// on are recorded, and nothing that follows them may be sent.
func (w *worker) send(ctx context.Context, body *body) error {
	err := w.request(ctx, body)
	if err == nil {
		return nil
	}
	run := body.run
	switch classify(err) {
	case permanent:
		w.fail(run, relay.Permanent(w.named(err)))
		return nil
	case refused:
		if len(run) == 1 {
			w.fail(run, relay.Permanent(w.refusal(err, run[0])))
			return nil
		}
		return w.halves(ctx, run, err)
	default:
		w.topic.stale.Store(true)
		err = w.named(err)
		w.fail(run, err)
		return err
	}
}

func (w *worker) halves(ctx context.Context, run []int32, refusal error) error {
	if tooLarge(refusal) {
		w.narrow(run)
	}
	half := len(run) / 2
	if err := w.sendHalf(ctx, run[:half]); err != nil {
		w.fail(run[half:], err)
		return err
	}
	return w.sendHalf(ctx, run[half:])
}

func (w *worker) sendHalf(ctx context.Context, run []int32) error {
	w.half.encode(w.sink, w.events, run)
	return w.send(ctx, &w.half)
}

// request sends one produce request, and returns once all replicas in sync
// have it.
func (w *worker) request(ctx context.Context, b *body) error {
	if b.err != nil {
		return b.err
	}
	return w.sink.send(ctx, &kafka.RawProduceRequest{Addr: w.partition.leader, Topic: w.topic.name, Partition: w.partition.id}, &b.batch, w.numbers)
}

// send sends a batch. The numbers are nil without a transaction.
func (s *Sink) send(ctx context.Context, req *kafka.RawProduceRequest, b *batch, n *numbers) error {
	if n != nil {
		defer n.turn()()
		req.TransactionalID = n.transaction
		b.seal(transactional, n.producer())
	}
	req.RequiredAcks = kafka.RequireAll
	req.RawRecords = protocol.RawRecordSet{Reader: bytes.NewReader(b.set)}
	res, err := s.client.RawProduce(ctx, req)
	if err != nil {
		return bare(err)
	}
	if n != nil && res.Error == nil {
		n.advance(b.records())
	}
	return res.Error
}

func (w *worker) fail(run []int32, err error) {
	for _, i := range run {
		w.partition.failed = append(w.partition.failed, relay.Failure{Index: int(i), Err: err})
	}
}

// named adds to an error where it occurred.
func (w *worker) named(err error) error {
	return fmt.Errorf("produce to topic %s, partition %d: %w", w.topic.name, w.partition.id, advise(err))
}

// refusal is the error of the one record that is refused.
func (w *worker) refusal(err error, i int32) error {
	e := &w.events[i]
	if tooLarge(err) {
		return fmt.Errorf("event of %d bytes is larger than the topic takes: %w", len(e.Body), w.named(err))
	}
	return fmt.Errorf("record is refused: %w", w.named(err))
}
