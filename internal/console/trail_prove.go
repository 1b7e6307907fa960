package console

import "context"

// ListSpan asks for the list of a span.
type ListSpan struct {
	// Entry is the index of the span's entry, and Open asks for an open list: see [digest.List].
	Entry int64 `json:"entry"`
	Open  bool  `json:"open,omitempty"`
}

func (s *Server) listSpan(ctx context.Context, req ListSpan, out *stream) error {
	return s.opts.ListSpan(ctx, req, out.put)
}
