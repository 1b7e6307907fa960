package file

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// checked returns the findings, one per line.
func checked(t *testing.T, s relay.Checker) (string, error) {
	t.Helper()
	text := ""
	err := s.Check(t.Context(), func(what, found string) { text += what + ": " + found + "\n" })
	return text, err
}

// Check looks at a file that a sink is writing to, and at a directory that does not exist.
func TestCheckOnlyLooks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "events.jsonl")
	writer := newSink(t, config.File{Path: path})
	events := relaytest.Events(4)
	require.NoError(t, writer.Deliver(t.Context(), events[:2]))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(lineStart) // a half-written line
	require.NoError(t, err)
	require.NoError(t, f.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)

	found, err := checked(t, newSink(t, config.File{Path: path}))
	require.NoError(t, err)
	assert.Contains(t, found, fmt.Sprintf("file %s: has %d bytes, and can be appended to\n", path, len(before)))
	assert.Contains(t, found, "directory "+dir+": files can be made in it\n")
	assert.Regexp(t, `free space: [0-9]+ MiB`, found)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, before, after)

	below := filepath.Join(dir, "a", "b", "events.jsonl")
	found, err = checked(t, newSink(t, config.File{Path: below}))
	require.NoError(t, err)
	assert.Contains(t, found, "directory "+dir+": "+filepath.Dir(below)+" can be made below it\n")
	assert.Contains(t, found, "does not exist yet, and will be made")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing is left behind")
}

func TestCheckNamesWhatFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	foreign := filepath.Join(dir, "notes.txt")
	require.NoError(t, os.WriteFile(foreign, []byte("dear diary"), 0o600))
	for path, want := range map[string]string{
		foreign:                           "and this sink did not write it: move the file away",
		filepath.Join(foreign, "x.jsonl"): "not a directory",
		dir:                               "it is not a regular file",
	} {
		found, err := checked(t, newSink(t, config.File{Path: path}))
		require.ErrorContains(t, err, want)
		assert.Contains(t, found, want)
	}
	s := newSink(t, config.File{Path: filepath.Join(dir, "x.jsonl")})
	s.disk.free = func(string) (uint64, error) { return 4096, nil }
	_, err := checked(t, s)
	require.ErrorContains(t, err, "free space: 4096 bytes are left")
}

const checkPath = "AUDITRELAY_FILE_TEST_CHECK"

// check prints the outcome of a Check, for a test in another process.
func check(path string) {
	s := New(config.File{Path: path}, Options{})
	fmt.Println(s.Check(context.Background(), func(string, string) {}))
	os.Exit(0)
}

// A user who may not write there is told so. The superuser may write anywhere, so the check
// runs as another user.
func TestCheckWithoutPermission(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "check") //nolint:usetesting // the other user must get in
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	binary := filepath.Join(dir, "test")
	program, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(binary, program, 0o755))
	closed := filepath.Join(dir, "closed")
	require.NoError(t, os.Mkdir(closed, 0o555))

	child := exec.CommandContext(t.Context(), binary)
	child.Dir = dir
	child.Env = append(os.Environ(), checkPath+"="+filepath.Join(closed, "events.jsonl"))
	if os.Geteuid() == 0 {
		child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "directory "+closed+": it cannot be read and written by this user")
}
