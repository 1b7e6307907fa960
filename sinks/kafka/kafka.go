// Package kafka delivers events to Kafka.
//
// Each event becomes a record in CloudEvents 1.0 binary mode: the value is the
// event's body, byte for byte; the headers are content-type and ce_specversion,
// ce_id, ce_source, ce_type, ce_subject, ce_time, ce_project, ce_environment
// and ce_receivedtime. In structured mode the value is one JSON object with all
// of them, and the one header content-type is application/cloudevents+json. An
// event's labels are not sent: a header for each would be too dear at a log's
// rates, and what they say stands in the body as a rule.
//
// A record is acknowledged once all in-sync replicas have it. There is no
// idempotent producer in kafka-go, so an event whose acknowledgement was lost
// stands twice in the topic; its source and id tell. Records of one key keep
// their order, also when a delivery is tried again in part.
//
// The sink speaks through its own RoundTripper under kafka.Client: kafka.Transport goes
// on sending after its context ended, and does not let metadata be refreshed. It encodes
// record batches itself (batch.go, sent by RawProduce), so the next one is ready when
// the one before is acknowledged.
package kafka

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks/template"
)

// Options are what a sink takes from its surroundings.
type Options struct {
	// Logger gets what happens seldom, such as a topic being created. Default:
	// nothing is logged.
	Logger *slog.Logger
	// ClientID is what the sink calls itself in its requests; brokers show it in
	// their logs and can set quotas by it. Default auditrelay.
	ClientID string
	// BatchBytes is how large a delivery may be, in bytes of its bodies: what
	// Check holds the brokers' limits against. Default 0: it does not.
	BatchBytes int64
	// CheckTopics are what Check looks at where the topic depends on the events.
	CheckTopics []string
}

// Sink is a relay.Sink over one Kafka cluster.
type Sink struct {
	client    *kafka.Client
	transport *transport
	log       *slog.Logger

	topic       *template.Template
	form        form
	spread      spread
	compression kafka.Compression
	create      *kafka.TopicConfig // nil: topics are not created
	maxAge      time.Duration      // of metadata
	brokers     []string           // as configured
	batchBytes  int64              // Options.BatchBytes
	checkTopics []string           // Options.CheckTopics

	// limit is how large the records of one request may be, before
	// compression, in bytes; learned from what brokers refuse. Used by the
	// goroutines of one delivery.
	limit atomic.Int64

	// What follows belongs to the goroutine that is in Deliver.

	topics   map[string]*topic
	known    []string        // brokers of the last metadata
	lastGood int             // the broker to be asked first, an index into brokers and then known
	name     []byte          // scratch: the topic of an event
	keyBuf   []byte          // scratch: the key of an event
	of       []*topic        // of each event of the delivery
	due      []*topic        // topics of the delivery whose metadata is wanted
	work     []job           // the partitions that the delivery goes to
	failed   []relay.Failure // of the delivery
	workers  [inFlight]worker
}

// New makes a sink of a section that is complete (see config.Sink.Complete). It
// connects to nothing: a cluster that is down shows at the first delivery. Errors
// name the field of cfg.
func New(cfg config.Kafka, opts Options) (*Sink, error) {
	s := &Sink{
		log:         opts.Logger,
		maxAge:      metadataMaxAge,
		batchBytes:  opts.BatchBytes,
		checkTopics: opts.CheckTopics,
		topics:      map[string]*topic{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.configure(cfg)
	if opts.ClientID == "" {
		opts.ClientID = "auditrelay"
	}
	t, err := newTransport(cfg, opts.ClientID)
	if err != nil {
		return nil, err
	}
	s.transport = t
	// The client tells brokers to wait for their replicas for half of this, or
	// for half of what is left of the context where that is less.
	s.client = &kafka.Client{Transport: t, Timeout: requestTimeout}
	s.limit.Store(firstLimit(s.compression))
	return s, nil
}

// requestTimeout bounds one request; a delivery's own deadline does too.
const requestTimeout = 30 * time.Second

// Deliver implements relay.Sink.
func (s *Sink) Deliver(ctx context.Context, events []relay.Event) error {
	if len(events) == 0 {
		return nil
	}
	defer s.reset()
	now := time.Now()
	s.resolve(events, now)
	if err := s.refresh(ctx, now); err != nil {
		return err
	}
	s.assign(events)
	s.produceAll(ctx, events)
	return s.outcome(len(events))
}

// reset drops what the last delivery left, and keeps the memory.
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
