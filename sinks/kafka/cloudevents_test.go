package kafka

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// message is a record as CloudEvents' SDK for Go reads it, by the Kafka protocol binding: with
// attributes in headers beginning with ce_, or a content type beginning with
// application/cloudevents.
type message struct{ record *kgo.Record }

// prefixed are the attributes of the specification, found by their headers.
var prefixed = spec.WithPrefix("ce_")

func (m message) header(name string) string {
	for _, h := range m.record.Headers {
		if strings.EqualFold(h.Key, name) {
			return string(h.Value)
		}
	}
	return ""
}

func (m message) version() spec.Version {
	return prefixed.Version(m.header(prefixed.PrefixedSpecVersionName()))
}

func (m message) ReadEncoding() binding.Encoding {
	switch {
	case format.IsFormat(m.header("content-type")):
		return binding.EncodingStructured
	case m.version() != nil:
		return binding.EncodingBinary
	}
	return binding.EncodingUnknown
}

func (m message) ReadStructured(ctx context.Context, w binding.StructuredWriter) error {
	f := format.Lookup(m.header("content-type"))
	if f == nil {
		return binding.ErrNotStructured
	}
	return w.SetStructuredEvent(ctx, f, bytes.NewReader(m.record.Value))
}

func (m message) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	version := m.version()
	for _, h := range m.record.Headers {
		var err error
		switch attribute := version.Attribute(h.Key); {
		case h.Key == "content-type":
			err = w.SetAttribute(version.AttributeFromKind(spec.DataContentType), string(h.Value))
		case attribute != nil:
			err = w.SetAttribute(attribute, string(h.Value))
		default:
			err = w.SetExtension(strings.TrimPrefix(h.Key, "ce_"), string(h.Value))
		}
		if err != nil {
			return err
		}
	}
	return w.SetData(bytes.NewReader(m.record.Value))
}

func (m message) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	attribute := m.version().AttributeFromKind(kind)
	if attribute == nil {
		return nil, nil
	}
	return attribute, m.header(attribute.PrefixedName())
}

func (m message) GetExtension(name string) any { return m.header("ce_" + name) }
func (m message) Finish(error) error           { return nil }

// understood returns a record as the SDK understands it.
func understood(t *testing.T, r *kgo.Record) *event.Event {
	t.Helper()
	e, err := binding.ToEvent(t.Context(), message{r})
	require.NoError(t, err)
	require.NoError(t, e.Validate())
	return e
}

// batched returns the events of a record in batch mode, as the SDK understands them.
func batched(t testing.TB, r *kgo.Record) (events []event.Event) {
	t.Helper()
	assert.Equal(t, []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/cloudevents-batch+json")}}, r.Headers)
	require.NoError(t, json.Unmarshal(r.Value, &events))
	for i := range events {
		require.NoError(t, events[i].Validate())
	}
	return events
}

// A consumer with CloudEvents' SDK reads the same bodies and attributes in both modes.
func TestTheSDKReadsBothModes(t *testing.T) {
	t.Parallel()
	for mode, encoding := range map[string]binding.Encoding{"binary": binding.EncodingBinary, "structured": binding.EncodingStructured} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, kfake.SeedTopics(1, testTopic))
			s := c.sink(t, func(cfg *config.Kafka) { cfg.Mode = mode })
			events := relaytest.Events(6)
			events[1].Subject = "user \"é\""
			events[2].Body = []byte(" {\"spaced\": 1.0}\n")
			events[3].ContentType, events[3].Body = "application/octet-stream", []byte("\x00\xff")
			events[4].Environment, events[4].Source = "", relay.SourceOf(events[4].Project, "")
			events[5].Body = []byte(`{"é":"\u00e9","n":12.50}`)
			require.NoError(t, s.Deliver(t.Context(), events))
			records := c.records(t, testTopic)
			require.Len(t, records, len(events))
			for i, r := range records {
				require.Equal(t, encoding, message{r}.ReadEncoding())
				assertSame(t, &events[i], understood(t, r))
			}
			if mode == "structured" {
				assert.Equal(t, []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/cloudevents+json")}}, records[0].Headers)
			}
		})
	}
}

func assertSame(t *testing.T, want *relay.Event, got *event.Event) {
	t.Helper()
	assert.Equal(t, string(want.Body), string(got.Data()))
	assert.Equal(t, []string{want.ID, want.Source, want.Type, want.Subject, want.ContentType},
		[]string{got.ID(), got.Source(), got.Type(), got.Subject(), got.DataContentType()})
	assert.True(t, want.Time.Equal(got.Time()), "%v, %v", want.Time, got.Time())
	extensions := map[string]any{}
	for name, value := range want.Attributes {
		switch name {
		case "project", "environment", "receivedtime":
			extensions[name] = value
		}
	}
	assert.Equal(t, extensions, got.Extensions())
}

// The records of one user stay together and in order, whichever environment they come from;
// events whose body names no user go round-robin.
func TestKeyFromTheBody(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(12, testTopic))
	s := c.sink(t, func(cfg *config.Kafka) { cfg.Key, cfg.Mode = "/user/id", "structured" })
	events := relaytest.Events(60)
	want := map[string][]string{}
	for i := range events {
		user := string(rune('a' + i%5))
		events[i].Body = []byte(`{"user":{"id":"` + user + `"}}`)
		if user == "e" {
			user, events[i].Body = "", []byte("not JSON")
		}
		want[user] = append(want[user], events[i].ID)
	}
	require.NoError(t, s.Deliver(t.Context(), events))
	got, partitions := map[string][]string{}, map[string]map[int32]bool{}
	for _, r := range c.records(t, testTopic) {
		key := string(r.Key)
		assert.Equal(t, key == "", r.Key == nil, "no key is none, rather than an empty one")
		got[key] = append(got[key], understood(t, r).ID())
		if partitions[key] == nil {
			partitions[key] = map[int32]bool{}
		}
		partitions[key][r.Partition] = true
	}
	assert.Len(t, partitions[""], 12)
	assert.ElementsMatch(t, want[""], got[""])
	delete(want, "")
	delete(got, "")
	assert.Equal(t, want, got)
	for key := range want {
		assert.Len(t, partitions[key], 1, "partitions of %s", key)
	}
}
