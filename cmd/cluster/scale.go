package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// size is a number of relays and of shards.
type size struct{ relays, shards int }

// sizes are those that are measured. The first one has one of each.
func sizes() []size { return []size{{1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 1}, {2, 4}, {3, 1}, {3, 4}} }

const (
	scaleEnvironments = 64
	scaleSenders      = 48
	scaleEvents       = 200 // of a push
	scaleBodies       = 617 // bytes of an event
	scalePassword     = "cluster-has-a-password"
)

// bench measures what some relays take from senders that are always ready, with three servers that
// sync each write. It has no network of its own: everything is on loopback.
type bench struct {
	flags
	dir      string
	out      io.Writer
	servers  *natstest.Cluster
	requests [][]byte // bodies of pushes
	sink     string   // HOST:PORT of a webhook
}

// scaleUp measures all sizes, and prints the table and the model.
func scaleUp(ctx context.Context, f flags, dir string, out io.Writer) error {
	b := &bench{flags: f, dir: dir, out: out}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	b.servers, err = natstest.StartCluster(ctx, natstest.Options{Command: []string{executable, natsCommand}, Dir: dir, SyncAlways: true})
	if err != nil {
		return err
	}
	defer b.servers.Close()
	closeSink, err := b.prepare(ctx)
	if err != nil {
		return err
	}
	defer closeSink()
	var all []sample
	for i, s := range sizes() {
		one, err := b.measure(ctx, s, i)
		if err != nil {
			return fmt.Errorf("%d relays with %d shards: %w", s.relays, s.shards, err)
		}
		fmt.Fprintf(out, "  %d relays, %d shards: %.0f events/s\n", s.relays, s.shards, one.events/one.seconds)
		all = append(all, one)
	}
	m := modelOf(all)
	m.tell(out, all)
	return nil
}

// prepare makes the pushes, and a webhook that forgets what it gets.
func (b *bench) prepare(ctx context.Context) (closeSink func(), err error) {
	pool := relaytest.Events(20_000, relaytest.BodyBytes(scaleBodies))
	for from := 0; from+scaleEvents <= len(pool); from += scaleEvents {
		entries := make([]pushes.Entry, scaleEvents)
		for i := range entries {
			entries[i] = pushes.Entry{Time: time.Now().UnixNano() + int64(i), Line: pool[from+i].Body}
		}
		body, err := pushes.Loki(nil, []pushes.Stream{{Labels: []relay.Label{{Name: "service", Value: "load"}}, Entries: entries}})
		if err != nil {
			return nil, err
		}
		b.requests = append(b.requests, body)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a sender that has gone tries again
	})}
	go func() { _ = server.Serve(l) }() // ends at Close
	b.sink = l.Addr().String()
	return func() { _ = server.Close() }, nil
}

// measure starts so many relays on streams of their own, and loads them.
func (b *bench) measure(ctx context.Context, s size, run int) (sample, error) {
	var relays []*rig.Relay
	prefix := fmt.Sprintf("SCALE%d", run)
	defer func() {
		for _, r := range relays {
			r.Close()
		}
		b.forget(ctx, prefix)
	}()
	for i := range s.relays {
		r, err := rig.NewRelay(ctx, b.binary, filepath.Join(b.dir, fmt.Sprintf("run%d-r%d", run, i)))
		if err != nil {
			return sample{}, err
		}
		relays = append(relays, r)
		if err := r.Start(ctx, b.config(r, s, prefix), starting); err != nil {
			return sample{}, err
		}
	}
	loading, stop := context.WithCancel(ctx)
	var acked atomic.Int64
	var sending sync.WaitGroup
	for i := range scaleSenders {
		sending.Go(func() { b.send(loading, relays[i%len(relays)].Ingest, i, &acked) })
	}
	defer sending.Wait()
	defer stop()
	if err := retry.Sleep(ctx, b.scale/4); err != nil { // until all is warm
		return sample{}, err
	}
	before, err := b.look(ctx, relays, &acked)
	if err == nil {
		err = retry.Sleep(ctx, b.scale)
	}
	if err != nil {
		return sample{}, err
	}
	after, err := b.look(ctx, relays, &acked)
	if err != nil {
		return sample{}, err
	}
	one := after.since(before)
	one.size = s
	if s == sizes()[0] {
		one.leader, err = b.servers.Leader(ctx, prefix+"_EVENTS")
		one.syncs = b.syncs(ctx, relays)
	}
	return one, err
}

// starting bounds the start of a relay, which makes its streams.
const starting = 2 * time.Minute

func (b *bench) config(r *rig.Relay, s size, prefix string) string {
	var c strings.Builder
	fmt.Fprintf(&c, `data_dir: %q
ingest: {listen: %q}
admin: {listen: %q}
journal: {url: %q, replicas: 3, stream_prefix: %s, shards: %d, max_bytes: 4GiB, replay_window: 1m, duplicate_window: -1s}
audit: {key_file: %q}
sinks:
  - {name: hook, batch_events: 5000, webhook: {url: "http://%s/"}}
environments:
`, r.DataDir(), r.Ingest, r.Admin, b.servers.URL, prefix, s.shards, filepath.Join(b.dir, prefix+".key"), b.sink)
	for i := range scaleEnvironments {
		fmt.Fprintf(&c, "  - {project: scale, environment: e%d, credentials: [{username: u%d, password: %s}]}\n", i, i, scalePassword)
	}
	return c.String()
}

// send pushes for one environment after the other until ctx ends, again where it is refused.
func (b *bench) send(ctx context.Context, to string, sender int, acked *atomic.Int64) {
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	for n := sender; ctx.Err() == nil; n += scaleSenders {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to+"/loki/api/v1/push", bytes.NewReader(b.requests[n%len(b.requests)]))
		if err != nil {
			return
		}
		req.SetBasicAuth(fmt.Sprintf("u%d", n%scaleEnvironments), scalePassword)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode/100 == 2 {
			acked.Add(scaleEvents)
		} else if retry.Sleep(ctx, 20*time.Millisecond) != nil {
			return
		}
	}
}

// forget removes the streams of a run.
func (b *bench) forget(ctx context.Context, prefix string) {
	js := b.servers.JetStream()
	for name := range js.StreamNames(ctx).Name() {
		if strings.HasPrefix(name, prefix+"_") {
			_ = js.DeleteStream(ctx, name) // what stays takes room only
		}
	}
}

// look reads what everybody has used so far.
func (b *bench) look(ctx context.Context, relays []*rig.Relay, acked *atomic.Int64) (at sample, err error) {
	for _, r := range relays {
		at.relay += cpuOf(r.Process().PID())
		text, err := metricsOf(ctx, r)
		if err != nil {
			return at, err
		}
		at.records += sumOf(text, "auditrelay_journal_commits_total")
		at.bytes += sumOf(text, "auditrelay_journal_stored_bytes_total")
		at.committing += sumOf(text, "auditrelay_journal_commit_seconds_sum")
		at.delivered += sumOf(text, "auditrelay_sink_delivered_events_total")
	}
	for _, p := range b.servers.Alive() {
		at.servers = append(at.servers, cpuOf(p.PID()))
	}
	at.senders = cpuOf(os.Getpid())
	at.at, at.events = time.Now(), float64(acked.Load())
	return at, nil
}

// metricsOf asks a relay that may be busy.
func metricsOf(ctx context.Context, r *rig.Relay) (text string, err error) {
	const tries = 5
	for range tries {
		if _, text, err = r.Ask(ctx, "/metrics"); err == nil {
			return text, nil
		}
	}
	return "", err
}

// syncs counts the servers' syncs for each commit, with strace; 0 where it is not there, or not
// allowed to look.
func (b *bench) syncs(ctx context.Context, relays []*rig.Relay) float64 {
	const during = 5 * time.Second
	args := []string{"-f", "-c", "-e", "trace=fsync,fdatasync"}
	for _, p := range b.servers.Alive() {
		args = append(args, "-p", strconv.Itoa(p.PID()))
	}
	var unused atomic.Int64
	before, err := b.look(ctx, relays, &unused)
	if err != nil {
		return 0
	}
	watching, stop := context.WithTimeout(ctx, during)
	defer stop()
	cmd := exec.CommandContext(watching, "strace", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	text, err := cmd.CombinedOutput()
	after, failed := b.look(ctx, relays, &unused)
	var ended *exec.ExitError
	if failed != nil || err != nil && !errors.As(err, &ended) && !errors.Is(err, context.DeadlineExceeded) {
		return 0
	}
	calls := 0.0
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasSuffix(f[len(f)-1], "sync") {
			n, _ := strconv.ParseFloat(f[3], 64) // what is no number counts nothing
			calls += n
		}
	}
	return calls / max(1, after.records-before.records)
}

// cpuOf is the seconds of a processor that a process has used, by /proc (see proc(5)).
func cpuOf(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const ticks = 100 // a second, on every Linux Go runs on
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticks
}

// sumOf adds up the series of a metric.
func sumOf(text, name string) (sum float64) {
	for line := range strings.Lines(text) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if of, _, _ := strings.Cut(series, "{"); of == name {
			n, _ := strconv.ParseFloat(value, 64) // a metric is always a number
			sum += n
		}
	}
	return sum
}
