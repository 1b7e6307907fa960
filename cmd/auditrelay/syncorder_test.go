//go:build linux

package main

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// A push into a new block is answered after, in this order: the record is written to the
// block, the block is synced, and the folder with the block's name is synced. The kernel's
// view shows it: the system calls of the real process.
func TestTheSyncsBeforeAnAnswer(t *testing.T) {
	t.Parallel()
	trace := tracedPush(t)
	msgs := filepath.Join(datadir.StreamDir(trace.dataDir, "AUDITRELAY_EVENTS"), natsserver.MessagesDir)
	block := filepath.Join(msgs, "1"+natsserver.BlockSuffix)

	answer := trace.first(t, 0, "the answer", func(c call) bool {
		return c.name == "write" && strings.Contains(c.args, `"HTTP/1.1 204 `)
	})
	created := trace.first(t, 0, "the new block", func(c call) bool {
		return c.name == "openat" && strings.Contains(c.args, block+`"`) && strings.Contains(c.args, "O_CREAT")
	})
	written := trace.first(t, created.ended, "the write of the record", func(c call) bool {
		return (c.name == "write" || c.name == "pwrite64") && strings.Contains(c.args, "<"+block+">")
	})
	synced := trace.first(t, written.ended, "the sync of the block", func(c call) bool {
		return c.name == "fsync" && strings.Contains(c.args, "<"+block+">")
	})
	named := trace.first(t, synced.ended, "the sync of the block's folder", func(c call) bool {
		return c.name == "fsync" && strings.Contains(c.args, "<"+msgs+">")
	})
	require.Less(t, named.ended, answer.begun, "the answer was sent before the folder was synced:\n%s", trace.text)
}

// call is a finished system call. It began and ended at these lines of the trace.
type call struct {
	name, args   string
	begun, ended int
}

// pushTrace are the calls of a relay from its start to its first 204.
type pushTrace struct {
	dataDir, text string
	calls         []call
}

// first finds the first successful call that began behind a line.
func (p *pushTrace) first(t *testing.T, behind int, what string, wanted func(call) bool) call {
	t.Helper()
	for _, c := range p.calls {
		if c.begun >= behind && c.ended < math.MaxInt && wanted(c) {
			return c
		}
	}
	require.Failf(t, "a call is missing", "%s, behind line %d of the trace:\n%s", what, behind, p.text)
	return call{}
}

// parse reads the output of strace -f. A call interrupted by another thread's has a
// second line for its end.
func (p *pushTrace) parse() {
	open := map[string]int{} // by thread, the index of its unfinished call
	for n, line := range strings.Split(p.text, "\n") {
		thread, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		failed := strings.Contains(rest, ") = -1 ")
		if i, ok := open[thread]; ok && strings.HasPrefix(rest, "<... ") {
			if delete(open, thread); !failed {
				p.calls[i].ended = n
			}
			continue
		}
		name, args, is := strings.Cut(rest, "(")
		if !is || failed {
			continue
		}
		c := call{name: name, args: args, begun: n, ended: n}
		if strings.HasSuffix(args, "<unfinished ...>") {
			c.ended = math.MaxInt
			open[thread] = len(p.calls)
		}
		p.calls = append(p.calls, c)
	}
}

// tracedPush runs a relay under strace until it has acknowledged its first push.
func tracedPush(t *testing.T) *pushTrace {
	t.Helper()
	tracer, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("SKIPPED: strace is not installed")
	}
	if said, err := exec.CommandContext(t.Context(), tracer, "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: strace may not trace processes here: %s", said)
	}
	dir, ingest := t.TempDir(), freeAddress(t)
	p := &pushTrace{dataDir: filepath.Join(dir, "data")}
	config, output := filepath.Join(dir, "relay.yaml"), filepath.Join(dir, "trace")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `data_dir: %s
ingest: {listen: "%s", anonymous: acme/live}
admin: {listen: "%s"}
environments: [{project: acme, environment: live}]
sinks: [{name: file, file: {path: %s/events.jsonl}}]
`, p.dataDir, ingest, freeAddress(t), dir), 0o600))
	cmd := exec.Command(tracer, "-f", "--seccomp-bpf", "-qq", "-y", "-s", "20", "-o", output,
		"-e", "trace=openat,write,pwrite64,fsync,fdatasync", "auditrelay", "run", "--config", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	body := fmt.Sprintf(`{"streams":[{"stream":{"app":"idp"},"values":[["%d","{\"event_id\":\"1\"}"]]}]}`, time.Now().UnixNano())
	waiting.Until(t, func() bool {
		resp, err := http.Post("http://"+ingest+"/loki/api/v1/push", "application/json", strings.NewReader(body))
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusNoContent
	}, "no push is acknowledged")
	waiting.Until(t, func() bool {
		text, err := os.ReadFile(output)
		p.text = string(text)
		return err == nil && strings.Contains(p.text, `"HTTP/1.1 204 `) && strings.HasSuffix(p.text, "\n")
	}, "the trace lacks the answer")
	p.parse()
	return p
}
