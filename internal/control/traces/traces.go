// Package traces makes OpenTelemetry traces of events on their way: the push, the commit, and
// the delivery to each sink. It sends them by OTLP over HTTP
// (https://opentelemetry.io/docs/specs/otlp/).
//
// Whether a push is traced is decided by chance when it begins. Its delivery is matched by the
// position of its record in the journal. Waiting deliveries are kept in memory, within bounds:
// after a restart, or for a sink that is far behind, a trace ends before the delivery. Traces
// contain no event and no secret, and losing them is harmless: an export is tried once, and a
// stop waits only for moments. Redirects are not followed, since the headers would be sent
// along.
//
// A nil *Tracer makes no traces and costs nothing.
package traces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/retry"
)

// Options configure a Tracer.
type Options struct {
	// Endpoint is the address for spans, such as https://otel.example.com:4318/v1/traces.
	Endpoint string
	Headers  map[string]secret.Text
	TLS      *config.TLSClient // nil for the system's roots
	// Ratio is the share of pushes that are traced, above 0 and at most 1.
	Ratio   float64
	Version string
	Logger  *slog.Logger
}

// Tracer makes traces. It is safe for concurrent use.
type Tracer struct {
	ratio    float64
	headers  *headers
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer

	mu    sync.Mutex
	sinks []*deliveries // guarded by mu
}

const (
	// exportTimeout bounds one export.
	exportTimeout = 10 * time.Second
	// closeTimeout bounds the export at the end, so that no restart waits for a silent
	// collector.
	closeTimeout = 2 * time.Second
)

// New makes a Tracer. It connects with the first export.
func New(ctx context.Context, o Options) (*Tracer, error) {
	transport, err := o.TLS.Transport(&http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	})
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	sent := &headers{next: transport}
	sent.now.Store(&o.Headers)
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(o.Endpoint), otlptracehttp.WithHTTPClient(client(sent)),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}))
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // pushes are drawn before they have a span
		sdktrace.WithBatcher(&quiet{SpanExporter: exporter, log: o.Logger, headers: sent}, sdktrace.WithExportTimeout(exportTimeout)),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "auditrelay"), attribute.String("service.version", o.Version))),
	)
	return &Tracer{ratio: o.Ratio, headers: sent, provider: provider, tracer: provider.Tracer("auditrelay")}, nil
}

// client replaces the library's own, which follows redirects with all headers.
func client(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Timeout:       exportTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     transport,
	}
}

// headers adds headers to requests.
type headers struct {
	next http.RoundTripper
	now  atomic.Pointer[map[string]secret.Text]
}

// RoundTrip implements [http.RoundTripper].
func (h *headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range *h.now.Load() {
		r.Header.Set(name, value.Reveal())
	}
	return h.next.RoundTrip(r)
}

// SetHeaders changes the headers that are sent with each export.
func (t *Tracer) SetHeaders(to map[string]secret.Text) {
	if t != nil {
		t.headers.now.Store(&to)
	}
}

// Close exports the finished spans, as far as ctx and closeTimeout allow.
func (t *Tracer) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last traces: %w", err)
	}
	return nil
}

// Push begins the trace of a push to an endpoint; nil for most pushes.
func (t *Tracer) Push(begun time.Time, endpoint string) *Push {
	if t == nil || rand.Float64() >= t.ratio { //nolint:gosec // a sample is no secret
		return nil
	}
	_, span := t.tracer.Start(context.Background(), "push", trace.WithTimestamp(begun), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("auditrelay.endpoint", endpoint)))
	return &Push{t: t, span: span}
}

// Push is the trace of one push. A nil *Push belongs to a push without a trace.
type Push struct {
	t    *Tracer
	span trace.Span
}

// Committed records the commit of the push's events, from begun until now. record is the
// position of the record with the last one.
func (p *Push) Committed(begun time.Time, record uint64, events int) {
	if p == nil {
		return
	}
	now := time.Now()
	p.child("commit", begun, now, trace.SpanKindInternal, attribute.Int64("auditrelay.record", int64(record)), attribute.Int("auditrelay.events", events))
	p.t.await(&waiting{push: p, record: record, committed: now})
}

// End ends the push with the status of its answer.
func (p *Push) End(project, environment string, status int) {
	if p == nil {
		return
	}
	p.span.SetAttributes(attribute.Int("http.response.status_code", status),
		attribute.String("auditrelay.project", project), attribute.String("auditrelay.environment", environment))
	p.span.End()
}

func (p *Push) child(name string, begun, ended time.Time, kind trace.SpanKind, about ...attribute.KeyValue) {
	ctx := trace.ContextWithSpanContext(context.Background(), p.span.SpanContext())
	_, span := p.t.tracer.Start(ctx, name, trace.WithTimestamp(begun), trace.WithSpanKind(kind), trace.WithAttributes(about...))
	span.End(trace.WithTimestamp(ended))
}

const (
	// shortestSecret is the least length of a text to search for, since a shorter one may be an
	// everyday word.
	shortestSecret = 4
	// maxReason bounds how much of an error's text is logged, in characters, and reasonFrom the
	// text that it is made from, in bytes.
	maxReason  = 500
	reasonFrom = 4 << 10
)

// quiet logs now and then that exports fail. The library hands errors to a global handler.
type quiet struct {
	sdktrace.SpanExporter
	log     *slog.Logger
	headers *headers
	failing retry.Failure // used by the one goroutine that exports
}

// ExportSpans implements [sdktrace.SpanExporter].
func (q *quiet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	before := *q.headers.now.Load()
	err := q.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		err = errors.New(q.reason(err, before, *q.headers.now.Load()))
	}
	q.failing.Tell(q.log, err, "traces cannot be sent, and are dropped", "traces can be sent again")
	return nil
}

// reason returns an error in one line. The library puts up to 4 MiB of the collector's answer
// into it, and a collector may echo the headers, of which sent are all that it may have got.
func (q *quiet) reason(err error, sent ...map[string]secret.Text) string {
	text := cleaner(sent...).Replace(err.Error())
	return plaintext.Line(text[:min(len(text), reasonFrom)], maxReason)
}

// cleaner replaces the headers' values, and their words: "Bearer" and the token.
func cleaner(headers ...map[string]secret.Text) *strings.Replacer {
	var secrets []string
	for _, some := range headers {
		for _, value := range some {
			secrets = append(append(secrets, value.Reveal()), strings.Fields(value.Reveal())...)
		}
	}
	return secret.Hide(shortestSecret, secrets...)
}
