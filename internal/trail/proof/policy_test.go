package proof

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
)

// The example of the page, with keys.
func TestAPolicyCountsGroups(t *testing.T) {
	t.Parallel()
	log, logKey := testKey(t, "example.com/log")
	text := "# ours\n\tlog " + logKey + " https://example.com/log/ \n\n"
	signers := map[string]note.Signer{}
	for _, name := range []string{"X1", "X2", "X3", "Y1", "Y2", "Y3"} {
		s, key := testWitness(t, "w.example/"+name)
		signers[name] = s
		text += "witness " + name + " " + key + "\n"
	}
	text += "group X-witnesses 2 X1 X2 X3\ngroup Y-witnesses any Y1 Y2 Y3\ngroup X-and-Y all X-witnesses Y-witnesses\nquorum X-and-Y\n"
	policy, err := ParsePolicy(text)
	require.NoError(t, err)
	assert.Equal(t, []Log{{logKey, "https://example.com/log/"}}, policy.Logs)
	assert.Len(t, policy.Witnesses, 6)
	c := newTestTree(t, 3).checkpoint(t, "example.com/log", 3)
	for by, missing := range map[string]string{
		"X1 X2 Y3": "", "X1 X2 X3 Y1 Y2 Y3": "",
		"":            "X-and-Y needs 2 of 2, and lacks X-witnesses needs 2 of 3, and lacks X1, X2, X3, Y-witnesses needs 1 of 3, and lacks Y1, Y2, Y3",
		"X1 Y1 Y2 Y3": "X-and-Y needs 2 of 2, and lacks X-witnesses needs 2 of 3, and lacks X2, X3",
		"X1 X2 X3":    "X-and-Y needs 2 of 2, and lacks Y-witnesses needs 1 of 3, and lacks Y1, Y2, Y3",
	} {
		all := []note.Signer{log}
		for _, name := range strings.Fields(by) {
			all = append(all, signers[name])
		}
		got, signedBy, err := policy.Open(sign(t, c, all...))
		assert.Equal(t, c, got)
		assert.Equal(t, logKey, signedBy.Log)
		assert.Len(t, signedBy.Witnesses, len(all)-1)
		if missing == "" {
			require.NoError(t, err, by)
			assert.WithinDuration(t, time.Now(), signedBy.Witnesses[0].Time, time.Hour)
			continue
		}
		require.ErrorIs(t, err, ErrQuorum, by)
		assert.ErrorContains(t, err, missing)
	}
}

func TestAPolicyTakesNobodyElsesWord(t *testing.T) {
	t.Parallel()
	log, logKey := testKey(t, "example.com/log")
	other, _ := testKey(t, "example.com/other")
	w, wKey := testWitness(t, "w.example")
	policy, err := NewPolicy([]Log{{Key: logKey}}, []Witness{{Name: "w", Key: wKey}}, 1)
	require.NoError(t, err)
	c := newTestTree(t, 3).checkpoint(t, "example.com/log", 3)
	good := sign(t, c, log, w)
	_, _, err = policy.Open(good)
	require.NoError(t, err)
	for what, signed := range map[string][]byte{
		"no log of the policy has signed it":                                   sign(t, c, other),
		`no log of the policy with the origin "example.com/log" has signed it`: sign(t, c, w),
		"with the origin \"example.com/other\"":                                sign(t, Checkpoint{Origin: "example.com/other"}, log),
		"parse checkpoint":                                                     mustSign(t, "example.com/log\n", log),
		"malformed note":                                                       good[1 : len(good)-1],
		"invalid signature for key example.com/log":                            []byte(strings.Replace(string(good), "\n3\n", "\n4\n", 1)),
	} {
		_, _, err := policy.Open(signed)
		assert.ErrorContains(t, err, what)
	}
}

func mustSign(t *testing.T, text string, s note.Signer) []byte {
	t.Helper()
	signed, err := note.Sign(&note.Note{Text: text}, s)
	require.NoError(t, err)
	return signed
}

func TestALogSaysWhenItSigned(t *testing.T) {
	t.Parallel()
	secret, key, err := note.GenerateKey(rand.Reader, "example.com/log")
	require.NoError(t, err)
	cosigner, err := cosign.NewSignerForCosignatureV1(secret)
	require.NoError(t, err)
	log, logKey := testKey(t, "example.com/log")
	c := newTestTree(t, 3).checkpoint(t, "example.com/log", 3)
	policy, err := NewPolicy([]Log{{Key: logKey}, {Key: key}}, nil, 0)
	require.NoError(t, err)
	_, _, err = policy.Open(sign(t, c, cosigner))
	require.ErrorContains(t, err, "no log of the policy", "the time alone is not the signature of this kind of key")

	skey, logKey := testKeyText(t, "example.com/log")
	timed, err := cosign.NewSignerForCosignatureV1(skey)
	require.NoError(t, err)
	_, by, err := policy.Open(sign(t, c, timed, log))
	require.NoError(t, err)
	assert.Equal(t, logKey, by.Log)
	assert.WithinDuration(t, time.Now(), by.Time, time.Hour)
}

func TestPostQuantumWitnesses(t *testing.T) {
	t.Parallel()
	log, logKey := testKey(t, "example.com/log")
	skey, vkey, err := cosign.GenerateMLDSAKey("w.example")
	require.NoError(t, err)
	w, err := cosign.NewMLDSASigner(skey)
	require.NoError(t, err)
	policy, err := NewPolicy([]Log{{Key: logKey}}, []Witness{{Name: "w", Key: vkey}}, 1)
	require.NoError(t, err)
	_, by, err := policy.Open(sign(t, newTestTree(t, 3).checkpoint(t, "example.com/log", 3), log, w))
	require.NoError(t, err)
	assert.Equal(t, "w", by.Witnesses[0].Witness)
}

func TestOtherTextIsNoPolicy(t *testing.T) {
	t.Parallel()
	_, key := testKey(t, "example.com/log")
	again, err := Renamed(key, "other.example")
	require.NoError(t, err)
	assert.True(t, SamePublicKey(key, again))
	_, w := testWitness(t, "w.example")
	for text, want := range map[string]string{
		"": "last line", "quorum none": "last line", "\n": "no line", "quorum none\nquorum none\n": "second quorum",
		"quorum w\n": "no line before it defines", "log x\nquorum none\n": "line 1", "quorum none\r\n": "control character",
		"log " + key + "\nlog " + again + "\n":                        "another log has the public key",
		"witness a " + w + "\nwitness b " + w + "\n":                  "another witness has the public key",
		"witness a " + w + "\nwitness a " + key + "\n":                `the name "a" is taken`,
		"witness none " + w + "\n":                                    `the name "none" is taken`,
		"witness a " + w + "\ngroup g 2 a\n":                          "a number from 1 to 1",
		"witness a " + w + "\ngroup g 0 a\n":                          "a number from 1 to 1",
		"witness a " + w + "\ngroup g any a a\n":                      "a member twice",
		"witness a " + w + "\ngroup g any a\ngroup h any a\n":         "a member twice",
		"group g any none\n":                                          "no line before it defines",
		"witness\n":                                                   "is none of",
		"log " + strings.Replace(key, "log+", "log+0", 1) + "\n":      "is not a verifier key",
		"log " + strings.Replace(key, "example", "exampel", 1) + "\n": "it was mistyped",
	} {
		_, err := ParsePolicy(text)
		assert.ErrorContains(t, err, want, "%q", text)
	}
}

// A signing key that somebody takes for the public one, or for a policy, is not shown.
func TestASigningKeyIsNotShown(t *testing.T) {
	t.Parallel()
	secret, _, err := note.GenerateKey(rand.Reader, "log")
	require.NoError(t, err)
	seed := secret[len("PRIVATE+KEY+log+00000000+"):]
	for _, text := range []string{secret, "log " + secret, "witness a " + secret, "witness " + secret, "group " + secret, "group g " + secret, "quorum " + secret} {
		_, err := ParsePolicy(text + "\n")
		require.Error(t, err)
		assert.NotContains(t, err.Error(), seed[:8], text)
	}
}

// timeless is a witness whose signature is good, and of a time that is none.
type timeless struct {
	note.Signer

	secret ed25519.PrivateKey
	at     uint64
}

func (s timeless) Sign(msg []byte) ([]byte, error) {
	return append(binary.BigEndian.AppendUint64(nil, s.at), ed25519.Sign(s.secret, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", s.at, msg))...), nil
}

// A witness can withhold its signature, and no more: one of a time that is none spoils no checkpoint.
func TestAWitnessesSignatureWithoutATimeCountsForNothing(t *testing.T) {
	t.Parallel()
	log, logKey := testKey(t, "example.com/log")
	good, goodKey := testWitness(t, "good.example")
	bad, badKey := testWitness(t, "bad.example")
	seed := sha256.Sum256([]byte("bad.example"))
	c := newTestTree(t, 3).checkpoint(t, "example.com/log", 3)
	for at, counted := range map[uint64]int{1: 2, 1 << 63: 1, 1<<64 - 1: 1, 253_402_300_800: 1} {
		signed := sign(t, c, log, good, timeless{bad, ed25519.NewKeyFromSeed(seed[:]), at})
		for need := 1; need <= 2; need++ {
			policy, err := NewPolicy([]Log{{Key: logKey}}, []Witness{{Name: "good", Key: goodKey}, {Name: "bad", Key: badKey}}, need)
			require.NoError(t, err)
			_, by, err := policy.Open(signed)
			require.Equal(t, need > counted, errors.Is(err, ErrQuorum), "at %d: %v", at, err)
			require.Len(t, by.Witnesses, counted)
		}
	}
}
