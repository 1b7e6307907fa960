package kafka

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/auditrelay/auditrelay/relay"
)

// inFlight bounds the produce requests under way at once, one a partition.
const inFlight = 8

// job is one partition of a delivery.
type job struct {
	topic     *topic
	partition *partition
}

// resolve finds each event's topic, and the topics whose metadata is wanted.
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

// assign gives each event to the partition that it goes to.
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
			s.work = append(s.work, job{t, p})
		}
		p.events = append(p.events, int32(i))
	}
}

// produceAll sends every partition its events, several at once. When it
// returns, nothing is being sent any more.
func (s *Sink) produceAll(ctx context.Context, events []relay.Event) {
	var next atomic.Int32
	var group sync.WaitGroup
	for w := range min(inFlight, len(s.work)) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(s.work); i = int(next.Add(1)) - 1 {
				run := producer{sink: s, job: s.work[i], events: events, lane: &s.lanes[w]}
				run.produce(ctx)
			}
		})
	}
	group.Wait()
}

// outcome merges what became of n events.
func (s *Sink) outcome(n int) error {
	for _, j := range s.work {
		s.failed = append(s.failed, j.partition.failed...)
	}
	if len(s.failed) == 0 {
		return nil
	}
	if len(s.failed) == n && s.allAlike() {
		return s.failed[0].Err
	}
	failures := slices.Clone(s.failed)
	slices.SortFunc(failures, func(a, b relay.Failure) int { return cmp.Compare(a.Index, b.Index) })
	return &relay.PartialError{Failures: failures}
}

// allAlike reports whether all failures are one that may pass.
func (s *Sink) allAlike() bool {
	first := s.failed[0].Err
	return !relay.IsPermanent(first) &&
		!slices.ContainsFunc(s.failed, func(f relay.Failure) bool { return !errors.Is(f.Err, first) })
}

// producer sends one partition its events of a delivery.
type producer struct {
	job

	sink   *Sink
	events []relay.Event
	lane   *lane
}

// produce sends the events in order, in as many requests as their size asks
// for, each after the one before is acknowledged; meanwhile the next is encoded.
// At the first error that may pass it stops, so that nothing overtakes what is
// tried again.
func (p *producer) produce(ctx context.Context) {
	if p.partition.leader == nil {
		p.topic.stale.Store(true)
		p.fail(p.partition.events, p.named(kafka.LeaderNotAvailable))
		return
	}
	rest := p.partition.events
	current := &p.lane.turns[0]
	p.encode(current, rest)
	for at := 1; ; at++ {
		rest = rest[len(current.run):]
		if len(rest) == 0 {
			_ = p.send(ctx, current) // which notes the failures
			return
		}
		next := &p.lane.turns[at%len(p.lane.turns)]
		encoded := make(chan struct{})
		go func() {
			defer close(encoded)
			p.encode(next, rest)
		}()
		start := time.Now()
		err := p.send(ctx, current)
		took := time.Since(start)
		<-encoded // it reads rest, the events and the partition
		if err != nil {
			p.fail(rest, err)
			return
		}
		p.partition.took = took
		if current.full {
			p.sink.widen()
		}
		current = next
	}
}

// encode makes b the body of as much of rest as a request takes.
func (p *producer) encode(b *body, rest []int32) {
	n, full := p.fit(rest)
	b.encode(p.sink, p.events, rest[:n])
	b.full = full
}

// send sends a run of events. Where the broker refuses it, the halves are sent
// one after the other, down to the very records that cannot be taken. An error
// is one that may pass: the failures from there on are noted, and nothing of
// what follows may be sent.
func (p *producer) send(ctx context.Context, body *body) error {
	err := p.request(ctx, body)
	if err == nil {
		return nil
	}
	run := body.run
	switch classify(err) {
	case permanent:
		p.fail(run, relay.Permanent(p.named(err)))
		return nil
	case refused:
		if len(run) == 1 {
			p.fail(run, relay.Permanent(p.refusal(err, run[0])))
			return nil
		}
		return p.halves(ctx, run, err)
	default:
		p.topic.stale.Store(true)
		err = p.named(err)
		p.fail(run, err)
		return err
	}
}

func (p *producer) halves(ctx context.Context, run []int32, refusal error) error {
	if tooLarge(refusal) {
		p.narrow(run)
	}
	half := len(run) / 2
	if err := p.sendHalf(ctx, run[:half]); err != nil {
		p.fail(run[half:], err)
		return err
	}
	return p.sendHalf(ctx, run[half:])
}

func (p *producer) sendHalf(ctx context.Context, run []int32) error {
	p.lane.half.encode(p.sink, p.events, run)
	return p.send(ctx, &p.lane.half)
}

// request sends one produce request, and returns once all replicas in sync
// have it.
func (p *producer) request(ctx context.Context, b *body) error {
	if b.err != nil {
		return b.err
	}
	res, err := p.sink.client.RawProduce(ctx, &kafka.RawProduceRequest{
		Addr:         p.partition.leader,
		Topic:        p.topic.name,
		Partition:    p.partition.id,
		RequiredAcks: kafka.RequireAll,
		RawRecords:   protocol.RawRecordSet{Reader: bytes.NewReader(b.set)},
	})
	if err != nil {
		return bare(err)
	}
	return res.Error
}

func (p *producer) fail(run []int32, err error) {
	for _, i := range run {
		p.partition.failed = append(p.partition.failed, relay.Failure{Index: int(i), Err: err})
	}
}

// named says where an error occurred.
func (p *producer) named(err error) error {
	return fmt.Errorf("produce to topic %s, partition %d: %w", p.topic.name, p.partition.id, advise(err))
}

// refusal names the one record that a broker refused.
func (p *producer) refusal(err error, i int32) error {
	e := &p.events[i]
	if tooLarge(err) {
		return fmt.Errorf("event of %d bytes is larger than the topic takes: %w", len(e.Body), p.named(err))
	}
	return fmt.Errorf("record is refused: %w", p.named(err))
}
