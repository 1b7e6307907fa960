package console

import (
	"context"
	"net/http"
	"time"
)

// RotateKey asks to replace the signing key of the audit trail.
type RotateKey struct {
	// Public, where set, is the public key of a successor that is kept elsewhere, in the note
	// form: the trail only names it.
	Public string `json:"public,omitempty"`
}

// RotatedKey is the answer: the trail's newest public key, or the named one.
type RotatedKey struct {
	PublicKey string `json:"public_key"`
}

// rotatePatience bounds a rotation. A large trail takes some time to be read back.
const rotatePatience = 10 * time.Minute

func (s *Server) rotateKey(w http.ResponseWriter, r *http.Request) {
	var req RotateKey
	if err := readJSON(w, r, &req); err != nil {
		s.fail(w, err)
		return
	}
	// A client that goes away does not leave a rotation half done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), rotatePatience)
	defer cancel()
	public, err := s.opts.RotateKey(ctx, req.Public)
	by := personOf(r.Context())
	s.logEnd("rotation of the audit trail's key by command", err, "public_key", public, "user", by.User)
	if err != nil {
		s.fail(w, err)
		return
	}
	writeJSON(w, http.StatusOK, RotatedKey{PublicKey: public})
}
