package console

import (
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
