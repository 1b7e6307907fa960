package console

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/auditrelay/auditrelay/internal/digest"
)

func (s *Server) proveEvent(w http.ResponseWriter, r *http.Request) {
	var q digest.Query
	if err := readJSON(w, r, &q); err != nil {
		s.fail(w, err)
		return
	}
	bundle, err := s.opts.ProveEvent(r.Context(), q)
	if errors.Is(err, digest.ErrNotFound) {
		err = refuse(http.StatusNotFound, "%v", err)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, bundle)
}

// ListSpan asks for the list of a span.
type ListSpan struct {
	// Entry is the index of the span's entry, and Open asks for an open list: see [digest.List].
	Entry int64 `json:"entry"`
	Open  bool  `json:"open,omitempty"`
}

func (s *Server) listSpan(w http.ResponseWriter, r *http.Request) {
	var req ListSpan
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	out := newStream(w)
	err := s.opts.ListSpan(r.Context(), req, func(line any) error {
		text, err := json.Marshal(line)
		if err != nil {
			return err
		}
		return out.put(frame{Line: text})
	})
	out.end(r.Context(), nil, err)
}
