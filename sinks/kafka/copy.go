package kafka

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// Copy reads a topic back: each partition from its first record to where its committed records
// ended at the time of [OpenCopy]. It joins no consumer group, commits nothing, and creates no
// topic.
type Copy struct {
	cfg   config.Kafka
	parts []extent
	fetch int // bounds one answer of a broker, in bytes, unless one batch is longer
}

// extent is what to read of a partition.
type extent struct {
	cursor

	end int64 // the offset to stop before
}

// Record is a CloudEvent in a topic.
type Record struct {
	// Event is the event with the attributes in the record's headers; nil in the modes
	// structured and batch, where the body has them.
	Event *relay.Event
	// Body is the event's body; in these modes the whole event as JSON. A batch with a fault
	// stands here as it is.
	Body []byte
}

const (
	copyFetch = 256 << 10 // see positionFetch: an answer may consist of small batches
	// copyTries is how often a partition is asked in vain before reading fails.
	copyTries = 4
)

// OpenCopy asks where the partitions of cfg's topic begin and end. cfg is a complete section
// (see config.Sink.Complete); its topic is a name.
func OpenCopy(ctx context.Context, cfg config.Kafka) (*Copy, error) {
	s, err := New(cfg, Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	if !validTopic(cfg.Topic) {
		return nil, fmt.Errorf("read the kafka topic %s: %w", cfg.Topic, errTopicName)
	}
	t, err := s.look(ctx, cfg.Brokers, cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("read the kafka topic %s: %w", cfg.Topic, err)
	}
	c := &Copy{cfg: cfg, fetch: copyFetch}
	for _, p := range t.partitions {
		e := extent{cursor: cursor{topic: t.name, partition: p.id, leader: p.leader}}
		if err = kafka.LeaderNotAvailable; p.leader != nil {
			e.next, e.end, err = e.extent(ctx, s.client, kafka.ReadCommitted)
		}
		if err != nil {
			return nil, fmt.Errorf("read the kafka topic %s: partition %d: %w", cfg.Topic, p.id, advise(err))
		}
		c.parts = append(c.parts, e)
	}
	return c, nil
}

// Size is how many records there are to read, at most: of a compacted topic fewer are left.
func (c *Copy) Size() (n int64) {
	for _, e := range c.parts {
		n += e.end - e.next
	}
	return n
}

// errEnough means that no more records are wanted.
var errEnough = errors.New("enough was read")

// Records reads the CloudEvents, one partition after the other; read is told how many records
// were read so far. Records in another form are passed over. A lost connection is made again;
// a leader that has moved ends the reading with an error.
func (c *Copy) Records(ctx context.Context, read func(n int64)) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		s, err := New(c.cfg, Options{})
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer func() { _ = s.Close() }()
		count := int64(0)
		take := func(r *protocol.Record) error {
			if count++; count%1000 == 0 {
				read(count)
			}
			return eachEvent(r, func(r Record) bool { return yield(r, nil) })
		}
		for _, e := range c.parts {
			err := c.partition(ctx, s.transport, &e, take)
			if errors.Is(err, errEnough) {
				return
			}
			if err != nil {
				yield(Record{}, fmt.Errorf("read the kafka topic %s: partition %d from offset %d on: %w", e.topic, e.partition, e.next, advise(err)))
				return
			}
		}
		read(count)
	}
}

// partition reads one partition.
func (c *Copy) partition(ctx context.Context, t *transport, e *extent, take func(*protocol.Record) error) error {
	for try := 1; e.next < e.end; try++ {
		before := e.next
		part, err := e.fetch(ctx, t, c.fetch)
		if err == nil {
			err = e.take(part, func(r *protocol.Record) error {
				if r.Offset >= e.end {
					return nil
				}
				return take(r)
			})
		}
		switch {
		case errors.Is(err, errEnough), ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case e.next > before:
			try = 0
			continue
		case err == nil && part.LastStableOffset >= e.end:
			return nil // the broker has no record left before the end
		case try >= copyTries:
			return cmp.Or(err, errShorter)
		}
		if err := retry.Sleep(ctx, time.Duration(try)*300*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

var errShorter = errors.New("the partition ends earlier than it did at first")

// eachEvent yields the CloudEvents of a record: one, or those of a batch. Anything else has none.
func eachEvent(r *protocol.Record, yield func(Record) bool) error {
	body, err := readAll(r.Value)
	if err != nil || len(body) == 0 {
		return err
	}
	made, media := Record{Body: body}, ""
	for _, h := range r.Headers {
		switch {
		case h.Key == "ce_type":
			made.Event = attributesOf(r.Headers, body)
		case strings.EqualFold(h.Key, "content-type"):
			media = string(h.Value)
		}
	}
	more := true
	switch {
	case made.Event != nil || strings.HasPrefix(media, cloudevents.MediaType):
		more = yield(made)
	case strings.HasPrefix(media, cloudevents.BatchMediaType):
		more = split(body, yield)
	}
	if !more {
		return errEnough
	}
	return nil
}

// attributesOf reads the event of a record in binary mode. If an attribute occurs twice,
// readers may take either, so it counts as a different attribute; so does a time that cannot be
// parsed.
func attributesOf(headers []protocol.Header, body []byte) *relay.Event {
	e, at, received := &relay.Event{Body: body}, "", ""
	into := map[string]*string{
		"ce_id": &e.ID, "ce_source": &e.Source, "ce_type": &e.Type, "ce_subject": &e.Subject, "ce_time": &at,
		"ce_project": &e.Project, "ce_environment": &e.Environment, "ce_receivedtime": &received, "content-type": &e.ContentType,
	}
	for _, h := range headers {
		if value := into[h.Key]; value != nil {
			*value += string(h.Value)
		}
	}
	e.Time, _ = time.Parse(time.RFC3339Nano, at)
	e.Received, _ = time.Parse(time.RFC3339Nano, received)
	return e
}

// split yields the events of a batch. Each is a copy, so that one event that is kept does not
// keep a whole batch in memory. After a fault the rest cannot be told apart; then the batch
// itself is yielded, and its reader finds that it is no event.
func split(batch []byte, yield func(Record) bool) (more bool) {
	for text, err := range cloudevents.Split(batch) {
		r := Record{Body: bytes.Clone(text)}
		if err != nil {
			r.Body = batch
		}
		if !yield(r) {
			return false
		}
	}
	return true
}
