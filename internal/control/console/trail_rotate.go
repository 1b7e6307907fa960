package console

import (
	"context"
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

func (s *Server) rotateKey(ctx context.Context, req RotateKey) (RotatedKey, error) {
	// A client that goes away does not leave a rotation half done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rotatePatience)
	defer cancel()
	public, err := req.Public, error(nil)
	if public != "" {
		err = s.opts.Trail.NameNextKey(ctx, public, personOf(ctx))
	} else {
		public, err = s.opts.Trail.Rotate(ctx, personOf(ctx))
	}
	s.logEnd("rotation of the audit trail's key by command", err, "public_key", public, "user", personOf(ctx).User)
	return RotatedKey{PublicKey: public}, err
}
