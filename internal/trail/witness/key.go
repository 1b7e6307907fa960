package witness

import (
	"errors"
	"fmt"
	"strings"

	cosignature "github.com/transparency-dev/formats/note"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
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

// parseKey reads the text of a key; its errors do not show it. The verifier key has the signature
// type of cosignatures, so that nobody takes it for the key of plain notes.
func parseKey(text string) (Key, error) {
	signer, err := cosignature.NewSignerForCosignatureV1(text)
	if err != nil {
		return Key{}, errors.New("it is not an Ed25519 key in the note form PRIVATE+KEY+NAME+HASH+SEED")
	}
	plain, err := proof.VerifierOf(text)
	if err != nil {
		return Key{}, err
	}
	public, err := cosignature.VKeyToCosignatureV1(plain)
	return Key{signer, public}, err
}

// GenerateKey makes a key of this name and keeps it in a new file: see [audit.GenerateKey].
func GenerateKey(file, name string) (Key, error) {
	if _, err := audit.GenerateKey(file, name); err != nil {
		return Key{}, fmt.Errorf("make witness key: %w", err)
	}
	return LoadKey(file)
}
