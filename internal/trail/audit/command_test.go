package audit

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"

	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// signerMode is the environment variable that makes this test binary a signing command: it
// names a folder with a PEM key of Ed25519 and, where it fails, a file "mode".
const signerMode = "AUDITRELAY_TEST_SIGNER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(signerMode); dir != "" && len(os.Args) == 2 && os.Args[1] == "sign" {
		os.Exit(beSigner(dir))
	}
	os.Exit(m.Run())
}

// beSigner signs as the mode says.
func beSigner(dir string) int {
	mode, _ := os.ReadFile(filepath.Join(dir, "mode"))
	msg, _ := io.ReadAll(bufio.NewReader(os.Stdin))
	seed, err := os.ReadFile(filepath.Join(dir, "seed"))
	if err != nil {
		return 1
	}
	sig := ed25519.Sign(ed25519.NewKeyFromSeed(seed), msg)
	switch string(mode) {
	case "fails":
		fmt.Fprintln(os.Stderr, "no token in slot 1\nsecond line")
		return 1
	case "wrong":
		sig[7] ^= 1
	case "short":
		sig = sig[:63]
	case "chatty":
		fmt.Println(strings.Repeat("x", maxAnswer))
	case "no base64":
		fmt.Println("Using slot 0")
	case "curious":
		for _, name := range []string{"AUDITRELAY_TEST_SECRET", "AUDITRELAY_TEST_OTHER"} {
			if os.Getenv(name) != "" {
				fmt.Fprintln(os.Stderr, "I was given", name)
				return 1
			}
		}
		if os.Getenv("AUDITRELAY_TEST_NAMED") != "for the signer" || os.Getenv("PATH") == "" {
			fmt.Fprintln(os.Stderr, "I was not given what I need")
			return 1
		}
	case "hangs":
		time.Sleep(time.Hour)
	}
	fmt.Println(base64.StdEncoding.EncodeToString(sig))
	return 0
}

// signerOptions have a trail signed by a command; set changes how it behaves.
func signerOptions(t *testing.T) (o Options, set func(mode string)) {
	t.Helper()
	dir := t.TempDir()
	public, secret, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "seed"), secret.Seed(), 0o600))
	o = testOptions(t)
	o.KeyFile, o.PinFile, o.SignEvery = "", filepath.Join(dir, "audit.checkpoint"), time.Hour
	o.PublicKey, err = note.NewEd25519VerifierKey("example.com/trail", public)
	require.NoError(t, err)
	env, err := exec.LookPath("env")
	require.NoError(t, err)
	o.SignCommand = []string{env, signerMode + "=" + dir, os.Args[0], "sign"}
	return o, func(mode string) { require.NoError(t, os.WriteFile(filepath.Join(dir, "mode"), []byte(mode), 0o600)) }
}

// A trail signed by a command is whole; whatever the command does wrong, entries are
// taken, nothing wrong is kept, and the next try signs all.
func TestASigningCommand(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o, set := signerOptions(t)
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 1)
	require.NoError(t, trail.Sign(t.Context()))
	kept := len(records(t, st, CheckpointsLog))
	for i, tc := range [][2]string{
		{"fails", `exit status 1: "no token in slot 1"`},
		{"wrong", "does not fit the public key"},
		{"short", "does not fit the public key"},
		{"chatty", "and nothing else"},
		{"no base64", "and nothing else"},
	} {
		set(tc[0])
		appendEntries(t, trail, 1+i, 2+i)
		require.ErrorContains(t, trail.Sign(t.Context()), tc[1], tc[0])
		require.Len(t, records(t, st, CheckpointsLog), kept, tc[0])
	}
	set("")
	require.NoError(t, trail.Sign(t.Context()))
	require.NoError(t, trail.Close(t.Context()))
	again := openTrail(t, st, o)
	requireWhole(t, again, 6)
	require.Equal(t, o.PublicKey, again.PublicKey())
	require.NoError(t, again.Close(t.Context()))
	require.NoError(t, os.Remove(o.PinFile))
	require.Contains(t, openingOf(t, openTrail(t, st, o)).Problems[0].Detail, "is missing, though the key has signed")
}

// The command gets the variables that it needs, and none of the relay's secrets.
func TestASigningCommandGetsNoSecrets(t *testing.T) {
	t.Setenv("AUDITRELAY_TEST_SECRET", "the sinks' password")
	t.Setenv("AUDITRELAY_TEST_NAMED", "for the signer")
	st, _ := startStore(t, t.TempDir())
	o, set := signerOptions(t)
	o.SignEnv = []string{"AUDITRELAY_TEST_NAMED", "AUDITRELAY_TEST_MISSING"}
	set("curious")
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 1)
	require.NoError(t, trail.Sign(t.Context()))
}

// A command that hangs holds up no append, and ends with the trail's own end.
func TestASigningCommandThatHangs(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o, set := signerOptions(t)
	set("hangs")
	trail := openTrail(t, st, o)
	ctx, cancel := context.WithCancel(t.Context())
	appendEntries(t, trail, 0, 1)
	signing := make(chan error)
	go func() { signing <- trail.Sign(ctx) }()
	appendEntries(t, trail, 1, 5)
	cancel()
	require.Error(t, <-signing)
	set("")
	require.NoError(t, trail.Sign(t.Context()))
	requireWhole(t, trail, 5)
}

// A generation has a name of its own, and so another public key of the same secret.
func TestASigningCommandBeginsAGeneration(t *testing.T) {
	t.Parallel()
	d := newDamageable(t)
	o, _ := signerOptions(t)
	d.o = o
	trail, st := d.reopen(t, d.entries, d.checkpoints, 0)
	require.NoError(t, trail.Close(t.Context()))
	require.True(t, strings.HasPrefix(trail.PublicKey(), "example.com/trail/from-20+"))
	require.True(t, tlogproof.SamePublicKey(o.PublicKey, trail.PublicKey()))
	requireWhole(t, openTrail(t, st, d.o), 21)
}

// The key is in the environment; without it the trail waits, and no key is made.
func TestAKeyInTheEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	key, err := generateKey(file, "example.com/env")
	require.NoError(t, err)
	o := testOptions(t)
	o.PinFile, o.KeyFile, o.KeyEnv = o.KeyFile+".checkpoint", "", "AUDITRELAY_TEST_KEY"
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	_, err = trail.Append(t.Context(), testEntry(0))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "the environment variable AUDITRELAY_TEST_KEY is not set")
	require.NoError(t, trail.Close(t.Context()))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	t.Setenv(o.KeyEnv, string(text))
	trail = openTrail(t, st, o)
	appendEntries(t, trail, 0, 1)
	require.NoError(t, trail.Close(t.Context()))
	require.Equal(t, key.public, trail.PublicKey())
	require.FileExists(t, filepath.Join(filepath.Dir(o.PinFile), "audit.key.signed"))
}

// The program in deploy/backup.md signs a trail.
func TestTheDocumentedSigningCommand(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed: the program in deploy/backup.md is not tried")
	}
	text, err := os.ReadFile("../../../deploy/backup.md")
	require.NoError(t, err)
	_, program, found := strings.Cut(string(text), "```sh\n")
	require.True(t, found)
	program, _, _ = strings.Cut(program, "```")
	dir := t.TempDir()
	script, key, public := filepath.Join(dir, "sign"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "public.pem")
	require.NoError(t, os.WriteFile(script, []byte(program), 0o700))
	for _, args := range [][]string{{"genpkey", "-algorithm", "ed25519", "-out", key}, {"pkey", "-in", key, "-pubout", "-out", public}} {
		out, err := exec.Command("openssl", args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	pem, err := os.ReadFile(public)
	require.NoError(t, err)
	o := testOptions(t)
	o.PinFile, o.KeyFile = filepath.Join(dir, "audit.checkpoint"), ""
	o.PublicKey, err = PublicKey("example.com/trail", pem)
	require.NoError(t, err)
	o.SignCommand = []string{"/bin/sh", script, key}
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 3)
	require.NoError(t, trail.Close(t.Context()))
	requireWhole(t, openTrail(t, st, o), 3)
}

// A program has answered once it has ended, though a child of it holds its output open.
func TestAChildOfASigningCommandHoldsNothingUp(t *testing.T) {
	t.Parallel()
	sign := signByCommand([]string{"/bin/sh", "-c", "cat >/dev/null; sleep 5 & echo AAAA"}, nil)
	_, err := sign(t.Context(), []byte("message"))
	require.NoError(t, err)
}

// The program may use a token that bears one process at a time.
func TestASigningCommandIsCalledOnceAtATime(t *testing.T) {
	t.Parallel()
	const script = `mkdir "$0" || exit 1; cat >/dev/null; rmdir "$0"; echo AAAA`
	sign := signByCommand([]string{"/bin/sh", "-c", script, filepath.Join(t.TempDir(), "in-use")}, nil)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			_, err := sign(t.Context(), []byte("message"))
			assert.NoError(t, err)
		})
	}
	all.Wait()
}
