package kafkatest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

func TestATopicIsReadBack(t *testing.T) {
	t.Parallel()
	broker, err := StartStandIn(nil)
	require.NoError(t, err)
	defer broker.Close()
	topic := broker.On("t")
	n, err := topic.Count(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n, "the topic does not exist yet")

	require.NoError(t, topic.Create(t.Context(), 3))
	for _, id := range []string{"a", "b"} {
		sent := broker.client.ProduceSync(t.Context(), &kgo.Record{
			Topic: "t", Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(id)}}, Value: []byte("body of " + id),
		})
		require.NoError(t, sent.FirstErr())
	}
	var batch cloudevents.Batch
	for _, id := range []string{"c", "d"} {
		batch.Add(&relay.Event{ID: id, Source: "/s", Body: []byte(`"body"`)}, math.MaxInt)
	}
	sent := broker.client.ProduceSync(t.Context(), &kgo.Record{
		Topic: "t", Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte(cloudevents.BatchMediaType)}}, Value: batch.Text(),
	})
	require.NoError(t, sent.FirstErr())
	n, err = topic.Count(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 3, n)
	var got []string
	require.NoError(t, topic.Read(t.Context(), func(id string, body []byte) { got = append(got, id+": "+string(body)) }))
	assert.ElementsMatch(t, []string{"a: body of a", "b: body of b", `c: "body"`, `d: "body"`}, got)
}
