package witness

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cosignature "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/internal/testbed/testlog"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// A witness can neither give its signature a time that is none, nor spell it in a way that whoever verifies
// the history refuses: else it could spoil the trail of everybody who trusts it.
func TestAWitnessCannotSpoilACheckpoint(t *testing.T) {
	t.Parallel()
	secret := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public, _ := secret.Public().(ed25519.PublicKey)
	plain, err := note.NewEd25519VerifierKey("w.example.com/w", public)
	require.NoError(t, err)
	key, err := cosignature.VKeyToCosignatureV1(plain)
	require.NoError(t, err)
	verifier, err := proof.NewCosignatureVerifier(key)
	require.NoError(t, err)
	l := testlog.New(t, "example.com/log", 50, "entry")
	asIs := func(text string) string { return text }
	for name, c := range map[string]struct {
		at    uint64
		spell func(string) string
		good  bool
	}{
		"of now":              {1_700_000_000, asIs, true},
		"before 1970":         {1<<64 - 1, asIs, false},
		"after the year 9999": {253_402_300_800, asIs, false},
		"with unused bits": {1_700_000_000, func(text string) string {
			const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
			at := len(text) - 3 // before ==
			require.Equal(t, "==", text[at+1:])
			return text[:at] + letters[strings.IndexByte(letters, text[at])+1:][:1] + "=="
		}, true},
		"with a carriage return": {1_700_000_000, func(text string) string { return text[:8] + "\r" + text[8:] }, false},
	} {
		w := &theWitness{key: Key{public: key}}
		w.set(func(answer http.ResponseWriter, r *http.Request) error {
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			request, err := ParseRequest(body)
			require.NoError(t, err)
			signature := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, verifier.KeyHash()), c.at)
			signature = append(signature, ed25519.Sign(secret, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", c.at, proof.NoteText(request.Checkpoint)))...)
			_, err = fmt.Fprintf(answer, "— %s %s\n", verifier.Name(), c.spell(base64.StdEncoding.EncodeToString(signature)))
			return err
		})
		s := newScene(t, 1, w)
		text, err := s.cosign(t.Context(), offer(l, 20))
		require.Equal(t, c.good, err == nil, "%s: %v", name, err)
		if c.good {
			requireSigned(t, l, text, w)
			assert.True(t, proof.PlainlySpelled(string(text)), name)
			policy, err := proof.NewPolicy([]proof.Log{{Key: l.Public}}, []proof.Witness{{Name: "w", Key: key}}, 1)
			require.NoError(t, err)
			_, _, err = policy.Open(text)
			assert.NoError(t, err, name)
		}
	}
}
