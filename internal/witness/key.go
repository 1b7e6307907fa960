package witness

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	cosignature "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/internal/durable"
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
	text, err := os.ReadFile(file)
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

// GenerateKey makes a key of that name and keeps it in a new file. A crash before the
// file's rename leaves no key, and one behind it a whole one.
func GenerateKey(file, name string) (Key, error) {
	text, _, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return Key{}, fmt.Errorf("generate witness key %q: %w", name, err)
	}
	k, err := parseKey(text)
	if err != nil {
		return Key{}, fmt.Errorf("generate witness key %q: %w", name, err)
	}
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return Key{}, fmt.Errorf("keep witness key: %s exists", file)
	}
	if err := durable.WriteFile(file, []byte(text+"\n")); err != nil {
		return Key{}, fmt.Errorf("keep witness key: %w", err)
	}
	return k, nil
}

// publicOf derives the verifier key of a valid signing key. It has the signature type of
// cosignatures, so nobody takes it for the key of plain notes.
func publicOf(text string) (string, error) {
	parts := strings.SplitN(text, "+", 5) // PRIVATE+KEY+NAME+HASH+SEED; base64 has pluses of its own
	seed, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return "", errors.New("it is not an Ed25519 key")
	}
	public, _ := ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey)
	plain, err := note.NewEd25519VerifierKey(parts[2], public)
	if err != nil {
		return "", fmt.Errorf("derive public key: %w", err)
	}
	return cosignature.VKeyToCosignatureV1(plain)
}
