package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// Copy reads a topic back: each partition from its first record to where it ended at the time
// of [OpenCopy]. It joins no consumer group, commits nothing, and creates no topic.
//
// The partitions are asked for through the sink's own transport, since kafka.Dialer creates
// missing topics. Records are read through kafka.Conn, which streams them: a fetch has at most
// copyFetch bytes, or one larger batch.
type Copy struct {
	topic  string
	parts  []extent
	dialer *kafka.Dialer
	fetch  int // bounds one answer of a broker, in bytes, unless one batch is longer
}

// extent is what to read of a partition.
type extent struct {
	kafka.Partition

	at, end int64 // the next offset, and the one to stop before
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
	copyFetch = 4 << 20
	// copyTimeout bounds a fetch, and the reading of its answer.
	copyTimeout = 2 * time.Minute
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
	t, err := s.lookUp(ctx, cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("read the kafka topic %s: %w", cfg.Topic, err)
	}
	c := &Copy{topic: cfg.Topic, fetch: copyFetch, dialer: &kafka.Dialer{
		ClientID: s.transport.clientID, Timeout: dialTimeout, TLS: s.transport.tls, SASLMechanism: s.transport.sasl,
	}}
	for _, p := range t.Partitions {
		e := extent{Partition: p}
		e.Topic = t.Name
		if err := c.measure(ctx, &e); err != nil {
			return nil, fmt.Errorf("read the kafka topic %s: partition %d: %w", cfg.Topic, p.ID, advise(err))
		}
		c.parts = append(c.parts, e)
	}
	return c, nil
}

// lookUp asks for a topic's partitions and their leaders.
func (s *Sink) lookUp(ctx context.Context, name string) (*kafka.Topic, error) {
	if !validTopic(name) {
		return nil, errTopicName
	}
	s.due = []*topic{{name: name}}
	res, err := s.metadata(ctx)
	if err != nil {
		return nil, err
	}
	s.learn(res, time.Now())
	if err := s.due[0].err; err != nil {
		return nil, err
	}
	for i := range res.Topics {
		if res.Topics[i].Name == name {
			return &res.Topics[i], nil
		}
	}
	return nil, errors.New("the broker's metadata leaves it out") // learn has said so
}

// dial connects to a partition's leader.
func (c *Copy) dial(ctx context.Context, e *extent) (*kafka.Conn, error) {
	if e.Leader.Host == "" {
		return nil, errors.New("it has no leader")
	}
	conn, err := c.dialer.DialPartition(ctx, "tcp", "", e.Partition)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(copyTimeout))
}

func (c *Copy) measure(ctx context.Context, e *extent) error {
	conn, err := c.dial(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	e.at, e.end, err = conn.ReadOffsets()
	return err
}

// Size is how many records there are to read, at most: of a compacted topic fewer are left.
func (c *Copy) Size() (n int64) {
	for _, e := range c.parts {
		n += e.end - e.at
	}
	return n
}

// Records reads the CloudEvents, one partition after the other; read is told how many records
// were read so far. Records in another form are passed over. A lost connection is made again;
// a leader that has moved ends the reading with an error.
func (c *Copy) Records(ctx context.Context, read func(n int64)) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		count := int64(0)
		take := func(m *kafka.Message) bool {
			if count++; count%1000 == 0 {
				read(count)
			}
			for r := range recordsOf(m) {
				if !yield(r, nil) {
					return false
				}
			}
			return true
		}
		for i := range c.parts {
			e := c.parts[i]
			more, err := c.partition(ctx, &e, take)
			if err != nil {
				yield(Record{}, fmt.Errorf("read the kafka topic %s: partition %d from offset %d on: %w", c.topic, e.ID, e.at, advise(err)))
			}
			if err != nil || !more {
				return
			}
		}
		read(count)
	}
}

// recordsOf yields the CloudEvents of a message: one, or those of a batch. Anything else, such
// as the mark of a transaction, has none.
func recordsOf(m *kafka.Message) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		r, media := Record{Body: m.Value}, ""
		for _, h := range m.Headers {
			switch {
			case h.Key == "ce_type":
				r.Event = attributesOf(m)
			case strings.EqualFold(h.Key, "content-type"):
				media = string(h.Value)
			}
		}
		switch {
		case len(m.Value) == 0:
		case r.Event != nil || strings.HasPrefix(media, cloudevents.MediaType):
			yield(r)
		case strings.HasPrefix(media, cloudevents.BatchMediaType):
			split(m.Value, yield)
		}
	}
}

// attributesOf reads the event of a record in binary mode. If an attribute occurs twice,
// readers may take either, so it counts as a different attribute; so does a time that cannot be
// parsed.
func attributesOf(m *kafka.Message) *relay.Event {
	e, at, received := &relay.Event{Body: m.Value}, "", ""
	into := map[string]*string{
		"ce_id": &e.ID, "ce_source": &e.Source, "ce_type": &e.Type, "ce_subject": &e.Subject, "ce_time": &at,
		"ce_project": &e.Project, "ce_environment": &e.Environment, "ce_receivedtime": &received, "content-type": &e.ContentType,
	}
	for _, h := range m.Headers {
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
func split(batch []byte, yield func(Record) bool) {
	for text, err := range cloudevents.Split(batch) {
		r := Record{Body: bytes.Clone(text)}
		if err != nil {
			r.Body = batch
		}
		if !yield(r) {
			return
		}
	}
}

// partition reads one partition. more is false if take wants no more.
func (c *Copy) partition(ctx context.Context, e *extent, take func(*kafka.Message) bool) (more bool, err error) {
	for try := 1; e.at < e.end; try++ {
		before := e.at
		more, err := c.connection(ctx, e, take)
		if err == nil && !more {
			return false, nil
		}
		if e.at > before {
			try = 0
		}
		if ctx.Err() != nil || err != nil && try >= copyTries {
			return false, errors.Join(err, ctx.Err())
		}
		if err != nil {
			if err := retry.Sleep(ctx, time.Duration(try)*300*time.Millisecond); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// connection reads over one connection until e.end or an error.
func (c *Copy) connection(ctx context.Context, e *extent, take func(*kafka.Message) bool) (more bool, err error) {
	conn, err := c.dial(ctx, e)
	if err != nil {
		return true, err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Seek(e.at, kafka.SeekAbsolute|kafka.SeekDontCheck); err != nil {
		return true, err
	}
	for e.at < e.end {
		if err := conn.SetDeadline(time.Now().Add(copyTimeout)); err != nil {
			return true, err
		}
		if more, err := c.take(conn, e, take); err != nil || !more {
			return more, err
		}
	}
	return true, nil
}

// take reads one answer.
func (c *Copy) take(conn *kafka.Conn, e *extent, take func(*kafka.Message) bool) (more bool, err error) {
	before := e.at
	batch := conn.ReadBatchWith(kafka.ReadBatchConfig{MinBytes: 1, MaxBytes: c.fetch, MaxWait: time.Second})
	for more = true; more && e.at < e.end; {
		var m kafka.Message
		if m, err = batch.ReadMessage(); err != nil {
			break
		}
		more = take(&m)
		e.at = m.Offset + 1
	}
	e.at = max(e.at, batch.Offset()) // past records that compaction has removed
	high := batch.HighWaterMark()
	closed := batch.Close()
	if !more {
		return false, nil
	}
	if closed != nil || !errors.Is(err, io.EOF) {
		return true, errors.Join(err, closed)
	}
	if e.at == before && high >= e.end {
		e.at = e.end // the broker has no record left before the end
	}
	return true, nil
}
