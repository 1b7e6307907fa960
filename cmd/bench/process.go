package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/auditrelay/auditrelay/internal/rig"
)

// relayProcess is `auditrelay run`.
type relayProcess struct {
	cmd           *exec.Cmd
	output        bytes.Buffer
	ingest, admin string // HOST:PORT
	ended         chan error
}

func topic(sink int) string { return fmt.Sprintf("events-%d", sink) }

// startRelay starts the relay on dir with sinks to as many topics, and waits
// until it is ready.
func startRelay(ctx context.Context, binary, dir, broker string, sinks int) (*relayProcess, error) {
	free, err := rig.FreeAddresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	p := &relayProcess{ingest: free[0], admin: free[1], ended: make(chan error, 1)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "relay.yaml")
	if err := os.WriteFile(file, []byte(p.config(dir, broker, sinks)), 0o600); err != nil {
		return nil, err
	}
	p.cmd = exec.CommandContext(ctx, binary, "run", "--config", file)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the relay (run `make build` first): %w", err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	return p, p.waitReady(ctx)
}

func (p *relayProcess) config(dir, broker string, sinks int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `data_dir: %q
ingest: {listen: %q, anonymous: bench/load}
admin: {listen: %q}
journal: {max_bytes: 50GiB}
environments:
  - project: bench
    environment: load
    credentials: [{api_key: %q}]
sinks:
`, filepath.Join(dir, "data"), p.ingest, p.admin, benchKey)
	for i := range sinks {
		fmt.Fprintf(&b, "  - {name: kafka-%d, kafka: {brokers: [%q], topic: %s, create_topic: true}}\n", i, broker, topic(i))
	}
	return b.String()
}

func (p *relayProcess) waitReady(ctx context.Context) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if _, err := p.get(ctx, "/readyz"); err == nil {
			return nil
		}
		select {
		case err := <-p.ended:
			p.ended <- err
			return fmt.Errorf("the relay ended: %w\n%s", err, p.output.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New("the relay does not get ready")
}

func (p *relayProcess) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s", path, resp.Status)
	}
	return string(body), err
}

// stop ends the relay cleanly.
func (p *relayProcess) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := <-p.ended
	p.ended <- err
	return err
}

// kill ends the relay if it still runs.
func (p *relayProcess) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	p.ended <- <-p.ended
}

// usage is what a process has used up so far.
type usage struct {
	cpu     float64 // seconds
	rss     float64 // MB at the peak
	written float64 // bytes to the disk
	commits float64 // of the journal
	stored  float64 // bytes of the commits
}

// usage reads /proc (Linux; see proc(5)) and the relay's metrics.
func (p *relayProcess) usage() (u usage, err error) {
	pid := p.cmd.Process.Pid
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const ticks = 100 // a second, on every Linux that Go runs on
	u.cpu = (number(fields[11]) + number(fields[12])) / ticks
	u.rss = procValue(pid, "status", "VmHWM:") / 1024
	u.written = procValue(pid, "io", "write_bytes:")
	metrics, err := p.get(context.Background(), "/metrics")
	u.commits = metric(metrics, "auditrelay_journal_commits_total")
	u.stored = metric(metrics, "auditrelay_journal_stored_bytes_total")
	return u, err
}

func procValue(pid int, file, key string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0 // not shown to us: the table then has a 0
	}
	return metric(string(text), key)
}

// metric finds the number behind name at a line's start.
func metric(text, name string) float64 {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			return number(fields[1])
		}
	}
	return 0
}

func number(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return v
}

func sorted(d []time.Duration) []time.Duration {
	slices.Sort(d)
	return d
}
