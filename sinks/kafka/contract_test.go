package kafka

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		partitions int32
		mode       string
	}{"one partition": {1, ""}, "seven partitions": {7, "binary"}, "structured": {3, "structured"}, "batch": {3, "batch"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relaytest.Run(t, relaytest.Harness{New: func(t *testing.T) relaytest.Destination {
				return destination(t, c.partitions, c.mode)
			}})
		})
	}
}

// A delivery in a transaction keeps the contract, too: of events of no journal, which it does not
// know again.
func TestContractOfExactlyOnce(t *testing.T) {
	t.Parallel()
	relaytest.Run(t, relaytest.Harness{New: func(t *testing.T) relaytest.Destination {
		c := onceCluster(t)
		return relaytest.Destination{
			Sink:    c.live(t, Options{}, nil),
			Arrived: func() []relaytest.Arrival { return arrivals(t, c.committed(t, testTopic)) },
			Down:    c.gate.close,
			Up:      c.gate.open,
			Stall:   func() { stall(c) },
		}
	}})
}

func destination(t *testing.T, partitions int32, mode string) relaytest.Destination {
	t.Helper()
	const password = "kafka-pass-5x9q"
	c := newCluster(t, kfake.SeedTopics(partitions, testTopic),
		kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", password))
	s, err := New(complete(t, config.Kafka{
		Brokers: c.ListenAddrs(), Topic: testTopic, Mode: mode,
		SASL: &config.KafkaSASL{Mechanism: "plain", Username: "relay", Password: secret.New(password)},
	}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	login := kgo.SASL(plain.Auth{User: "relay", Pass: password}.AsMechanism())
	return relaytest.Destination{
		Sink:    s,
		Secrets: []string{password},
		Arrived: func() []relaytest.Arrival { return arrivals(t, c.records(t, testTopic, login)) },
		Down:    c.gate.close,
		Up:      c.gate.open,
		Stall:   func() { stall(c) },
		Refuse: func(e *relay.Event) {
			e.Body = make([]byte, 2<<20)
			_, _ = rand.Read(e.Body)
		},
	}
}

// stall makes the cluster take produce requests without ever answering them.
func stall(c *cluster) {
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, nil, true
	})
}

func arrivals(t *testing.T, records []*kgo.Record) []relaytest.Arrival {
	t.Helper()
	var list []relaytest.Arrival
	for _, r := range records {
		switch header(t, r, "content-type") {
		case cloudevents.MediaType:
			list = append(list, arrival(understood(t, r)))
			continue
		case cloudevents.BatchMediaType:
			for _, e := range batched(t, r) {
				list = append(list, arrival(&e))
			}
			continue
		}
		a := relaytest.Arrival{ID: header(t, r, "ce_id"), Body: r.Value, Attributes: map[string]string{}}
		for _, h := range r.Headers {
			name := h.Key
			if name == "content-type" {
				name = "datacontenttype"
			}
			if len(name) > 3 && name[:3] == "ce_" {
				name = name[3:]
			}
			a.Attributes[name] = string(h.Value)
		}
		list = append(list, a)
	}
	return list
}

func arrival(e *event.Event) relaytest.Arrival {
	a := relaytest.Arrival{ID: e.ID(), Body: e.Data(), Attributes: map[string]string{
		"specversion": e.SpecVersion(), "id": e.ID(), "source": e.Source(), "type": e.Type(),
		"time": e.Time().UTC().Format(time.RFC3339Nano), "datacontenttype": e.DataContentType(),
	}}
	for name, value := range e.Extensions() {
		a.Attributes[name] = value.(string)
	}
	if e.Subject() != "" {
		a.Attributes["subject"] = e.Subject()
	}
	return a
}
