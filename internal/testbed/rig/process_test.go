package rig

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// parentMode has this program start a child and wait to be killed.
const parentMode = "RIG_TEST_PARENT"

func TestMain(m *testing.M) {
	if file := os.Getenv(parentMode); file != "" {
		p, err := Command{Name: "child", Args: []string{"sleep", "600"}, Log: file + ".log"}.Start()
		if err == nil {
			err = os.WriteFile(file, []byte(strconv.Itoa(p.PID())), 0o600)
		}
		if err != nil {
			os.Exit(3)
		}
		<-p.Exited()
	}
	os.Exit(m.Run())
}

func shell(t *testing.T, script string) Command {
	t.Helper()
	return Command{Name: "the script", Args: []string{"sh", "-c", script}, Log: filepath.Join(t.TempDir(), "log")}
}

// running tells a running process from a gone or unreaped one.
func running(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func TestAProcessEndsAsItIsTold(t *testing.T) {
	t.Parallel()
	c := shell(t, "trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.01; done")
	p, err := c.Start()
	require.NoError(t, err)
	require.NoError(t, Until(t.Context(), waiting.Stall, "it says hello", func() bool { return strings.Contains(p.Tail(), "hello") }, p))
	require.NoError(t, p.Stop(waiting.Stall))
	assert.Contains(t, p.Tail(), "bye")
	require.ErrorContains(t, p.Stop(time.Second), "has ended by itself")

	p, err = c.Start() // again, with the same log
	require.NoError(t, err)
	p.Kill()
	assert.True(t, p.Ended())
	p.Kill() // twice does no harm
}

func TestAProcessThatDoesNotStop(t *testing.T) {
	t.Parallel()
	p, err := shell(t, "trap '' TERM; echo deaf; while :; do sleep 0.01; done").Start()
	require.NoError(t, err)
	require.NoError(t, Until(t.Context(), waiting.Stall, "it runs", func() bool { return strings.Contains(p.Tail(), "deaf") }, p))
	require.ErrorContains(t, p.Stop(100*time.Millisecond), "took more than 100ms")
	assert.True(t, p.Ended())

	p, err = shell(t, "trap 'exit 7' TERM; echo on; while :; do sleep 0.01; done").Start()
	require.NoError(t, err)
	require.NoError(t, Until(t.Context(), waiting.Stall, "it runs", func() bool { return strings.Contains(p.Tail(), "on") }, p))
	require.ErrorContains(t, p.Stop(waiting.Stall), "exit status 7")
}

func TestUntilEndsWithAProcess(t *testing.T) {
	t.Parallel()
	p, err := shell(t, "echo no disk; exit 4").Start()
	require.NoError(t, err)
	err = Until(t.Context(), time.Minute, "it is ready", func() bool { return false }, p)
	require.ErrorContains(t, err, "wait until it is ready: the script has ended by itself (exit status 4)")
	require.ErrorContains(t, err, "no disk")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Until(ended, time.Minute, "never", func() bool { return false }), context.Canceled)
	require.ErrorContains(t, Until(t.Context(), time.Millisecond, "never", func() bool { return false }), "not within 1ms")
}

func TestRunStopsWithItsContext(t *testing.T) {
	t.Parallel()
	require.NoError(t, shell(t, "true").Run(t.Context(), nil))
	require.ErrorContains(t, shell(t, "echo why; exit 5").Run(t.Context(), nil), "why")

	// A script's own children end with it.
	c := shell(t, "sleep 600 & echo $! ; wait")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, nil) }()
	child := 0
	require.NoError(t, Until(t.Context(), waiting.Stall, "the child is there", func() bool {
		text, _ := os.ReadFile(c.Log)
		child, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return child > 0
	}))
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, Until(t.Context(), waiting.Stall, "the child is gone", func() bool { return !running(child) }))
}

func TestAChildEndsWithItsParent(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("only Linux ends children with their parent")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "pid")
	parent, err := Command{Name: "parent", Args: []string{self}, Env: []string{parentMode + "=" + file}, Log: file + ".parent"}.Start()
	require.NoError(t, err)
	defer parent.Kill()
	child := 0
	require.NoError(t, Until(t.Context(), waiting.Stall, "the child is there", func() bool {
		text, _ := os.ReadFile(file)
		child, _ = strconv.Atoi(string(text))
		return child > 0
	}, parent))
	assert.True(t, running(child))
	require.NoError(t, syscall.Kill(parent.PID(), syscall.SIGKILL)) // of the parent alone
	require.NoError(t, Until(t.Context(), waiting.Stall, "the child is gone", func() bool { return !running(child) }))
}
