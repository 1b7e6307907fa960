package witness

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/testlog"
)

// foreignVersion is of github.com/transparency-dev/witness, the other implementation.
const foreignVersion = "v0.0.0-20260720115447-2e1c6971d19e"

// foreign builds the other implementation, in a module of its own: its dependencies are no
// part of this one. It wants an unreleased version of a library; a released one serves, as
// the only call into the newer part is taken out: it is of a request that no test makes.
func foreign(t *testing.T) string {
	t.Helper()
	if os.Getenv("AUDITRELAY_FOREIGN") == "" {
		t.Skip("the other implementation takes a minute to build: set AUDITRELAY_FOREIGN=1")
	}
	const module, merkle = "github.com/transparency-dev/witness", "github.com/transparency-dev/merkle"
	dir := t.TempDir()
	source, err := os.ReadFile("testdata/foreign.go.txt")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), source, 0o600))
	run := func(args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod")
		out, err := cmd.Output()
		if err != nil {
			t.Skipf("the other implementation cannot be had here: go %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	run("mod", "init", "foreign")
	var got struct{ Dir string }
	require.NoError(t, json.Unmarshal(run("mod", "download", "-json", module+"@"+foreignVersion), &got))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "copy"), os.DirFS(got.Dir)))
	file := filepath.Join(dir, "copy/witness/witness.go")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	const call = "proof.VerifySubtreeConsistency(rfc6962.DefaultHasher, start, end, cp.Size, cProof, subRoot, cp.Hash)"
	require.NoError(t, os.Chmod(file, 0o600))
	require.NoError(t, os.WriteFile(file, bytes.Replace(text, []byte(call), []byte("errors.ErrUnsupported"), 1), 0o600))
	run("mod", "edit", "-require", module+"@"+foreignVersion, "-replace", module+"=./copy", "-replace", merkle+"="+merkle+"@v0.0.2")
	run("build", "-o", "foreign", ".")
	return filepath.Join(dir, "foreign")
}

func TestInteroperatesWithAnotherImplementation(t *testing.T) {
	t.Parallel()
	program := foreign(t)
	t.Run("its witness, our client", func(t *testing.T) {
		t.Parallel()
		ourClientAsks(t, program)
	})
	t.Run("our witness, its client", func(t *testing.T) {
		t.Parallel()
		itsClientAsks(t, program)
	})
}

func ourClientAsks(t *testing.T, program string) {
	t.Helper()
	l := testlog.New(t, "example.com/log", 300, "entry")
	file := filepath.Join(t.TempDir(), "key")
	key, err := GenerateKey(file, "foreign.example.com/w")
	require.NoError(t, err)
	secret, err := os.ReadFile(file)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "serve", strings.TrimSpace(string(secret)), l.Public)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)

	known := &theWitness{key: key}
	s := newScene(t, 1, known)
	s.peers[0], err = newPeer(config.Witness{URL: strings.TrimSpace(address), Key: key.Public()})
	require.NoError(t, err)
	for _, n := range []int64{1, 2, 17, 17, 255, 256, 300} {
		text, err := s.cosign(t.Context(), offer(l, n))
		require.NoError(t, err)
		requireSigned(t, l, text, known)
	}
	for reason, c := range map[string]struct {
		log  *testlog.Log
		size int64
	}{
		"this trail has 100":           {l, 100},
		"no part of this one":          {l.Fork(200).Grow(200, "another"), 400},
		"another tree of the size 300": {l.Fork(200).Grow(100, "another"), 300},
	} {
		next := newScene(t, 1, known)
		next.peers[0], err = newPeer(config.Witness{URL: strings.TrimSpace(address), Key: key.Public()})
		require.NoError(t, err)
		_, err = next.cosign(t.Context(), offer(c.log, c.size))
		require.ErrorContains(t, err, reason)
		assert.Contains(t, next.Remark(), "another history")
	}
}

func itsClientAsks(t *testing.T, program string) {
	t.Helper()
	l := testlog.New(t, "example.com/log", 300, "entry")
	ours := newPeerWitness(t, "ours.example.com/w", l.Public)
	server := httptest.NewServer(ours)
	defer server.Close()
	type request struct {
		Old        int64
		Proof      [][]byte
		Checkpoint []byte
	}
	type answer struct {
		Lines string
		Size  int64
		Error string
	}
	ask := func(l *testlog.Log, old, n int64) (a answer) {
		r := request{Old: old, Checkpoint: l.At(n)}
		for _, h := range l.Prove(old, n) {
			r.Proof = append(r.Proof, h[:])
		}
		body, err := json.Marshal(r)
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), program, "ask", server.URL)
		cmd.Stdin = bytes.NewReader(body)
		out, err := cmd.Output()
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(out, &a))
		return a
	}
	for _, step := range [][2]int64{{0, 1}, {1, 17}, {17, 17}, {17, 300}} {
		a := ask(l, step[0], step[1])
		require.Empty(t, a.Error)
		requireSigned(t, l, append(l.At(step[1]), a.Lines...), ours)
	}
	assert.Equal(t, answer{Size: 300, Error: "old size != current"}, ask(l, 17, 300))
	// c2sp.org/tlog-witness asks for the status of a failed proof here too, although this client
	// has an error of its own for it.
	assert.Equal(t, "consistency proof invalid", ask(l.Fork(200).Grow(100, "another"), 300, 300).Error)
	assert.Equal(t, "consistency proof invalid", ask(l.Fork(200).Grow(200, "another"), 300, 400).Error)
	assert.Equal(t, "no valid signatures", ask(testlog.New(t, "example.com/log", 400, "entry"), 300, 400).Error)
	assert.Equal(t, "unknown log", ask(testlog.New(t, "example.com/other", 4, "entry"), 0, 4).Error)
}
