package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/auditrelay/auditrelay/relay"
)

// metadataMaxAge is how old a topic's metadata may become, as in the Java client
// (metadata.max.age.ms). An error makes it stale at once.
const metadataMaxAge = 5 * time.Minute

// topic is what is known about a topic that was used recently.
type topic struct {
	name       string
	partitions []*partition // by id, which is their index
	ids        []int        // of partitions: 0, 1, …
	err        error        // why nothing can be sent; classified
	fetched    time.Time    // zero means never
	used       time.Time
	stale      atomic.Bool // set by the goroutines of a delivery
}

// partition is a partition, and a delivery's events for it.
type partition struct {
	id     int
	leader net.Addr      // nil: there is none
	took   time.Duration // how long the last request took that was answered

	events []int32         // indexes into the delivery's events, in order
	failed []relay.Failure // in order
}

var errTopicName = errors.New("a topic's name has 1 to 249 characters of a-z A-Z 0-9 . _ and -, other than . and .. alone")

// validTopic follows org.apache.kafka.common.internals.Topic.validate.
func validTopic(name string) bool { return topicName.MatchString(name) && name != "." && name != ".." }

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func topicByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// topicValue appends an attribute for a topic's name: forbidden characters become "_".
func topicValue(dst []byte, value string) []byte {
	for i := range len(value) {
		c := value[i]
		if !topicByte(c) {
			c = '_'
		}
		dst = append(dst, c)
	}
	return dst
}

// Address returns the topic of e. It may be called during Deliver.
func (s *Sink) Address(e *relay.Event) (kind, name string) {
	return "topic", string(s.topic.AppendName(nil, e, topicValue))
}

// topicFor returns the topic of e.
func (s *Sink) topicFor(e *relay.Event) *topic {
	s.name = s.topic.AppendName(s.name[:0], e, topicValue)
	if t := s.topics[string(s.name)]; t != nil {
		return t
	}
	t := &topic{name: string(s.name)}
	if !validTopic(t.name) {
		t.err = relay.Permanent(fmt.Errorf("topic %q: %w", t.name, errTopicName))
	}
	s.topics[t.name] = t
	return t
}

// wanted reports whether the metadata of t has to be fetched.
func (s *Sink) wanted(t *topic, now time.Time) bool {
	if t.fetched.IsZero() {
		return t.err == nil // otherwise the name is invalid
	}
	return t.stale.Load() || t.err != nil || now.Sub(t.fetched) >= s.maxAge
}

// refresh fetches the metadata of those topics that are due, and creates topics if configured.
// It returns an error only if it concerns the whole cluster; that of a topic is kept in the
// topic.
func (s *Sink) refresh(ctx context.Context, now time.Time) error {
	if len(s.due) == 0 {
		return ctx.Err()
	}
	s.forget(now)
	s.transport.trim(now)
	res, err := s.metadata(ctx)
	if err != nil {
		return err
	}
	missing := s.learn(res, now)
	if len(missing) == 0 || s.create == nil {
		return nil
	}
	s.due, err = s.createTopics(ctx, missing, res.Controller)
	if err != nil || len(s.due) == 0 {
		return err
	}
	// Brokers may not know a new topic yet. Then a part of the delivery fails, and the next one
	// asks again.
	if res, err = s.metadata(ctx); err != nil {
		return err
	}
	s.learn(res, now)
	return nil
}

// forget drops topics that were not used for long, so that a template with ever new values does
// not fill the memory.
func (s *Sink) forget(now time.Time) {
	for name, t := range s.topics {
		if now.Sub(t.used) > 2*s.maxAge {
			delete(s.topics, name)
		}
	}
}

// askTimeout bounds one broker's answer, and leaves a delivery time to ask the next one.
const askTimeout = 5 * time.Second

// metadata asks one broker after the other, first the one that answered last.
func (s *Sink) metadata(ctx context.Context) (*kafka.MetadataResponse, error) {
	names := make([]string, len(s.due))
	for i, t := range s.due {
		names[i] = t.name
	}
	brokers := slices.Concat(s.brokers, s.known)
	var first error
	for i := range brokers {
		at := (s.lastGood + i) % len(brokers)
		res, err := s.ask(ctx, brokers[at], names)
		if err == nil {
			s.lastGood = at
			return res, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("fetch metadata: %w", ctx.Err())
		}
		if first == nil {
			first = fmt.Errorf("fetch metadata from %s: %w", brokers[at], advise(bare(err)))
		}
	}
	if len(brokers) > 1 {
		return nil, fmt.Errorf("none of %d brokers answers: %w", len(brokers), first)
	}
	return nil, first
}

func (s *Sink) ask(ctx context.Context, broker string, names []string) (*kafka.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return s.client.Metadata(ctx, &kafka.MetadataRequest{Addr: kafka.TCP(broker), Topics: names})
}

// learn takes in metadata, and returns those of the due topics that do not exist.
func (s *Sink) learn(res *kafka.MetadataResponse, now time.Time) (missing []*topic) {
	s.known = s.known[:0]
	for _, b := range res.Brokers {
		s.known = append(s.known, address(b))
	}
	s.lastGood %= len(s.brokers) + len(s.known)
	for _, t := range s.due {
		t.fetched = now
		t.stale.Store(false)
		i := slices.IndexFunc(res.Topics, func(r kafka.Topic) bool { return r.Name == t.name })
		if i < 0 {
			t.err = fmt.Errorf("topic %s: %w", t.name, errLeftOut)
			continue
		}
		t.learn(&res.Topics[i])
		if errors.Is(t.err, kafka.UnknownTopicOrPartition) {
			missing = append(missing, t)
		}
	}
	return missing
}

func (t *topic) learn(r *kafka.Topic) {
	t.err = nil
	switch {
	case errors.Is(r.Error, kafka.InvalidTopic):
		t.err = relay.Permanent(fmt.Errorf("topic %q: %w", t.name, r.Error))
	case r.Error != nil:
		t.err = fmt.Errorf("topic %s: %w", t.name, advise(r.Error))
	case len(r.Partitions) == 0:
		t.err = fmt.Errorf("topic %s: it has no partitions yet", t.name)
	}
	if t.err != nil {
		return
	}
	slices.SortFunc(r.Partitions, func(a, b kafka.Partition) int { return a.ID - b.ID })
	t.partitions, t.ids = t.partitions[:0], t.ids[:0]
	for i, p := range r.Partitions {
		learned := &partition{id: p.ID}
		if p.Leader.Host != "" {
			learned.leader = kafka.TCP(address(p.Leader))
		}
		t.partitions = append(t.partitions, learned)
		t.ids = append(t.ids, i)
	}
}

// look asks the first broker that answers about one topic. It may be called during Deliver.
func (s *Sink) look(ctx context.Context, brokers []string, name string) (*topic, error) {
	res, err := firstAnswer(ctx, brokers, func(ctx context.Context, broker net.Addr) (*kafka.MetadataResponse, error) {
		return s.client.Metadata(ctx, &kafka.MetadataRequest{Addr: broker, Topics: []string{name}})
	})
	if err != nil {
		return nil, advise(err)
	}
	t := &topic{name: name}
	i := slices.IndexFunc(res.Topics, func(r kafka.Topic) bool { return r.Name == name })
	if i < 0 {
		return nil, errLeftOut
	}
	t.learn(&res.Topics[i])
	return t, t.err
}

var errLeftOut = errors.New("the broker's metadata leaves it out")

func address(b kafka.Broker) string { return net.JoinHostPort(b.Host, strconv.Itoa(b.Port)) }

// creation returns the request to create topics.
func (s *Sink) creation(topics []*topic, controller kafka.Broker) *kafka.CreateTopicsRequest {
	req := &kafka.CreateTopicsRequest{Addr: kafka.TCP(s.brokers[0])}
	if controller.Host != "" {
		req.Addr = kafka.TCP(address(controller))
	}
	for _, t := range topics {
		c := *s.create
		c.Topic = t.name
		req.Topics = append(req.Topics, c)
	}
	return req
}

// createTopics asks for new topics, and returns those that exist afterwards. A refusal becomes
// the error of its topic.
func (s *Sink) createTopics(ctx context.Context, topics []*topic, controller kafka.Broker) ([]*topic, error) {
	res, err := s.client.CreateTopics(ctx, s.creation(topics, controller))
	if err != nil {
		return nil, fmt.Errorf("create topics: %w", advise(bare(err)))
	}
	var made []*topic
	for _, t := range topics {
		err := res.Errors[t.name]
		if err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
			t.err = fmt.Errorf("create topic %s: %w", t.name, advise(err))
			continue
		}
		if err == nil {
			s.log.Info("kafka topic created", "topic", t.name)
		}
		made = append(made, t)
	}
	return made, nil
}
