package audit

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	tnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
)

// noteSigner is a [note.Signer] of a key, under one of its two hashes.
type noteSigner struct {
	name string
	hash uint32
	sign func(msg []byte) ([]byte, error)
}

func (s noteSigner) Name() string                    { return s.name }
func (s noteSigner) KeyHash() uint32                 { return s.hash }
func (s noteSigner) Sign(msg []byte) ([]byte, error) { return s.sign(msg) }

// signNote signs a text, and signs it again with a time: C2SP tlog-cosignature,
// cosignature/v1 with Ed25519, under the key's own name. The library does the latter
// with a secret only, and ours may be in another program.
func signNote(ctx context.Context, key keyPair, text string, at time.Time) ([]byte, error) {
	timestamps, err := tnote.NewVerifierForCosignatureV1(key.public)
	if err != nil {
		return nil, fmt.Errorf("read public key: %w", err)
	}
	plain := func(msg []byte) ([]byte, error) { return key.sign(ctx, msg) }
	timed := func(msg []byte) ([]byte, error) {
		seconds := uint64(at.Unix())
		sig, err := key.sign(ctx, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", seconds, msg))
		return append(binary.BigEndian.AppendUint64(nil, seconds), sig...), err
	}
	return note.Sign(&note.Note{Text: text},
		noteSigner{key.Name(), key.verifier.KeyHash(), plain}, noteSigner{key.Name(), timestamps.KeyHash(), timed})
}
