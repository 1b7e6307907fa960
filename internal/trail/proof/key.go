package proof

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
)

// algEd25519 is the signature type of plain notes, in a verifier key: https://c2sp.org/signed-note.
const algEd25519 = 1

// verifierKey is NAME+HASH+KEY in parts: https://c2sp.org/signed-note, "Verifier keys".
type verifierKey struct {
	name  string
	alg   byte
	bytes []byte // the public key
}

func parseKey(text string) (verifierKey, error) {
	refuse := fmt.Errorf("%q is not a verifier key, NAME+HASH+KEY", clipped(text))
	parts := strings.SplitN(text, "+", 3)
	if len(parts) < 3 || !validName(parts[0]) || len(parts[1]) != 8 {
		return verifierKey{}, refuse
	}
	hash, err := strconv.ParseUint(parts[1], 16, 32)
	if err != nil {
		return verifierKey{}, refuse
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(parts[2])
	if err != nil || len(raw) < 2 {
		return verifierKey{}, refuse
	}
	k := verifierKey{name: parts[0], alg: raw[0], bytes: raw[1:]}
	if uint32(hash) != k.hash() {
		return verifierKey{}, fmt.Errorf("verifier key of %q: its hash is not of its name and key: it was mistyped", k.name)
	}
	return k, nil
}

// VerifierOf is the verifier key, of the type Ed25519, of a signing key in the note form,
// PRIVATE+KEY+NAME+HASH+SEED. Its errors do not show the key.
func VerifierOf(secret string) (string, error) {
	parts := strings.SplitN(secret, "+", 5) // base64 has pluses of its own
	if len(parts) < 5 {
		return "", errors.New("it is not in the note form PRIVATE+KEY+NAME+HASH+SEED")
	}
	seed, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return "", errors.New("it is not an Ed25519 key")
	}
	public, _ := ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey)
	return note.NewEd25519VerifierKey(parts[2], public)
}

func validName(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsSpace) && !strings.Contains(name, "+")
}

// hash is the key id: of the name, the signature type and the key.
func (k verifierKey) hash() uint32 {
	sum := sha256.Sum256(append(append([]byte(k.name+"\n"), k.alg), k.bytes...))
	return binary.BigEndian.Uint32(sum[:])
}

func (k verifierKey) String() string {
	return fmt.Sprintf("%s+%08x+%s", k.name, k.hash(), base64.StdEncoding.EncodeToString(append([]byte{k.alg}, k.bytes...)))
}

// Renamed is the same public key under another name: another verifier key. Each
// generation of a trail has an origin of its own, and mostly the same public key.
func Renamed(verifier, name string) (string, error) {
	k, err := parseKey(verifier)
	if err != nil {
		return "", err
	}
	if k.name = name; !validName(name) {
		return "", fmt.Errorf("%q is no name of a key: it is empty, or has a space or a plus", clipped(name))
	}
	return k.String(), nil
}

// SamePublicKey reports whether two verifier keys have the same public key, under
// whatever names: https://c2sp.org/tlog-policy calls them duplicates.
func SamePublicKey(a, b string) bool {
	one, err1 := parseKey(a)
	other, err2 := parseKey(b)
	return err1 == nil && err2 == nil && bytes.Equal(one.bytes, other.bytes)
}

// NewCosignatureVerifier checks timestamped signatures (https://c2sp.org/tlog-cosignature)
// of a verifier key with the type Ed25519 (also of plain notes) or ML-DSA-44.
func NewCosignatureVerifier(verifier string) (note.Verifier, error) {
	k, err := parseKey(verifier)
	if err != nil {
		return nil, err
	}
	v, err := cosign.NewVerifierForCosignatureV1(verifier)
	if err != nil {
		return nil, fmt.Errorf("verifier key of %q, signature type %d: %w", k.name, k.alg, err)
	}
	return v, nil
}

// NameOf is the name in a verifier key, a log's origin; empty where it is none.
func NameOf(verifier string) string {
	k, err := parseKey(verifier)
	if err != nil {
		return ""
	}
	return k.name
}
