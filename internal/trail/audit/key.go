package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// keyPair signs checkpoints and checks them.
type keyPair struct {
	verifier note.Verifier
	public   string // in the note form, NAME+HASH+KEY
	// secret gives the 64-byte Ed25519 signature of a message. It is nil where there is no key.
	secret func(ctx context.Context, msg []byte) ([]byte, error)
	marked bool // by its file, it has signed
}

// Name is the origin of the checkpoints.
func (k keyPair) Name() string { return k.verifier.Name() }

// sign returns a checked signature: a wrong one is an error, and never leaves.
func (k keyPair) sign(ctx context.Context, msg []byte) ([]byte, error) {
	sig, err := k.secret(ctx, msg)
	if err != nil {
		return nil, err
	}
	if !k.verifier.Verify(msg, sig) {
		return nil, fmt.Errorf("the signature does not fit the public key %s", k.public)
	}
	return sig, nil
}

// errKeyForm marks a key file whose content is no key.
var errKeyForm = errors.New("parse signing key")

// signedMark is a line before the key in its file, once the key has signed. So who
// deletes the trail and the checkpoint next to the key cannot make the key look new:
// nothing else is left to delete.
const signedMark = "# This key has signed checkpoints: an empty trail under it is a lost one."

// loadKey reads the signing key. It gives fs.ErrNotExist where there is none.
func loadKey(file string) (keyPair, error) {
	text, err := durable.ReadFile(file)
	if err != nil {
		return keyPair{}, fmt.Errorf("read signing key: %w", err)
	}
	return readKey(string(text))
}

// readKey reads a signing key with lines of comments before it.
func readKey(text string) (keyPair, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	key, err := parseKey(lines[len(lines)-1])
	if err == nil && slices.ContainsFunc(lines[:len(lines)-1], func(line string) bool { return !strings.HasPrefix(line, "#") }) {
		return keyPair{}, fmt.Errorf("%w: lines before the key must begin with #", errKeyForm)
	}
	key.marked = slices.Contains(lines, signedMark)
	return key, err
}

// parseKey reads a signing key in the note form.
func parseKey(text string) (keyPair, error) {
	signer, err := note.NewSigner(text)
	if err != nil {
		return keyPair{}, fmt.Errorf("%w: not in the note form PRIVATE+KEY+NAME+HASH+KEY", errKeyForm)
	}
	public, err := tlogproof.VerifierOf(text)
	if err != nil {
		return keyPair{}, fmt.Errorf("%w: %w", errKeyForm, err)
	}
	return newKeyPair(public, func(_ context.Context, msg []byte) ([]byte, error) { return signer.Sign(msg) })
}

// newKeyPair is the key of a public key in the note form, whose secret signs.
func newKeyPair(public string, secret func(ctx context.Context, msg []byte) ([]byte, error)) (keyPair, error) {
	verifier, err := note.NewVerifier(public)
	if err != nil {
		return keyPair{}, fmt.Errorf("read public key: %w", err)
	}
	return keyPair{verifier: verifier, public: public, secret: secret}, nil
}

// named is the same secret under another name, and so another key of the note form: its
// hash covers the name (C2SP signed-note).
func (k keyPair) named(name string) (keyPair, error) {
	if k.secret == nil {
		return keyPair{}, errors.New("name signing key: there is none")
	}
	if name == k.Name() {
		return k, nil
	}
	public, err := tlogproof.Renamed(k.public, name)
	if err != nil {
		return keyPair{}, fmt.Errorf("name signing key: %w", err)
	}
	return newKeyPair(public, k.secret)
}

// isOwn reports whether a public key is k's, under whatever name.
func (k keyPair) isOwn(public string) bool { return tlogproof.SamePublicKey(public, k.public) }

// generateKey makes a key named origin and keeps it in a new file. A crash before the
// rename leaves no key, and one after it a whole one; nothing is signed before this
// returns.
func generateKey(file, origin string) (keyPair, error) {
	text, _, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		return keyPair{}, fmt.Errorf("generate signing key: %w", err)
	}
	key, err := parseKey(text)
	if err != nil {
		return keyPair{}, fmt.Errorf("name signing key %q: %w", origin, err)
	}
	if err := durable.CreateFile(file, []byte(text+"\n")); err != nil {
		return keyPair{}, fmt.Errorf("keep signing key: %w", err)
	}
	return key, nil
}
