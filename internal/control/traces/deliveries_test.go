package traces

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func recording() (*Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	return &Tracer{ratio: 1, provider: provider, tracer: provider.Tracer("test")}, spans
}

func names(spans *tracetest.SpanRecorder) (all []string) {
	for _, s := range spans.Ended() {
		all = append(all, s.Name())
	}
	return all
}

func record(p relay.Position) uint64 { return uint64(p) }

func TestADeliveryAcknowledgedBeforeThePushIsAnswered(t *testing.T) {
	tracer, spans := recording()
	source := tracer.Source("kafka", relaytest.NewSource(relaytest.Events(1)), record)
	batch, err := source.Next(t.Context())
	require.NoError(t, err)
	require.NoError(t, source.Ack(t.Context(), batch.Position))
	push := tracer.Push(time.Now(), "loki_push")
	push.Committed(time.Now(), record(batch.Position), 1)
	push.End("acme", "live", 204)
	assert.Equal(t, []string{"commit", "deliver kafka", "push"}, names(spans))
}

func TestOnlyDeliveredRecordsHaveSpans(t *testing.T) {
	tracer, spans := recording()
	events := relaytest.Events(2)
	source := tracer.Source("kafka", relaytest.NewSource(events[:1], events[1:]), record)
	for at := range uint64(2) {
		tracer.Push(time.Now(), "loki_push").Committed(time.Now(), at+1, 1)
	}
	batch, err := source.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, names(spans), 2, "read is not delivered")
	require.NoError(t, source.Ack(t.Context(), batch.Position))
	assert.Equal(t, []string{"commit", "commit", "deliver kafka"}, names(spans))
}

func TestADeadSinkHoldsABoundedNumber(t *testing.T) {
	tracer, _ := recording()
	source := tracer.Source("dead", relaytest.NewSource(), record)
	for at := range uint64(3 * mostWaiting) {
		tracer.Push(time.Now(), "loki_push").Committed(time.Now(), at+1, 1)
	}
	assert.Len(t, source.(*deliveries).waiting, mostWaiting)
	assert.Equal(t, uint64(3*mostWaiting), source.(*deliveries).waiting[mostWaiting-1].record)
}

func TestWithoutTracesNothingIsMade(t *testing.T) {
	var tracer *Tracer
	source := relaytest.NewSource()
	assert.Same(t, relay.Source(source), tracer.Source("kafka", source, record))
	allocations := testing.AllocsPerRun(100, func() {
		push := tracer.Push(time.Time{}, "loki_push")
		push.Committed(time.Time{}, 1, 1)
		push.End("acme", "live", 204)
	})
	assert.Zero(t, allocations)
}

func TestFewPushesAreDrawn(t *testing.T) {
	tracer, spans := recording()
	tracer.ratio = 0.01
	for range 10_000 {
		tracer.Push(time.Now(), "loki_push").End("acme", "live", 204)
	}
	drawn := len(names(spans))
	assert.True(t, 20 < drawn && drawn < 250, "%d of 10,000 at 1 %%", drawn)
}
