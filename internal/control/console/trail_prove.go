package console

import (
	"context"

	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
)

func (s *Server) proveEvent(ctx context.Context, q eventproof.Query) (*eventproof.Bundle, error) {
	return eventproof.Prove(ctx, s.opts.Journal, s.opts.Trail, q)
}

// ListSpan asks for the list of a span.
type ListSpan struct {
	// Entry is the index of the span's entry, and Open asks for an open list: see [eventproof.List].
	Entry int64 `json:"entry"`
	Open  bool  `json:"open,omitempty"`
}

func (s *Server) listSpan(ctx context.Context, req ListSpan, out *stream) error {
	return eventproof.List(ctx, s.opts.Journal, s.opts.Trail, req.Entry, req.Open, out.put)
}
