package witness

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/testbed/testlog"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// request asks for the first n leaves of a log.
func request(l *testlog.Log, old, n int64) Request {
	return Request{Old: old, Proof: l.Prove(old, n), Checkpoint: l.At(n)}
}

// newWitness makes one with state in a folder of its own.
func newWitness(t *testing.T, logs ...string) *Witness {
	t.Helper()
	dir := t.TempDir()
	key, err := GenerateKey(filepath.Join(dir, "key"), "witness.example.com/w")
	require.NoError(t, err)
	require.NoError(t, Create(filepath.Join(dir, "state"), key))
	w, err := Open(filepath.Join(dir, "state"), key, logs)
	require.NoError(t, err)
	return w
}

// reopened returns the witness as its next start finds it.
func reopened(t *testing.T, w *Witness, logs ...string) *Witness {
	t.Helper()
	next, err := Open(w.file, w.key, logs)
	require.NoError(t, err)
	return next
}

// requireRefused wants a refusal of that kind and status.
func requireRefused(t *testing.T, w *Witness, r Request, kind string, status int) (text string) {
	t.Helper()
	line, err := w.Add(r)
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal)
	require.Nil(t, line)
	require.Equal(t, kind, refusal.Kind, refusal.Text)
	require.Equal(t, status, refusal.Status)
	return refusal.Text
}

func requireCosigned(t *testing.T, w *Witness, r Request) {
	t.Helper()
	line, err := w.Add(r)
	require.NoError(t, err)
	verifier, err := proof.NewCosignatureVerifier(w.key.Public())
	require.NoError(t, err)
	n, err := note.Open(append(r.Checkpoint, line...), note.VerifierList(verifier))
	require.NoError(t, err)
	require.Len(t, n.Sigs, 1)
}

func TestCosignsWhatContinues(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 300, "entry")
	w := newWitness(t, l.Public)
	for _, step := range [][2]int64{{0, 0}, {0, 1}, {1, 1}, {1, 7}, {7, 8}, {8, 256}, {256, 300}, {300, 300}} {
		requireCosigned(t, w, request(l, step[0], step[1]))
		assert.EqualValues(t, step[1], w.sizeOf("example.com/log"))
		w = reopened(t, w, l.Public)
		assert.EqualValues(t, step[1], w.sizeOf("example.com/log"), "after a restart")
	}
}

func TestRefusesAsSpecified(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 40, "entry")
	stranger := testlog.New(t, "example.com/stranger", 3, "entry")
	forger := testlog.New(t, "example.com/log", 40, "entry")
	w := newWitness(t, l.Public)
	requireCosigned(t, w, request(l, 0, 20))
	before := w.sizeOf("example.com/log")

	requireRefused(t, w, request(stranger, 0, 3), Unknown, http.StatusNotFound)
	requireRefused(t, w, request(forger, 20, 40), Untrusted, http.StatusForbidden)
	requireRefused(t, w, request(l, 30, 20), Malformed, http.StatusBadRequest)
	stale := requireRefused(t, w, request(l, 10, 40), Stale, http.StatusConflict)
	assert.Equal(t, "20", stale)
	requireRefused(t, w, request(l, 0, 10), Stale, http.StatusConflict) // set back

	without := request(l, 20, 40)
	without.Proof = nil
	requireRefused(t, w, without, Unproven, http.StatusUnprocessableEntity)
	wrong := request(l, 20, 40)
	wrong.Proof[0][5] ^= 1
	requireRefused(t, w, wrong, Unproven, http.StatusUnprocessableEntity)
	more := request(l, 20, 20)
	more.Proof = wrong.Proof
	requireRefused(t, w, more, Malformed, http.StatusUnprocessableEntity)
	garbled := request(l, 20, 40)
	garbled.Checkpoint = []byte("example.com/log\nno note")
	requireRefused(t, w, garbled, Malformed, http.StatusBadRequest)

	assert.Equal(t, before, w.sizeOf("example.com/log"), "no refusal changes the state")
	requireCosigned(t, w, request(l, 20, 40))
}

// One log shows two histories, each with a good signature. Whichever comes first is the only
// one that is accepted.
func TestRefusesASplitView(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 20, "entry")
	other := l.Fork(10).Grow(30, "another")
	l.Grow(20, "entry")
	w := newWitness(t, l.Public)
	requireCosigned(t, w, request(l, 0, 15))
	requireRefused(t, w, request(other, 15, 15), Inconsistent, http.StatusUnprocessableEntity)
	requireRefused(t, w, request(other, 15, 40), Unproven, http.StatusUnprocessableEntity)
	requireCosigned(t, w, request(l, 15, 40))
}

// A later generation is a person's decision, and closes the earlier one.
func TestTakesNoGenerationByItself(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 20, "entry")
	later := l.Generation("example.com/log/from-15").Grow(10, "later")
	w := newWitness(t, l.Public)
	requireCosigned(t, w, request(l, 0, 15))
	offered := requireRefused(t, w, request(later, 0, 3), Offered, http.StatusNotFound)
	assert.Contains(t, offered, later.Public, "the key to accept is in the answer")
	forged := testlog.New(t, "example.com/log/from-15", 3, "entry")
	requireRefused(t, w, request(forged, 0, 3), Unknown, http.StatusNotFound)

	w = reopened(t, w, l.Public, later.Public)
	requireCosigned(t, w, request(l, 15, 16)) // both in trust: the earlier one is still open
	requireCosigned(t, w, request(later, 0, 3))
	requireRefused(t, w, request(l, 16, 20), Superseded, http.StatusForbidden)
	w = reopened(t, w, l.Public, later.Public)
	requireRefused(t, w, request(l, 16, 16), Superseded, http.StatusForbidden)
	requireCosigned(t, w, request(later, 3, 4))

	fresh := newWitness(t, l.Public, later.Public) // has never seen the earlier one
	requireCosigned(t, fresh, request(later, 0, 3))
	requireRefused(t, fresh, request(l, 0, 15), Superseded, http.StatusForbidden)
}

// Of two requests at once, the later one must see the state of the earlier, or a tree could be
// rolled back.
func TestRequestsAtOnceDoNotRollBack(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 60, "entry")
	w := newWitness(t, l.Public)
	requireCosigned(t, w, request(l, 0, 10))
	var all sync.WaitGroup
	var mu sync.Mutex
	cosigned := 0
	for n := int64(11); n < 60; n++ {
		r := request(l, 10, n)
		all.Go(func() {
			if _, err := w.Add(r); err == nil {
				mu.Lock()
				cosigned++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	assert.Equal(t, 1, cosigned, "of all requests from the size 10 one is right")
	assert.Equal(t, w.sizeOf("example.com/log"), reopened(t, w, l.Public).sizeOf("example.com/log"))
}

// The witness dies once the state is on the disk, and before the signature has left.
func TestDiesBetweenStateAndSignature(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 20, "entry")
	w := newWitness(t, l.Public)
	requireCosigned(t, w, request(l, 0, 10))
	died := errors.New("died")
	onDisk := w.write
	w.write = func(s states) error { return errors.Join(onDisk(s), died) }
	_, err := w.Add(request(l, 10, 15))
	require.ErrorIs(t, err, died)

	w = reopened(t, w, l.Public)
	stale := requireRefused(t, w, request(l, 10, 20), Stale, http.StatusConflict)
	assert.Equal(t, "15", stale)
	requireCosigned(t, w, request(l, 15, 20))
}

// No signature leaves for a state that the disk refuses.
func TestSignsNothingThatItCannotRemember(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 20, "entry")
	w := newWitness(t, l.Public)
	full := errors.New("no space left on device")
	onDisk := w.write
	w.write = func(states) error { return full }
	line, err := w.Add(request(l, 0, 10))
	require.ErrorIs(t, err, full)
	require.Nil(t, line)
	assert.EqualValues(t, 0, reopened(t, w, l.Public).sizeOf("example.com/log"))
	w.write = onDisk
	requireCosigned(t, w, request(l, 0, 10))
}

// A witness without its memory does not start as if it had seen nothing.
func TestLostStateIsAnError(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 20, "entry")
	w := newWitness(t, l.Public)
	line, err := w.Add(request(l, 0, 10))
	require.NoError(t, err)
	older := append(l.At(10), line...)
	line, err = w.Add(request(l, 10, 15))
	require.NoError(t, err)
	newer := append(l.At(15), line...)

	require.ErrorContains(t, Create(w.file, w.key), "exists")
	data, err := os.ReadFile(w.file)
	require.NoError(t, err)
	for i := range data { // no flipped bit makes another size
		flipped := append([]byte(nil), data...)
		flipped[i] ^= 4
		require.NoError(t, os.WriteFile(w.file, flipped, 0o600))
		if again, err := Open(w.file, w.key, []string{l.Public}); err == nil {
			require.EqualValues(t, 15, again.sizeOf("example.com/log"), "byte %d of %s", i, data)
		}
	}
	require.NoError(t, os.Remove(w.file))
	_, err = Open(w.file, w.key, []string{l.Public})
	require.ErrorIs(t, err, ErrNoState)

	require.ErrorContains(t, Recover(w.file, w.key, []string{string(l.At(20))}), "this witness's signature")
	require.NoError(t, Recover(w.file, w.key, []string{string(newer), string(older)}))
	w = reopened(t, w, l.Public)
	assert.EqualValues(t, 15, w.sizeOf("example.com/log"))
	require.NoError(t, Recover(w.file, w.key, []string{string(older)}))
	assert.EqualValues(t, 15, reopened(t, w, l.Public).sizeOf("example.com/log"), "state goes forward only")
}

// A damaged name of a field opens no closed generation.
func TestADamagedStateOpensNothing(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 20, "entry")
	later := l.Generation("example.com/log/from-15").Grow(3, "later")
	w := newWitness(t, l.Public, later.Public)
	requireCosigned(t, w, request(l, 0, 15))
	requireCosigned(t, w, request(later, 0, 3))
	data, err := os.ReadFile(w.file)
	require.NoError(t, err)
	require.Contains(t, string(data), `"closed_by"`)
	require.NoError(t, os.WriteFile(w.file, bytes.Replace(data, []byte(`"closed_by"`), []byte(`"closed_bz"`), 1), 0o600))
	_, err = Open(w.file, w.key, []string{l.Public, later.Public})
	require.ErrorContains(t, err, "closed_bz")
}

func TestTheKeyIsNotTheLogs(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(w.file), "key"))
	require.NoError(t, err)
	own, err := note.NewEd25519VerifierKey("example.com/log", publicBytes(t, w.key.Public()))
	require.NoError(t, err)
	_, err = Open(w.file, w.key, []string{own})
	require.ErrorContains(t, err, "own key")
	_, err = Open(w.file, w.key, []string{"no key"})
	require.ErrorContains(t, err, "not a verifier key")
	_, err = Open(w.file, w.key, []string{strings.TrimSpace(string(text))})
	require.ErrorContains(t, err, "it is a signing key")
	assert.NotContains(t, err.Error(), string(text[len(text)-20:len(text)-10]))
	require.NoError(t, os.WriteFile(w.file+".bad", text[:len(text)/2], 0o600))
	_, err = LoadKey(w.file + ".bad")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), string(text[len(text)/2-10:len(text)/2]), "the key is in the error")
}

// publicBytes are the 32 bytes of a verifier key.
func publicBytes(t *testing.T, verifier string) ed25519.PublicKey {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(strings.SplitN(verifier, "+", 3)[2])
	require.NoError(t, err)
	return raw[1:]
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte("old 0\n\nexample.com/log\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n— a b\n"))
	f.Add([]byte("old 20852014\nPlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=\n\nx"))
	f.Add([]byte("old 01\n\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseRequest(body)
		if err != nil {
			return
		}
		assert.Equal(t, body, r.Marshal(), "a request has one spelling")
		assert.LessOrEqual(t, len(r.Proof), maxProof)
		c := proof.Checkpoint{Origin: "o", Size: r.Old/2 + 1}
		_ = tlog.CheckTree(r.Proof, max(r.Old, 1), c.Root, c.Size, c.Root) // must not panic
	})
}

// The holder of one log's key cannot stop the witness for the others.
func TestAHugeCheckpointStopsNobody(t *testing.T) {
	t.Parallel()
	l, huge := testlog.New(t, "example.com/log", 20, "entry"), testlog.New(t, "example.com/huge", 20, "entry")
	w := newWitness(t, l.Public, huge.Public)
	requireCosigned(t, w, request(huge, 0, 7))
	for _, size := range []int64{1<<62 + 1, 1<<63 - 1} {
		signed := huge.Sign(proof.Checkpoint{Origin: "example.com/huge", Size: size})
		requireRefused(t, w, Request{Old: 7, Proof: huge.Prove(7, 20), Checkpoint: signed}, Malformed, http.StatusBadRequest)
	}
	requireCosigned(t, w, request(l, 0, 20))
	requireCosigned(t, w, request(huge, 7, 20))
}
