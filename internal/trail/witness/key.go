package witness

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	cosignature "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Key is a witness's signing key: Ed25519, for timestamped cosignatures
// (https://c2sp.org/tlog-cosignature).
type Key struct {
	signer *cosignature.Signer
	public string
}

// Public is the verifier key, NAME+HASH+KEY, of the signature type of cosignatures.
func (k Key) Public() string { return k.public }

// LoadKey reads a key in the note form, PRIVATE+KEY+NAME+HASH+SEED.
func LoadKey(file string) (Key, error) {
	text, err := durable.ReadFile(file)
	if err != nil {
		return Key{}, fmt.Errorf("read witness key: %w", err)
	}
	k, err := parseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return Key{}, fmt.Errorf("read witness key %s: %w", file, err)
	}
	return k, nil
}

// parseKey reads the text of a key; its errors do not show it.
func parseKey(text string) (Key, error) {
	signer, err := cosignature.NewSignerForCosignatureV1(text)
	if err != nil {
		return Key{}, errors.New("it is not an Ed25519 key in the note form PRIVATE+KEY+NAME+HASH+SEED")
	}
	public, err := publicOf(text)
	if err != nil {
		return Key{}, err
	}
	return Key{signer, public}, nil
}

// GenerateKey makes a key of this name and keeps it in a new file. A crash before the file's
// rename leaves no key, and one after it a whole one.
func GenerateKey(file, name string) (Key, error) {
	text, _, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return Key{}, fmt.Errorf("generate witness key %q: %w", name, err)
	}
	k, err := parseKey(text)
	if err != nil {
		return Key{}, fmt.Errorf("generate witness key %q: %w", name, err)
	}
	if err := durable.CreateFile(file, []byte(text+"\n")); err != nil {
		return Key{}, fmt.Errorf("keep witness key: %w", err)
	}
	return k, nil
}

// publicOf derives the verifier key of a valid signing key. It has the signature type of
// cosignatures, so that nobody takes it for the key of plain notes.
func publicOf(text string) (string, error) {
	name, public, err := proof.PublicKeyOf(text)
	if err != nil {
		return "", err
	}
	plain, err := note.NewEd25519VerifierKey(name, public)
	if err != nil {
		return "", fmt.Errorf("derive public key: %w", err)
	}
	return cosignature.VKeyToCosignatureV1(plain)
}
