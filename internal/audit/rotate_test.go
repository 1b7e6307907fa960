package audit

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// rotate does a rotation's steps up to one of them; afterwards the process is killed.
func rotate(t *testing.T, js jetstream.JetStream, o Options, steps int) {
	t.Helper()
	public, err := NextKey(o.KeyFile)
	require.NoError(t, err)
	if steps == 1 {
		return
	}
	trail, err := Open(t.Context(), js, o)
	require.NoError(t, err)
	if steps == 2 { // the entry is there, and not signed
		trail.stop()
		<-trail.done
		e, err := ownEntry(TypeRotated, rotation{Key: public, Previous: trail.PublicKey()})
		require.NoError(t, err)
		_, err = trail.Append(t.Context(), e)
		require.NoError(t, err)
		return
	}
	require.NoError(t, trail.NameNextKey(t.Context(), public))
	trail.stop()
	<-trail.done
	if steps == 3 {
		return
	}
	require.NoError(t, UseNextKey(o.KeyFile))
}

// A rotation is killed behind each of its steps; a relay goes on with the key that is
// there; the rotation is done again. Nothing is damaged, and the chain of keys holds.
func TestARotationKilledAtEachStep(t *testing.T) {
	t.Parallel()
	for steps := 1; steps <= 4; steps++ {
		js, _ := startServer(t, t.TempDir())
		o := testOptions(t)
		trail := openTrail(t, js, o)
		appendEntries(t, trail, 0, 3)
		require.NoError(t, trail.Close(t.Context()))
		first := trail.PublicKey()

		rotate(t, js, o, steps)
		relay := openTrail(t, js, o) // it knows nothing of the rotation
		_, err := relay.Append(t.Context(), testEntry(3))
		require.NoError(t, err)
		require.NoError(t, relay.Close(t.Context()))
		if steps < 4 {
			require.Equal(t, first, relay.PublicKey(), "step %d", steps)
			rotate(t, js, o, 4)
		}
		relay = openTrail(t, js, o)
		_, err = relay.Append(t.Context(), testEntry(4))
		require.NoError(t, err)
		require.NoError(t, relay.Close(t.Context()))
		again := openTrail(t, js, o)
		report, err := again.Verify(t.Context())
		require.NoError(t, err)
		require.NoError(t, report.Err())
		require.Len(t, report.Generations, 2, "step %d", steps)
		require.Equal(t, first, report.Generations[0].PublicKey)
		require.True(t, report.Generations[1].Endorsed)
		require.NotEqual(t, publicBytes(first), publicBytes(report.Generations[1].PublicKey))
		require.NoFileExists(t, nextFile(o.KeyFile))
		require.Contains(t, firstOpening(t, again).Reason, "the signing key was rotated")
	}
}

func firstOpening(t *testing.T, trail *Trail) opening {
	t.Helper()
	x, err := trail.examine(t.Context())
	require.NoError(t, err)
	require.Len(t, x.openings, 1)
	for _, o := range x.openings {
		return o
	}
	return opening{}
}

// A key that nobody has named is not endorsed; neither is one named by an altered entry.
func TestAKeyThatWasNotNamedIsNotEndorsed(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	require.NoError(t, os.Remove(d.o.KeyFile))
	trail, _ := d.reopen(t, d.entries, d.checkpoints, 0)
	report, err := trail.Verify(t.Context())
	require.NoError(t, err)
	require.Len(t, report.Generations, 2)
	require.False(t, report.Generations[1].Endorsed)

	r := rotations{7: trail.PublicKey()}
	require.True(t, r.to(trail.PublicKey(), report.Generations[0], nil))
	require.False(t, r.to(trail.PublicKey(), report.Generations[0], []span{{From: 6, To: 8}}))
	require.False(t, r.to(trail.PublicKey(), Generation{Size: 7}, nil), "it is not signed")
	require.False(t, r.to(report.Generations[0].PublicKey, report.Generations[0], nil))
}

// A successor elsewhere is named, too; nonsense and the key itself are refused.
func TestANextKeyElsewhere(t *testing.T) {
	t.Parallel()
	js, _ := startServer(t, t.TempDir())
	o := testOptions(t)
	trail := openTrail(t, js, o)
	require.Error(t, trail.NameNextKey(t.Context(), "nonsense"))
	require.Error(t, trail.NameNextKey(t.Context(), trail.PublicKey()))
	elsewhere, _ := signerOptions(t)
	require.NoError(t, trail.NameNextKey(t.Context(), elsewhere.PublicKey))
	require.NoError(t, trail.Close(t.Context()))
	elsewhere.PinFile = o.KeyFile + ".checkpoint"
	next := openTrail(t, js, elsewhere)
	require.True(t, next.Generations()[1].Endorsed)
	require.Equal(t, publicBytes(elsewhere.PublicKey), publicBytes(next.PublicKey()))
}

func TestPublicKeyOfAPEMFile(t *testing.T) {
	t.Parallel()
	public, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	text, err := PublicKey("example.com/trail", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	require.NoError(t, err)
	require.Equal(t, []byte(public), publicBytes(text)[1:])
	_, err = PublicKey("a name", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	require.Error(t, err)
	_, err = PublicKey("example.com/trail", []byte("nonsense"))
	require.Error(t, err)
	file := filepath.Join(t.TempDir(), "key")
	_, err = GenerateKey(file, "a+b")
	require.Error(t, err)
	require.NoFileExists(t, file)
	_, err = GenerateKey(file, "example.com/a")
	require.NoError(t, err)
	_, err = GenerateKey(file, "example.com/a")
	require.ErrorContains(t, err, "exists")
}
