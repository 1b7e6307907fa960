package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
)

// once delivers each event exactly once, as KIP-618 does for Kafka Connect. One transaction holds
// the records of a delivery and a record with the sink's position in the journal, in a
// compacted topic. So the two are there together, or not at all.
//
// A session begins with InitProducerID: the broker refuses whoever had the transactional id
// before, and ends a transaction that was left open. Only then the position is read, and
// what it covers is skipped when the journal gives it again. A session ends with its first
// error, whatever that was. The next delivery begins another one, and learns from the position
// whether the last transaction was committed, so that no lost answer has to be interpreted.
// Since each session has another epoch at the broker, a late request of an earlier one is
// refused there.
//
// What a crash leaves behind, step by step: before the commit, an open transaction, which nobody
// sees, and which the next session or the brokers' time limit ends. After the commit and
// before the journal has the acknowledgement, events that come again and are skipped.
//
// A position may only pass over events that are settled. So of a delivery in which some events
// are refused, nothing is committed: those go to the dead letters, and then the others are
// tried again ([relay.ErrUntried]). And the events come in order, from one pump.
//
// Only an event with a place in the journal can be skipped. Replays, also those of dead letters,
// have none, and their sinks have no transactions: see [Options.Journal].
type once struct {
	sink    *Sink
	id      string // the transactional id, and the key of the position
	topic   string // of the position, which is in its first partition
	create  bool
	timeout time.Duration // of a transaction
	journal Journal

	// The goroutine of Deliver owns the remaining fields.

	session *session  // nil: the brokers are to be asked first
	at      position  // the newest in the topic
	read    cursor    // how far the position's partition was read
	newest  *position // the newest committed one before that; nil if there is none
	learned bool      // newest is known
	body    batch     // scratch: that of the position
}

// Journal is what a sink that delivers exactly once knows about the journal of its events.
type Journal struct {
	// ID names the journal for good, and Stream for as long as a position means the same record.
	ID, Stream string
	// Holds reports whether the journal has, or had, this very record.
	Holds func(context.Context, relay.Record) (bool, error)
	// Epoch returns the epoch of the sink's job, and an error if another relay has the job. It may
	// be nil where there is only one relay.
	Epoch func(context.Context) (uint64, error)
}

func newOnce(s *Sink, cfg config.Kafka, opts Options, j Journal) *once {
	const after = 30 * time.Second // a delivery that gives up in time is not overtaken by the broker
	return &once{
		sink: s, id: "auditrelay." + j.ID + "." + opts.Name, topic: cfg.PositionTopic, create: cfg.CreateTopic,
		timeout: opts.Timeout + after, journal: j,
	}
}

// deliver is Deliver.
func (o *once) deliver(ctx context.Context, events []relay.Event) error {
	if o.session == nil {
		if err := o.begin(ctx); err != nil {
			return fmt.Errorf("begin a session of transactions: %w", err)
		}
	}
	had := 0
	for had < len(events) && o.at.covers(&events[had]) {
		had++
	}
	if had > 0 {
		o.sink.log.Info("events that the topic has were skipped", "events", had)
	}
	rest := events[had:]
	if len(rest) == 0 {
		return nil
	}
	err := o.transact(ctx, rest)
	if err == nil && len(o.sink.failed) == 0 {
		return nil
	}
	return outcomeOfNone(had, len(rest), o.sink.failed, err)
}

// outcomeOfNone is the outcome of n events, from an index on, none of which was committed. The
// refused ones go to the dead letters; the others are tried again, at once if nothing else was
// wrong.
func outcomeOfNone(from, n int, failed []relay.Failure, err error) error {
	for _, f := range failed {
		if err == nil && !relay.IsPermanent(f.Err) {
			err = f.Err
		}
	}
	if err == nil {
		err = relay.ErrUntried
	}
	all := make([]relay.Failure, n)
	for i := range all {
		all[i] = relay.Failure{Index: from + i, Err: err}
	}
	for _, f := range failed {
		if relay.IsPermanent(f.Err) {
			all[f.Index].Err = f.Err
		}
	}
	return relay.Outcome(n, all)
}

// transact delivers events in one transaction. Nothing is committed if it returns an error, or
// leaves failures in the sink; after an error of the commit that is not known.
func (o *once) transact(ctx context.Context, events []relay.Event) error {
	s, now := o.sink, time.Now()
	s.resolve(events, now)
	if err := s.refresh(ctx, now); err != nil {
		return err
	}
	if s.assign(events); len(s.failed) > 0 {
		return nil // the transaction was not begun
	}
	session := o.session
	o.session = nil // until all of it is known to have succeeded
	if err := o.enlist(ctx, session); err != nil {
		return fmt.Errorf("add partitions to the transaction: %w", advise(err))
	}
	// A crash from here on leaves an open transaction. The position is sent along with the
	// events, since both are there or neither.
	to, kept := session.after(events, o.journal.Stream), make(chan error, 1)
	numbers := session.numbersOf(o.topic, 0, session.keeper)
	go func() { kept <- o.keep(ctx, session, numbers, to) }()
	s.produceAll(ctx, events)
	err := <-kept
	if err != nil || len(s.failed) > 0 {
		// Consumers wait for the end of a transaction. Should this fail, the next session ends it.
		_ = o.end(ctx, session, false)
		return err
	}
	if err := o.end(ctx, session, true); err != nil {
		return fmt.Errorf("commit the transaction: %w", advise(err))
	}
	// A crash here is one before the acknowledgement: the journal gives the events again.
	o.session = session
	if to != nil {
		o.at = *to
	}
	return nil
}

// enlist adds the partitions of the delivery to the transaction.
func (o *once) enlist(ctx context.Context, session *session) error {
	s := o.sink
	topics := map[string][]kafka.AddPartitionToTxn{o.topic: {{Partition: 0}}}
	for i := range s.work {
		j := &s.work[i]
		j.numbers = session.numbersOf(j.topic.name, j.partition.id, j.partition.leader)
		topics[j.topic.name] = append(topics[j.topic.name], kafka.AddPartitionToTxn{Partition: j.partition.id})
	}
	return patiently(ctx, func() error {
		return s.addPartitions(ctx, &kafka.AddPartitionsToTxnRequest{
			Addr: session.coordinator, TransactionalID: session.transaction,
			ProducerID: int(session.id), ProducerEpoch: int(session.epoch), Topics: topics,
		})
	})
}

// notAttempted is the error of a partition that was not looked at because of another one
// (OPERATION_NOT_ATTEMPTED).
const notAttempted = kafka.Error(55)

func (s *Sink) addPartitions(ctx context.Context, req *kafka.AddPartitionsToTxnRequest) error {
	res, err := s.client.AddPartitionsToTxn(ctx, req)
	if err != nil {
		return bare(err)
	}
	for name, partitions := range res.Topics {
		for _, p := range partitions {
			if p.Error != nil && (err == nil || errors.Is(err, notAttempted)) {
				err = fmt.Errorf("topic %s, partition %d: %w", name, p.Partition, p.Error)
			}
		}
	}
	return err
}

// end commits the transaction, or aborts it.
func (o *once) end(ctx context.Context, session *session, commit bool) error {
	res, err := o.sink.client.EndTxn(ctx, &kafka.EndTxnRequest{
		Addr: session.coordinator, TransactionalID: session.transaction,
		ProducerID: int(session.id), ProducerEpoch: int(session.epoch), Committed: commit,
	})
	if err != nil {
		return bare(err)
	}
	return res.Error
}

// numbers count the records that a session has sent to one partition. The broker takes no record
// out of turn, and none twice.
type numbers struct {
	*session

	next int32
	// first is held during the first request of a transaction; nil after it.
	first *sync.Mutex
}

func (n *numbers) producer() producer { return producer{n.id, n.epoch, n.next} }

// turn waits until the first request of a transaction for a partition may go to its broker, and
// returns what to call after it. The broker asks the coordinator about the transaction
// (KIP-890), and of two such questions at once it refuses the one with a passing error.
func (n *numbers) turn() (done func()) {
	if n.first == nil {
		return func() {}
	}
	n.first.Lock()
	return n.first.Unlock
}

// advance counts records that the broker has taken. After the largest number comes 0.
func (n *numbers) advance(records int32) {
	n.next = int32((int64(n.next) + int64(records)) & math.MaxInt32) //nolint:gosec // bounded by the mask
	n.first = nil
}
