package traces

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/retry"
)

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
