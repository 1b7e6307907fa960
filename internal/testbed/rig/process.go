package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Command describes a process to start, again and again.
type Command struct {
	// Name names it in errors.
	Name string
	// Args are the program and its arguments.
	Args []string
	// Env is added to the environment: NAME=VALUE each.
	Env []string
	// Dir is its working folder. Default: this process's.
	Dir string
	// Log is the file for its output, which is appended to that of earlier starts.
	Log string
}

// Process is one run of a command. On Linux it is killed when this process dies. It has
// its own process group: a Ctrl-C at the terminal does not reach it.
type Process struct {
	name   string
	log    string
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
	err    error         // of the exit; valid once exited is closed
}

// Start starts the process. Its owner ends it by Kill or Stop.
func (c Command) Start() (*Process, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", c.Name, err)
	}
	cmd := exec.Command(c.Args[0], c.Args[1:]...) //nolint:noctx // it is ended by its owner
	cmd.Dir, cmd.Env = c.Dir, append(os.Environ(), c.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = endsWithParent()
	p := &Process{name: c.Name, log: c.Log, cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel kills the child when the thread that started it ends, so the thread must
		// live on.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return p, nil
}

// Run runs the command to its end, and fails unless it succeeds; the end of ctx stops it. Now
// and then it shows the last printed line, unless show is nil.
func (c Command) Run(ctx context.Context, show func(line string)) error {
	p, err := c.Start()
	if err != nil {
		return err
	}
	const often = 10 * time.Second
	tick := time.NewTicker(often)
	defer tick.Stop()
	for {
		select {
		case <-p.exited:
			if p.err != nil {
				return fmt.Errorf("%s failed (%w): %s", c.Name, p.err, p.Tail())
			}
			return nil
		case <-ctx.Done():
			_ = p.Stop(often) // ctx's end is its error anyway
			return fmt.Errorf("%s was cut off: %w", c.Name, ctx.Err())
		case <-tick.C:
			if show != nil {
				show(p.lastLine())
			}
		}
	}
}

// lastLine is the last line printed by the process.
func (p *Process) lastLine() string {
	text := p.Tail()
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Unexpected returns the error of a process that ended by itself, with the end of its log.
func (p *Process) Unexpected() error {
	ended := errors.New("exit code 0")
	if p.err != nil {
		ended = p.err
	}
	return fmt.Errorf("%s has ended by itself (%w): %s", p.name, ended, p.Tail())
}

// Kill ends the process like a power cut, except for the page cache, and waits until it
// is gone.
func (p *Process) Kill() {
	_ = p.signal(syscall.SIGKILL) // it may have ended
	<-p.exited
}

// signal reaches the process and its children.
func (p *Process) signal(s syscall.Signal) error {
	if p.Ended() {
		return os.ErrProcessDone
	}
	return syscall.Kill(-p.PID(), s)
}

// Stop ends the process as an operator does, by SIGTERM. It fails if the process had ended
// before, was killed because it was too slow, or if its exit code was not 0.
func (p *Process) Stop(within time.Duration) error {
	if p.Ended() {
		return p.Unexpected()
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.exited:
		if p.err != nil {
			return fmt.Errorf("the shutdown of %s failed (%w): %s", p.name, p.err, p.Tail())
		}
		return nil
	case <-time.After(within):
		p.Kill()
		return fmt.Errorf("the shutdown of %s took more than %s: %s", p.name, within, p.Tail())
	}
}

// tailBytes is the length of a log's end in errors.
const tailBytes = 2000

// Tail returns the end of the process's output.
func (p *Process) Tail() string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, end-tailBytes), io.SeekStart)
	}
	text, err := io.ReadAll(io.LimitReader(f, tailBytes))
	if err != nil {
		return err.Error()
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return "(it printed nothing)"
	}
	return "…" + string(bytes.TrimSpace(text))
}
