// Package kafka delivers events to Kafka.
//
// Each event becomes a record in CloudEvents 1.0 binary mode: the value is the event's body,
// byte for byte; the headers are content-type and ce_specversion, ce_id, ce_source, ce_type,
// ce_subject, ce_time, ce_project, ce_environment and ce_receivedtime. In structured mode the
// value is one JSON object with all of them, and the only header, content-type, is
// application/cloudevents+json. An event's labels are not sent: a header for each would be too
// expensive at the rates of a log, and the body usually repeats them.
//
// In batch mode a record holds consecutive events of one key and partition, up to [maxArray]
// bytes, in CloudEvents' JSON batch format; the only header, content-type, is
// application/cloudevents-batch+json. CloudEvents' Kafka binding defines no batched mode: this
// is a convention of the relay that uses the registered media type. It suits consumers that can
// split records, and brokers for which a record per event is too much. It does not suit
// compacted topics, where a later record replaces all events of an earlier one. An event that a
// broker refuses is still found and refused alone, in a record of its own.
//
// A record is acknowledged once all in-sync replicas have it. An event whose acknowledgement was
// lost is in the topic twice, and is recognised by its source and id; with delivery:
// exactly_once (see once) it is there once. Events of one key keep their order, even when a part
// of a delivery is tried again.
//
// The sink uses its own RoundTripper under kafka.Client, because kafka.Transport goes on
// sending after its context has ended, and does not let metadata be refreshed. The sink encodes
// record batches itself (batch.go, sent by RawProduce), so that the next one is ready when the
// previous one is acknowledged.
package kafka

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
)

// Options are what a sink is given besides its section.
type Options struct {
	// Logger is for rare events, such as the creation of a topic. By default nothing is logged.
	Logger *slog.Logger
	// ClientID is the sink's name in its requests. Brokers show it in their logs and can set
	// quotas by it. The default is auditrelay.
	ClientID string
	// BatchBytes bounds a delivery, in bytes of its bodies. Check compares the brokers' limits
	// with it; with 0 it does not.
	BatchBytes int64
	// Name is the sink's name, and Timeout the time of one delivery. Both are for exactly_once.
	Name    string
	Timeout time.Duration
	// Journal is where the events come from. Without it, the sink delivers at least once whatever
	// its section says: a replay must not fence the live sink, nor be taken for a repetition.
	Journal *Journal
	// CheckTopics are the topics for Check to examine if the topic depends on the events.
	CheckTopics []string
}

// Sink is a relay.Sink over one Kafka cluster.
type Sink struct {
	client    *kafka.Client
	transport *transport
	log       *slog.Logger

	topic       *relay.Template
	form        form
	spread      spread
	compression kafka.Compression
	create      *kafka.TopicConfig // nil: topics are not created
	maxAge      time.Duration      // the greatest age of metadata
	brokers     []string           // as configured
	batchBytes  int64              // Options.BatchBytes
	checkTopics []string           // Options.CheckTopics
	once        *once              // nil: at least once
	checked     *once              // what Check examines of exactly_once; nil without it

	// limit bounds the records of one request, before compression, in bytes. It is learned from
	// refusals. The goroutines of one delivery use it.
	limit atomic.Int64

	// The goroutine of Deliver owns the remaining fields.

	topics   map[string]*topic
	known    []string        // the brokers in the newest metadata
	lastGood int             // which broker to ask first, an index into brokers followed by known
	name     []byte          // scratch: the topic of an event
	keyBuf   []byte          // scratch: the key of an event
	of       []*topic        // for each event of the delivery
	due      []*topic        // the topics of the delivery whose metadata has to be fetched
	work     []job           // the delivery's partitions
	failed   []relay.Failure // those of the delivery
	workers  [inFlight]worker
}

// New makes a sink from a complete section (see config.Sink.Complete). It connects to nothing;
// if the cluster is down, the first delivery fails. Errors name the field of cfg.
func New(cfg config.Kafka, opts Options) (*Sink, error) {
	s := &Sink{
		log:         cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)),
		maxAge:      metadataMaxAge,
		batchBytes:  opts.BatchBytes,
		checkTopics: opts.CheckTopics,
		topics:      map[string]*topic{},
	}
	s.configure(cfg)
	t, err := newTransport(cfg, cmp.Or(opts.ClientID, "auditrelay"))
	if err != nil {
		return nil, err
	}
	s.transport = t
	// The client tells brokers to wait for their replicas for half of this time, or for half of
	// what the context has left if that is less.
	s.client = &kafka.Client{Transport: t, Timeout: requestTimeout}
	s.limit.Store(firstLimit(s.compression))
	if cfg.ExactlyOnce() {
		s.checked = newOnce(s, cfg, opts, Journal{ID: "check"})
	}
	if s.checked != nil && opts.Journal != nil {
		s.once = newOnce(s, cfg, opts, *opts.Journal)
	}
	return s, nil
}

// requestTimeout bounds one request, as does the deadline of the delivery.
const requestTimeout = 30 * time.Second

// Deliver implements relay.Sink.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	if len(events) == 0 {
		return nil
	}
	defer s.reset()
	if s.once != nil {
		return s.once.deliver(ctx, events)
	}
	now := time.Now()
	s.resolve(events, now)
	if err := s.refresh(ctx, now); err != nil {
		return err
	}
	s.assign(events)
	s.produceAll(ctx, events)
	return relay.Outcome(len(events), s.failed)
}

// reset drops the last delivery, and keeps the memory.
func (s *Sink) reset() {
	clear(s.of)
	for _, j := range s.work {
		j.partition.events = j.partition.events[:0]
		j.partition.failed = j.partition.failed[:0]
	}
	for i := range s.workers {
		s.workers[i].reset()
	}
	s.failed = s.failed[:0]
	s.work, s.due, s.of = s.work[:0], s.due[:0], s.of[:0]
}

// Close implements relay.Sink. A delivery under way fails at once.
func (s *Sink) Close() error {
	s.transport.close()
	return nil
}

var errClosed = errors.New("sink is closed")
