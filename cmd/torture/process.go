package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// process is one run of the relay.
type process struct {
	cmd    *exec.Cmd
	log    string // the file
	exited chan struct{}
	err    error // of the exit; valid once exited is closed
}

// start starts `auditrelay run`; it does not wait until the relay is ready.
func (s *scene) start() error { return s.launch(s.command(s.binary, "run", "--config", s.config)) }

// startStopped starts a process that is stopped until SIGCONT makes it the relay.
func (s *scene) startStopped() error {
	return s.launch(s.command("/bin/sh", "-c", `kill -STOP $$; exec "$0" "$@"`, s.binary, "run", "--config", s.config))
}

// command is a process with the relay's environment.
func (s *scene) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...) //nolint:noctx // it is ended by its owner
	cmd.Env = append(append(os.Environ(), "SIM_SECRET="+workspacesim.DemoSecret), s.env...)
	return cmd
}

// launch starts a command as the relay.
func (s *scene) launch(cmd *exec.Cmd) error {
	log, err := os.OpenFile(filepath.Join(s.t.dir, "relay.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the relay: %w", err)
	}
	p := &process{cmd: cmd, log: log.Name(), exited: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		_ = log.Close()
		close(p.exited)
	}()
	s.relay = p
	return nil
}

// startReady starts the relay, and waits until it takes pushes.
func (s *scene) startReady(ctx context.Context) error {
	if err := s.start(); err != nil {
		return err
	}
	return s.waitReady(ctx)
}

func (s *scene) waitReady(ctx context.Context) error {
	return s.until(ctx, "it is ready", func() bool {
		code, _ := s.ask(ctx, "/readyz")
		return code == http.StatusOK
	})
}

// ask reads from the relay's private listener; 0 means that there was no answer.
func (s *scene) ask(ctx context.Context, path string) (code int, text string) {
	ctx, cancel := context.WithTimeout(ctx, 6*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	rig.ShowToken(req, s.dataDir)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// kill ends the process like a power cut, except for the page cache.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// shutdownTime bounds a relay's shutdown.
const shutdownTime = 30 * time.Second

// stop ends the process like an operator; it must succeed.
func (p *process) stop() error {
	if p.ended() {
		return fmt.Errorf("the relay ended by itself (%w): %s", p.err, p.tail())
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.exited:
		if p.err != nil {
			return fmt.Errorf("the shutdown failed (%w): %s", p.err, p.tail())
		}
		return nil
	case <-time.After(shutdownTime):
		p.kill()
		return fmt.Errorf("the shutdown took more than %s: %s", shutdownTime, p.tail())
	}
}

// tail returns the end of the relay's log.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 600
	return "…" + string(bytes.TrimSpace(text[max(0, len(text)-most):]))
}

// peakMemory is the process's peak memory, in MiB.
func (p *process) peakMemory() int { return statusField(p.cmd.Process.Pid, "VmHWM:") >> 10 }

// tracerOf returns the tracer of pid, 0 for none.
func tracerOf(pid int) int { return statusField(pid, "TracerPid:") }

// statusField reads a number of /proc/PID/status; 0 if there is none.
func statusField(pid int, name string) int {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name); ok {
			n, _ := strconv.Atoi(strings.Fields(value)[0])
			return n
		}
	}
	return 0
}
