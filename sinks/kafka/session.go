package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/relay"
)

// session is what the broker knows as a producer with an epoch.
type session struct {
	transaction string // the transactional id
	id          int64
	epoch       int16

	coordinator net.Addr // the broker that has the state of the transaction
	keeper      net.Addr // the leader of the position's partition
	job         uint64   // the epoch of the sink's job
	partitions  map[string]*numbers
	firsts      map[string]*sync.Mutex // by broker: see numbers
}

// numbersOf returns the numbers of a partition for another transaction.
func (s *session) numbersOf(topic string, partition int, leader net.Addr) *numbers {
	key := topic + "/" + strconv.Itoa(partition)
	n := s.partitions[key]
	if n == nil {
		n = &numbers{session: s}
		s.partitions[key] = n
	}
	if leader != nil {
		if s.firsts[leader.String()] == nil {
			s.firsts[leader.String()] = &sync.Mutex{}
		}
		n.first = s.firsts[leader.String()]
	}
	return n
}

// after is the position after events, or nil if they come from no journal.
func (s *session) after(events []relay.Event, stream string) *position {
	last := &events[len(events)-1]
	if last.Record == nil {
		return nil
	}
	return &position{
		Version: positionVersion, Stream: stream, Sequence: last.Record.Position, Events: last.Index + 1,
		Checksum: last.Record.Checksum, Epoch: s.job,
	}
}

// begin makes a session, and reads the position. Whoever had the transactional id before can
// commit nothing from then on, and a transaction that was open is ended. A crash in here has
// the next start do the same.
func (o *once) begin(ctx context.Context) error {
	job, err := uint64(0), error(nil)
	if o.journal.Epoch != nil {
		if job, err = o.journal.Epoch(ctx); err != nil {
			return fmt.Errorf("ask for the epoch of the sink's job: %w", err)
		}
	}
	if err := o.supported(ctx); err != nil {
		return err
	}
	brokers := slices.Concat(o.sink.brokers, o.sink.known)
	keeper, err := o.positions(ctx, brokers)
	if err != nil {
		return err
	}
	coordinator, err := o.coordinator(ctx, brokers)
	if err != nil {
		return err
	}
	next := &session{
		transaction: o.id, coordinator: coordinator, keeper: keeper, job: job,
		partitions: map[string]*numbers{}, firsts: map[string]*sync.Mutex{},
	}
	if err := o.init(ctx, next); err != nil {
		return fmt.Errorf("initialise %s: %w", o.id, advise(err))
	}
	found, err := o.recall(ctx, next)
	if err != nil {
		return fmt.Errorf("read the position from topic %s: %w", o.topic, advise(err))
	}
	if o.at, err = o.trusted(ctx, next, found); err != nil {
		return err
	}
	o.session = next
	return nil
}

// init takes the transactional id over.
func (o *once) init(ctx context.Context, s *session) error {
	return patiently(ctx, func() error {
		res, err := o.sink.client.InitProducerID(ctx, &kafka.InitProducerIDRequest{
			Addr: s.coordinator, TransactionalID: o.id, TransactionTimeoutMs: int(o.timeout.Milliseconds()),
			ProducerID: -1, ProducerEpoch: -1, // whoever has it is fenced
		})
		if err != nil {
			return bare(err)
		}
		if res.Error == nil {
			s.id, s.epoch = int64(res.Producer.ProducerID), int16(res.Producer.ProducerEpoch) //nolint:gosec // it was an int16
		}
		return res.Error
	})
}

// coordinator asks which broker has the state of the transactional id.
func (o *once) coordinator(ctx context.Context, brokers []string) (at net.Addr, err error) {
	err = patiently(ctx, func() error {
		res, err := firstAnswer(ctx, brokers, func(ctx context.Context, broker net.Addr) (*kafka.FindCoordinatorResponse, error) {
			return o.sink.client.FindCoordinator(ctx, &kafka.FindCoordinatorRequest{
				Addr: broker, Key: o.id, KeyType: kafka.CoordinatorKeyTypeTransaction,
			})
		})
		if err != nil {
			return err
		}
		if res.Error == nil {
			at = kafka.TCP(net.JoinHostPort(res.Coordinator.Host, strconv.Itoa(res.Coordinator.Port)))
		}
		return res.Error
	})
	if err != nil {
		return nil, fmt.Errorf("find the coordinator of %s: %w", o.id, advise(err))
	}
	return at, nil
}

// firstAnswer asks one broker after the other, and returns the first answer, or the first error.
func firstAnswer[T any](ctx context.Context, brokers []string, ask func(context.Context, net.Addr) (T, error)) (answer T, err error) {
	for _, broker := range brokers {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		found, failed := ask(asking, kafka.TCP(broker))
		cancel()
		if failed == nil {
			return found, nil
		}
		if err == nil {
			err = bare(failed)
		}
	}
	return answer, err
}

// The wait between two attempts of [patiently] grows from one to the other.
const (
	firstPatience = 2 * time.Millisecond
	lastPatience  = 100 * time.Millisecond
)

// patiently tries again while the brokers are still ending the transaction before, or have just
// moved its state.
func patiently(ctx context.Context, try func() error) error {
	for wait := firstPatience; ; wait = min(2*wait, lastPatience) {
		err := try()
		if !errors.Is(err, kafka.ConcurrentTransactions) && !errors.Is(err, kafka.GroupLoadInProgress) &&
			!errors.Is(err, kafka.GroupCoordinatorNotAvailable) {
			return err
		}
		if retry.Sleep(ctx, wait) != nil {
			return err
		}
	}
}

// trusted is the position that was found, or none if it is not of the journal's events: those are
// then delivered, perhaps again, since a repeated event does less harm than a lost one.
func (o *once) trusted(ctx context.Context, s *session, found *position) (position, error) {
	none := position{}
	switch {
	case found == nil:
		return none, nil
	case found.Version > positionVersion:
		return none, fmt.Errorf("the position in topic %s has the version %d, and this program knows %d: update the relay", o.topic, found.Version, positionVersion)
	case found.Stream != o.journal.Stream:
		o.sink.log.Warn("the position in the topic is of another journal, so it is not used: the first events may be in the topic already",
			"topic", o.topic, "journal", o.journal.Stream, "found", found.Stream)
		return none, nil
	case found.Epoch > s.job:
		return none, fmt.Errorf("the position in topic %s has the epoch %d, and this relay's job %d: another relay has taken over, or the cluster has lost its epochs, and then a person has to write a tombstone under the key %s", o.topic, found.Epoch, s.job, o.id)
	}
	holds, err := o.journal.Holds(ctx, relay.Record{Position: found.Sequence, Checksum: found.Checksum})
	if err != nil {
		return none, fmt.Errorf("compare the position in topic %s with the journal: %w", o.topic, err)
	}
	if !holds {
		o.sink.log.Error("the journal has another record, or none, at the position in the topic: it was set back, and events may be in the topic twice",
			"topic", o.topic, "position", found.Sequence)
		return none, nil
	}
	return *found, nil
}
