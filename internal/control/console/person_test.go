package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/workspace"
)

// servePersons answers each request at a socket with its person.
func servePersons(t *testing.T) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "persons") //nolint:usetesting // t.TempDir is closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
	require.NoError(t, err)
	server := &http.Server{ConnContext: withPeer, Handler: withPerson(answers(func(ctx context.Context, _ none) (workspace.Person, error) {
		return personOf(ctx), nil
	}))}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return dir
}

func whoAmI(t *testing.T, dir string, p workspace.Person) (told workspace.Person) {
	t.Helper()
	c := NewClient(dir)
	c.Person = p
	require.NoError(t, c.call(t.Context(), "/", none{}, &told))
	return told
}

// The person in the trail is the one that the kernel names. What a request says is marked.
func TestThePersonIsTheKernels(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the kernel says who it is on Linux only")
	}
	me, err := user.Current()
	require.NoError(t, err)
	host, err := os.Hostname()
	require.NoError(t, err)
	uid := uint32(os.Geteuid())
	dir := servePersons(t)
	known := workspace.Person{User: me.Username, Host: host, UID: &uid}
	for claim, want := range map[workspace.Person]string{
		{}:                                "",
		{User: me.Username, Host: host}:   "",
		{User: "ceo", Host: host}:         "ceo@" + host,
		{User: me.Username, Host: "desk"}: me.Username + "@desk",
		{User: "alice.admin"}:             "alice.admin@",
		{User: strings.Repeat("ä", 200), Host: "h\x1b\n"}: strings.Repeat("ä", 64) + "@h\x1b\n",
	} {
		got := whoAmI(t, dir, claim)
		known.Claimed = want
		assert.Equal(t, known, got)
		assert.True(t, strings.HasPrefix(got.String(), me.Username+"@"+host), got.String())
		assert.NotContains(t, got.String(), "\n")
	}
}

// Another user at the same socket is another person, whatever it says.
func TestAnotherUserAtTheSocket(t *testing.T) {
	t.Parallel()
	const nobody = 65534
	if dir := os.Getenv("PERSON_OF_SOCKET"); dir != "" { // the other user's process
		told, err := json.Marshal(whoAmI(t, dir, workspace.Person{User: "root", Host: "laptop"}))
		require.NoError(t, err)
		fmt.Printf("PERSON %s", told)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	dir := servePersons(t)
	require.NoError(t, os.Chmod(dir, 0o755))                            //nolint:gosec // the test of another user
	require.NoError(t, os.Chmod(filepath.Join(dir, socketName), 0o777)) //nolint:gosec // likewise
	binary := filepath.Join(dir, "test")
	self, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(binary, self, 0o755)) //nolint:gosec // likewise
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestAnotherUserAtTheSocket$")
	cmd.Env, cmd.Dir = []string{"PERSON_OF_SOCKET=" + dir}, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, text, _ := strings.Cut(string(out), "PERSON ")
	var got workspace.Person
	require.NoError(t, json.NewDecoder(strings.NewReader(text)).Decode(&got))
	require.NotNil(t, got.UID)
	assert.EqualValues(t, nobody, *got.UID)
	assert.NotContains(t, got.User, "root")
	assert.Equal(t, "root@laptop", got.Claimed)
}
