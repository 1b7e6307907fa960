package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// subject is the measured process: the relay, or a peer in its place.
type subject struct {
	process       *rig.Process
	loki, datadog string // where it takes pushes, HOST:PORT

	metrics func(ctx context.Context) string // nil for a peer
	again   func(ctx context.Context, sinks string) (*subject, error)
}

// address returns where pushes of the format go.
func (s *subject) address(format string) string {
	if format == "datadog" {
		return s.datadog
	}
	return s.loki
}

// startWithin bounds a start, on a busy machine.
const startWithin = time.Minute

// startRelay starts the relay on dir with a sinks section, and waits until it is
// ready.
func startRelay(ctx context.Context, binary, dir, sinks string) (*subject, error) {
	relay, err := rig.NewRelay(ctx, binary, dir)
	if err != nil {
		return nil, err
	}
	return runRelay(ctx, relay, sinks)
}

func runRelay(ctx context.Context, relay *rig.Relay, sinks string) (*subject, error) {
	if err := relay.Start(ctx, relayConfig(relay, sinks), startWithin); err != nil {
		relay.Close()
		return nil, fmt.Errorf("%w (`make build` makes the binary)", err)
	}
	return &subject{
		process: relay.Process(), loki: relay.Ingest, datadog: relay.Ingest,
		metrics: func(ctx context.Context) string {
			_, text, err := relay.Ask(ctx, "/metrics")
			if err != nil {
				return "" // the table then has a 0
			}
			return text
		},
		again: func(ctx context.Context, sinks string) (*subject, error) { return runRelay(ctx, relay, sinks) },
	}, nil
}

func relayConfig(relay *rig.Relay, sinks string) string {
	return fmt.Sprintf(`data_dir: %q
ingest: {listen: %q, anonymous: bench/load}
admin: {listen: %q}
journal: {max_bytes: 50GiB}
environments:
  - project: bench
    environment: load
    credentials: [{api_key: %q}]
sinks:
%s`, relay.DataDir(), relay.Ingest, relay.Admin, benchKey, sinks)
}

// collectorConfig makes an OpenTelemetry Collector keep acknowledged events: its queue is on
// the disk and fsynced, and it blocks rather than refusing. As in the relay, an event is a
// record, all replicas acknowledge, snappy compresses, and retries never end.
const collectorConfig = `
extensions:
  file_storage: {directory: %[1]q, create_directory: true, timeout: 10s, fsync: true}
receivers:
  loki:
    protocols: {http: {endpoint: %[2]q, max_request_body_size: 67108864}}
    use_incoming_timestamp: true
  datadog: {endpoint: %[3]q}
exporters:
  kafka:
    brokers: [%[4]q]
    logs: {topic: %[5]s, encoding: raw}
    producer: {required_acks: -1, compression: snappy, max_message_bytes: 16000000, linger: 10ms}
    timeout: 10s
    retry_on_failure: {enabled: true, initial_interval: 200ms, max_interval: 2s, max_elapsed_time: 0}
    sending_queue: {enabled: true, num_consumers: 10, queue_size: 200000, block_on_overflow: true, storage: file_storage}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  extensions: [file_storage]
  pipelines:
    logs: {receivers: [loki, datadog], exporters: [kafka]}
`

// startCollector starts a collector on dir, and waits until it listens.
func startCollector(ctx context.Context, binary, dir, broker string) (*subject, error) {
	free, err := rig.FreeAddresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "collector.yaml")
	config := fmt.Sprintf(collectorConfig, filepath.Join(dir, "data"), free[0], free[1], broker, topic(0))
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	process, err := rig.Command{Name: "the collector", Args: []string{binary, "--config", file}, Log: filepath.Join(dir, "collector.log")}.Start()
	if err != nil {
		return nil, err
	}
	s := &subject{process: process, loki: free[0], datadog: free[1]}
	err = rig.Until(ctx, startWithin, "the collector listens", func() bool { return answers(ctx, s.loki) && answers(ctx, s.datadog) }, process)
	if err != nil {
		process.Kill()
		return nil, err
	}
	return s, nil
}

// answers reports whether an HTTP server is there.
func answers(ctx context.Context, address string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return true
}

// usage is a subject's use of resources so far.
type usage struct {
	cpu     float64 // seconds
	rss     float64 // MB at the peak
	written float64 // bytes to the disk
	commits float64 // of the journal
	stored  float64 // bytes of the commits
}

// usage reads /proc (Linux; see proc(5)) and the relay's metrics.
func (s *subject) usage(ctx context.Context) (u usage, err error) {
	pid := s.process.PID()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const ticks = 100 // a second, on every Linux Go runs on
	u.cpu = (number(fields[11]) + number(fields[12])) / ticks
	u.rss = procValue(pid, "status", "VmHWM:") / 1024
	u.written = procValue(pid, "io", "write_bytes:")
	if s.metrics != nil {
		metrics := s.metrics(ctx)
		u.commits = metric(metrics, "auditrelay_journal_commits_total")
		u.stored = metric(metrics, "auditrelay_journal_stored_bytes_total")
	}
	return u, nil
}

func procValue(pid int, file, key string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0 // not shown to us: the table then has a 0
	}
	return metric(string(text), key)
}

// metric returns the number that follows name at the start of a line.
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
