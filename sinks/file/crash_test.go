package file

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// After a crash at any byte of its last line, a file is whole again with the next delivery.
func TestTornLineIsCutOff(t *testing.T) {
	t.Parallel()
	events := relaytest.Events(4)
	last := AppendLine(nil, &events[2])
	for _, torn := range []int{1, 5, len(lineStart), len(lineStart) + 3, len(last) / 2, len(last) - 1} {
		path := filepath.Join(t.TempDir(), "events.jsonl")
		whole := AppendLine(AppendLine(nil, &events[0]), &events[1])
		require.NoError(t, os.WriteFile(path, append(whole, last[:torn]...), 0o600))
		s := newSink(t, config.File{Path: path})
		require.NoError(t, s.Deliver(t.Context(), events[2:]))
		requireIDs(t, events, path)
	}
}

func TestTornZerosAreCutOff(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	events := relaytest.Events(2)
	content := append(AppendLine(nil, &events[0]), make([]byte, 200_000)...)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	s := newSink(t, config.File{Path: path})
	require.NoError(t, s.Deliver(t.Context(), events[1:]))
	requireIDs(t, events, path)
}

// If the path is that of somebody else's file, that file does not lose its last line.
func TestForeignFileIsLeftAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notes.txt")
	require.NoError(t, os.WriteFile(path, []byte("dear diary"), 0o600))
	s := newSink(t, config.File{Path: path})
	err := s.Deliver(t.Context(), relaytest.Events(1))
	require.ErrorContains(t, err, "this sink did not write it")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "dear diary", string(content))
}

// If the disk is full in the middle of a write, or fails to sync, the error can be retried, and
// the file contains each event once.
func TestFailedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*disk){
		"write": func(d *disk) {
			d.write = func(f *os.File, b []byte) (int, error) {
				n, _ := f.Write(b[:len(b)/2+1])
				return n, syscall.ENOSPC
			}
		},
		"sync": func(d *disk) { d.sync = func(*os.File) error { return syscall.ENOSPC } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "events.jsonl")
			s := newSink(t, config.File{Path: path})
			events := relaytest.Events(30)
			require.NoError(t, s.Deliver(t.Context(), events[:10]))
			whole := s.disk
			fail(&s.disk)
			for range 2 {
				err := s.Deliver(t.Context(), events[10:20])
				require.ErrorIs(t, err, syscall.ENOSPC)
				require.False(t, relay.IsPermanent(err))
				requireIDs(t, events[:10], path)
			}
			s.disk = whole
			require.NoError(t, s.Deliver(t.Context(), events[10:]))
			requireIDs(t, events, path)
		})
	}
}

const childPath = "AUDITRELAY_FILE_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		deliverForever(path)
	}
	if path := os.Getenv(checkPath); path != "" {
		check(path)
	}
	os.Exit(m.Run())
}

// deliverForever prints how many events are acknowledged, until it is killed.
func deliverForever(path string) {
	s := New(config.File{Path: path, RotateBytes: 300_000, Gzip: strings.Contains(path, "packed")}, Options{})
	var err error
	for n := 0; err == nil; n += 100 {
		fmt.Println(n)
		err = s.Deliver(context.Background(), relaytest.Events(100, relaytest.From(n)))
	}
	fmt.Println(err)
	os.Exit(1)
}

// After kill -9 during a write, everything that was acknowledged is there, in whole lines.
func TestKilledWriterLosesNothing(t *testing.T) {
	t.Parallel()
	for round := range 6 {
		path := filepath.Join(t.TempDir(), []string{"plain.jsonl", "packed.jsonl"}[round%2])
		acknowledged := killAfter(t, path, 300+round*300)
		s := newSink(t, config.File{Path: path})
		marker := relaytest.Events(1, relaytest.From(10_000_000))
		require.NoError(t, s.Deliver(t.Context(), marker))
		got := arrived(t, path)
		require.GreaterOrEqual(t, len(got), acknowledged+1)
		for i, e := range relaytest.Events(acknowledged) {
			require.Equal(t, e.ID, got[i].ID)
		}
		require.Equal(t, marker[0].ID, got[len(got)-1].ID)
	}
}

// killAfter runs deliverForever in a process of its own until n events are acknowledged, and
// returns how many were acknowledged when it died.
func killAfter(t *testing.T, path string, n int) (acknowledged int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childPath+"="+path)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	killed := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		_, err := fmt.Sscan(lines.Text(), &acknowledged)
		require.NoError(t, err, lines.Text())
		if acknowledged >= n && !killed {
			killed = true
			require.NoError(t, child.Process.Kill())
		}
	}
	err = child.Wait()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit) && strings.Contains(exit.String(), "killed"), "%v", err)
	return acknowledged
}
