//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// A push into a new segment is answered after, in this order: the segment and the folder with
// its name are synced, the record is written to it and synced, and the end mark says so. The
// kernel's view shows it: the system calls of the real process.
func TestTheSyncsBeforeAnAnswer(t *testing.T) {
	t.Parallel()
	trace := tracedPush(t)
	folder := filepath.Join(trace.dataDir, "store", "events")
	segment, mark := filepath.Join(folder, fmt.Sprintf("%020d.seg", 1)), folder+".end"
	to := func(file string, names ...string) func(call) bool {
		return func(c call) bool { return slices.Contains(names, c.name) && strings.Contains(c.args, "<"+file+">") }
	}

	answer := trace.first(t, 0, "the answer", answers)
	created := trace.first(t, 0, "the new segment", func(c call) bool {
		return c.name == "openat" && strings.Contains(c.args, segment+`"`) && strings.Contains(c.args, "O_CREAT")
	})
	whole := trace.first(t, created.ended, "the sync of the new segment", to(segment, "fsync", "fdatasync"))
	named := trace.first(t, whole.ended, "the sync of its folder", to(folder, "fsync"))
	written := trace.first(t, named.ended, "the write of the record", func(c call) bool {
		return to(segment, "pwrite64")(c) && strings.Contains(c.args, tracedEvent)
	})
	synced := trace.first(t, written.ended, "the sync of the record", to(segment, "fsync", "fdatasync"))
	marked := trace.first(t, synced.ended, "the end mark", to(mark, "pwrite64"))
	require.Less(t, marked.ended, answer.begun, "the answer was sent before the end was marked:\n%s", trace.text)
}

// answers reports whether a call is the write of the answer.
func answers(c call) bool { return c.name == "write" && strings.Contains(c.args, `"HTTP/1.1 204 `) }

// tracedEvent is the id of the event that is pushed. No other text has four bytes in a row of it, so
// that it stands as it is in a record, though the event is compressed with what is written with it.
const tracedEvent = "Q~q~X~x~Z~z~J~j~V~v~W~w"

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

// first finds the first successful call that began after a line.
func (p *pushTrace) first(t *testing.T, after int, what string, wanted func(call) bool) call {
	t.Helper()
	for _, c := range p.calls {
		if c.begun >= after && c.ended < math.MaxInt && wanted(c) {
			return c
		}
	}
	require.Failf(t, "a call is missing", "%s, after line %d of the trace:\n%s", what, after, p.text)
	return call{}
}

// parse reads the output of strace -f. A call interrupted by another thread's has a
// second line for its end.
func (p *pushTrace) parse() {
	p.calls = nil
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
	cmd := exec.Command(tracer, "-f", "--seccomp-bpf", "-qq", "-y", "-s", "65536", "-o", output,
		"-e", "trace=openat,write,pwrite64,fsync,fdatasync", "auditrelay", "run", "--config", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	body := fmt.Sprintf(`{"streams":[{"stream":{"app":"idp"},"values":[["%d","{\"event_id\":\"%s\"}"]]}]}`, time.Now().UnixNano(), tracedEvent)
	waiting.Until(t, func() bool {
		resp, err := http.Post("http://"+ingest+"/loki/api/v1/push", "application/json", strings.NewReader(body))
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusNoContent
	}, "no push is acknowledged")
	waiting.Until(t, func() bool {
		text, err := os.ReadFile(output)
		p.text = string(text[:bytes.LastIndexByte(text, '\n')+1]) // strace may be in the middle of a line
		p.parse()
		return err == nil && slices.ContainsFunc(p.calls, func(c call) bool { return answers(c) && c.ended < math.MaxInt })
	}, "the trace lacks the answer, or its end")
	return p
}
