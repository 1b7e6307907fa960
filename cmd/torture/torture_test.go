package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// echo is a destination that answers each line with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

// ask sends a line through p, and returns the answer and when it came.
func ask(t *testing.T, p *proxy, within time.Duration) (string, time.Duration) {
	t.Helper()
	start := time.Now()
	c, err := net.Dial("tcp", p.address())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, _ = fmt.Fprintln(c, strings.Repeat(" ", greeting)+"hello")
	require.NoError(t, c.SetReadDeadline(start.Add(within)))
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.TrimLeft(line, " "), time.Since(start)
}

func TestTheProxyTakesADestinationAway(t *testing.T) {
	t.Parallel()
	p, err := newProxy()
	require.NoError(t, err)
	defer p.close()
	p.aim(echo(t))
	line, _ := ask(t, p, waiting.Stall)
	assert.Equal(t, "hello\n", line)

	p.set(fault{refuse: true})
	line, took := ask(t, p, waiting.Stall)
	assert.Empty(t, line)
	assert.Less(t, took, waiting.Stall, "the connection ends at once")

	p.set(fault{mute: true})
	line, took = ask(t, p, 200*time.Millisecond)
	assert.Empty(t, line)
	assert.GreaterOrEqual(t, took, 200*time.Millisecond, "the connection stays")

	p.set(fault{delay: 100 * time.Millisecond})
	line, took = ask(t, p, waiting.Stall)
	assert.Equal(t, "hello\n", line)
	assert.GreaterOrEqual(t, took, 100*time.Millisecond)

	p.set(fault{})
	line, _ = ask(t, p, waiting.Stall)
	assert.Equal(t, "hello\n", line)
}

func TestTheVerdict(t *testing.T) {
	t.Parallel()
	rows := []row{{name: "kill9", rounds: 3, acknowledged: 5, delivered: 6}, {name: "clock", skipped: "no way"}}
	assert.False(t, found(rows))
	text := table(rows)
	assert.Regexp(t, `kill9 +3 +5 +6 +0 +0`, text)
	assert.Contains(t, text, "SKIPPED: no way")
	assert.True(t, found(append(rows, row{lost: 1})))
	wrong := []row{{wrong: []string{"it ended"}}}
	assert.True(t, found(wrong))
	assert.Contains(t, table(wrong), "WRONG: it ended")
}

func TestScenariosAreChosenByName(t *testing.T) {
	t.Parallel()
	all, err := choose(nil)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, s := range all {
		assert.False(t, seen[s.name], "%s is there twice", s.name)
		seen[s.name] = true
	}
	some, err := choose([]string{"shutdown", "kill9"})
	require.NoError(t, err)
	require.Len(t, some, 2)
	assert.Equal(t, "shutdown", some[0].name)
	_, err = choose([]string{"earthquake"})
	require.ErrorContains(t, err, `no scenario "earthquake"`)
}

func TestAGiantIsAsLargeAsItSays(t *testing.T) {
	t.Parallel()
	body, size, ledger := giant(7)
	n, err := io.Copy(io.Discard, body)
	require.NoError(t, err)
	assert.Equal(t, size, n)
	assert.Less(t, size, int64(10<<20))
	assert.Greater(t, size, int64(9<<20))
	assert.Equal(t, ledger.Counts.Acknowledged, ledger.Acknowledged[0].To)
}

func TestTheStatusOfAProcessIsRead(t *testing.T) {
	t.Parallel()
	assert.Positive(t, statusField(os.Getpid(), "VmHWM:"))
	assert.Zero(t, statusField(os.Getpid(), "NoSuchField:"))
}
