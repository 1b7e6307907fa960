package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go"
)

// Check implements relay.Checker. It asks every broker for metadata, both those of the
// configuration and those that the cluster names, over a connection that is secured and
// authenticated like that of a delivery. If the sink creates topics, it proposes a missing
// topic to the cluster, which answers whether it would create it. Check may be called during
// Deliver.
func (s *Sink) Check(ctx context.Context, report func(what, found string)) error {
	c := checkup{sink: s, report: report}
	res := c.bootstrap(ctx)
	if res == nil {
		return c.err
	}
	c.cluster(ctx, res)
	if ctx.Err() == nil {
		c.topics(ctx, res)
	}
	if c.err == nil {
		c.err = ctx.Err()
	}
	return c.err
}

// checkup is one call of Check.
type checkup struct {
	sink   *Sink
	report func(what, found string)
	asked  []string // addresses of the brokers that answered
	err    error    // the first error
}

// fail reports an error that a delivery would meet too.
func (c *checkup) fail(what string, err error) {
	c.report(what, err.Error())
	if c.err == nil {
		c.err = fmt.Errorf("%s: %w", what, err)
	}
}

// names returns the topics to ask for. Where they depend on the events and are not known it
// returns none, since that would otherwise mean all topics.
func (c *checkup) names() []string {
	if !c.sink.topic.Constant() {
		return append([]string{}, c.sink.checkTopics...)
	}
	return []string{c.sink.topic.Text()}
}

// bootstrap asks the brokers of the configuration. A broker may be down if another one answers.
func (c *checkup) bootstrap(ctx context.Context) (res *kafka.MetadataResponse) {
	var first error
	for _, broker := range c.sink.brokers {
		what := "broker " + broker
		c.resolve(ctx, broker)
		answer, err := c.sink.ask(ctx, broker, c.names())
		if err != nil {
			err = advise(bare(err))
			c.report(what, err.Error())
			if first == nil {
				first = fmt.Errorf("%s: %w", what, err)
			}
			continue
		}
		c.report(what, "answers"+c.secured())
		c.asked = append(c.asked, broker)
		if res == nil {
			res = answer
		}
	}
	if res == nil {
		c.err = fmt.Errorf("none of %d brokers answers, the first: %w", len(c.sink.brokers), first)
	}
	return res
}

// resolve reports the addresses of a name; a name that does not exist is reported when
// connecting fails.
func (c *checkup) resolve(ctx context.Context, broker string) {
	host, _, err := net.SplitHostPort(broker)
	if err != nil || net.ParseIP(host) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if addresses, err := net.DefaultResolver.LookupHost(ctx, host); err == nil {
		c.report("name "+host, "resolves to "+strings.Join(addresses, ", "))
	}
}

func (c *checkup) secured() string {
	var how []string
	if c.sink.transport.tls != nil {
		how = append(how, "over TLS")
	}
	if m := c.sink.transport.sasl; m != nil {
		how = append(how, "authenticated by "+m.Name())
	}
	if how == nil {
		return ", in the clear and without authentication"
	}
	return ", " + strings.Join(how, ", ")
}

// cluster asks the brokers at their advertised addresses, which is where deliveries go.
func (c *checkup) cluster(ctx context.Context, res *kafka.MetadataResponse) {
	c.report("cluster", fmt.Sprintf("%d brokers, id %q", len(res.Brokers), res.ClusterID))
	for _, b := range res.Brokers {
		at := address(b)
		if slices.Contains(c.asked, at) {
			continue
		}
		what := fmt.Sprintf("broker %d at %s", b.ID, at)
		if _, err := c.sink.ask(ctx, at, []string{}); err != nil {
			c.fail(what, fmt.Errorf("the cluster names it, and it does not answer here: %w (check its advertised.listeners)", advise(bare(err))))
			continue
		}
		c.report(what, "answers")
	}
}

// topics examines each known topic, and the limits of the first one.
func (c *checkup) topics(ctx context.Context, res *kafka.MetadataResponse) {
	names := c.names()
	if len(names) == 0 {
		c.report("topic", "its name depends on each event: no topic is looked at")
	}
	var first *kafka.Topic
	for _, name := range names {
		if found := c.topic(ctx, res, name); first == nil {
			first = found
		}
	}
	if first != nil || len(names) == 0 || c.err == nil {
		c.limits(ctx, res, first)
	}
	if c.sink.checked != nil && ctx.Err() == nil {
		c.once(ctx, c.sink.checked, first)
	}
}

// topic examines one topic; it returns nil if there is no such topic.
func (c *checkup) topic(ctx context.Context, res *kafka.MetadataResponse, name string) *kafka.Topic {
	what := "topic " + name
	i := slices.IndexFunc(res.Topics, func(t kafka.Topic) bool { return t.Name == name })
	if i < 0 {
		c.fail(what, errLeftOut)
		return nil
	}
	found, known := &res.Topics[i], topic{name: name}
	known.learn(found)
	switch {
	case errors.Is(known.err, kafka.UnknownTopicOrPartition) && c.sink.create != nil:
		c.creation(ctx, &known, res.Controller)
	case known.err != nil:
		c.fail(what, bare(known.err))
	default:
		c.partitions(what, &known, found)
		return found
	}
	return nil
}

// creation asks the cluster whether it would make the topic, without making it.
func (c *checkup) creation(ctx context.Context, t *topic, controller kafka.Broker) {
	what := "topic " + t.name
	req := c.sink.creation([]*topic{t}, controller)
	req.ValidateOnly = true
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	res, err := c.sink.client.CreateTopics(ctx, req)
	if err != nil {
		c.fail(what, fmt.Errorf("it does not exist, and whether it would be created cannot be asked: %w", advise(bare(err))))
		return
	}
	if err := res.Errors[t.name]; err != nil {
		c.fail(what, fmt.Errorf("it does not exist, and would not be created: %w", advise(err)))
		return
	}
	c.report(what, fmt.Sprintf("does not exist, and would be created; partitions: %s, replicas: %s",
		orDefaultText(c.sink.create.NumPartitions), orDefaultText(c.sink.create.ReplicationFactor)))
}

func orDefaultText(n int) string {
	if n < 0 {
		return "as the broker has it"
	}
	return fmt.Sprint(n)
}

// partitions reports the topic's partitions; a partition without a leader takes nothing.
func (c *checkup) partitions(what string, t *topic, found *kafka.Topic) {
	replicas := len(found.Partitions[0].Replicas)
	var headless []int
	for i, p := range t.partitions {
		replicas = min(replicas, len(found.Partitions[i].Replicas))
		if p.leader == nil {
			headless = append(headless, p.id)
		}
	}
	c.report(what, fmt.Sprintf("%d partitions, %d replicas each", len(t.partitions), replicas))
	if headless != nil {
		c.fail(what, fmt.Errorf("partitions %v: %w", headless, kafka.LeaderNotAvailable))
	}
}
