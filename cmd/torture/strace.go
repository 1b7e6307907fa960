package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// tracing is an strace attached to the relay, with its output.
type tracing struct {
	cmd    *exec.Cmd
	output string // the file
}

// attach begins to trace the relay; detach ends it.
func (s *scene) attach(ctx context.Context, tracer string, args ...string) (*tracing, error) {
	pid := s.relay.cmd.Process.Pid
	t := &tracing{output: filepath.Join(s.t.dir, "strace.out")}
	args = append([]string{"-f", "-qq", "-y", "-s", "0", "-o", t.output, "-p", strconv.Itoa(pid)}, args...)
	t.cmd = exec.Command(tracer, args...) //nolint:noctx // it is ended by detach
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start strace: %w", err)
	}
	for deadline := time.Now().Add(time.Minute); tracerOf(pid) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) || ctx.Err() != nil || s.relay.ended() {
			t.detach()
			return nil, &skip{"strace may not trace processes here"}
		}
	}
	return t, nil
}

// detach leaves the relay. It may be called again.
func (t *tracing) detach() {
	if t.cmd.ProcessState == nil {
		_ = t.cmd.Process.Signal(os.Interrupt)
		_ = t.cmd.Wait() // it says how the relay ended
	}
}

// lines calls each with the lines of the trace, once it is over.
func (t *tracing) lines(each func(line string)) error {
	f, err := os.Open(t.output)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		each(lines.Text())
	}
	return lines.Err()
}

// injected counts the calls strace has made fail.
func (t *tracing) injected() (n int, err error) {
	err = t.lines(func(line string) {
		if strings.Contains(line, "(INJECTED)") {
			n++
		}
	})
	return n, err
}

// onlyWrites traces writes to files and sockets.
var onlyWrites = []string{"-e", "trace=write,pwrite64"}

// The lines of a trace: a write with its end, one without, and the end of the latter.
var (
	wholeWrite  = regexp.MustCompile(`^(\d+) +p?write(?:64)?\(\d+<(/[^>]*)>, .*?, (\d+)(?:, \d+)?\) += (\d+)`)
	begunWrite  = regexp.MustCompile(`^(\d+) +p?write(?:64)?\(\d+<(/[^>]*)>, .*?, (\d+)(?:, \d+)? <unfinished`)
	endedWrite  = regexp.MustCompile(`^(\d+) +<\.\.\. p?write(?:64)? resumed>\) += (-?\d+)`)
	anotherCall = regexp.MustCompile(`^(\d+) `)
)

// short is a write of fewer bytes than asked for.
type short struct {
	path        string
	asked, done int
}

// shorts lists the partial writes to files.
func (t *tracing) shorts() (all []short, err error) {
	begun := map[string]short{} // by thread
	err = t.lines(func(line string) {
		if m := wholeWrite.FindStringSubmatch(line); m != nil {
			all = append(all, cutShort(m[2], m[3], m[4])...)
		} else if m := begunWrite.FindStringSubmatch(line); m != nil {
			begun[m[1]] = short{path: m[2], asked: number(m[3])}
		} else if m := endedWrite.FindStringSubmatch(line); m != nil {
			w := begun[m[1]]
			all = append(all, cutShort(w.path, strconv.Itoa(w.asked), m[2])...)
			delete(begun, m[1])
		} else if m := anotherCall.FindStringSubmatch(line); m != nil {
			delete(begun, m[1])
		}
	})
	return all, err
}

func cutShort(path, asked, done string) []short {
	w := short{path, number(asked), number(done)}
	if w.done <= 0 || w.done >= w.asked {
		return nil
	}
	return []short{w}
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}
