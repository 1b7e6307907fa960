package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// relayNode is one relay. A process that ends by itself is started again, as by an operator's
// supervisor.
type relayNode struct {
	name   string
	dir    string
	pushes string // HOST:PORT, as this process reaches it
	admin  string
	binary string

	mu      sync.Mutex // guards the fields below
	command rig.Command
	process *rig.Process
	wanted  bool     // it is to run
	ends    []string // how processes ended by themselves
	told    int      // how many of them endedBadly has told of
}

func (s *scene) newRelay(i int) (r *relayNode, err error) {
	m := relayOf(i)
	r = &relayNode{name: fmt.Sprintf("r%d", i+1), binary: s.binary}
	r.dir = filepath.Join(s.dir, r.name)
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	if r.pushes, err = s.network.address(here, m, portPushes); err != nil {
		return nil, err
	}
	if r.admin, err = s.network.address(here, m, portAdmin); err != nil {
		return nil, err
	}
	services, err := s.serve(m, r.name)
	if err != nil {
		return nil, err
	}
	config, err := s.configOf(m, r, services)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(r.dir, "relay.yaml")
	r.command = rig.Command{
		Name: "relay " + r.name, Log: filepath.Join(r.dir, "relay.log"), Env: []string{"SIM_SECRET=" + workspacesim.DemoSecret},
		Args: append(s.network.enter(m), s.binary, "run", "--config", file),
	}
	return r, os.WriteFile(file, []byte(config), 0o600)
}

// The relays' common name for senders, and a credential of the configuration.
const (
	pushHost     = "push.cluster"
	pushPassword = "cluster-has-a-password"
	// The window is longer than a new holder of control takes to read what has no span yet.
	journalBytes, replayWindow = "4GiB", "15m"
)

// pushUser is the credential's name of an environment.
func pushUser(environment int) string { return fmt.Sprintf("cluster-%d", environment) }

func (s *scene) configOf(m machine, r *relayNode, services string) (string, error) {
	url, err := journalURL(s.network, m)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, `data_dir: %s
workspace: {base_url: "http://%s", key_id: %s, secret: "${SIM_SECRET}", requests_per_second: 1000}
ingest: {listen: %q, behind_proxy: true}
admin: {listen: %q}
settings: {interval: 2s}
streaming: {interval: 2s}
audit: {key_file: %s}
journal: {url: %q, replicas: 3, shards: %d, max_bytes: %s, replay_window: %s}
sinks:
`, filepath.Join(r.dir, "data"), services, workspacesim.DemoKeyID, s.network.listensAt(m, portPushes), s.network.listensAt(m, portAdmin),
		filepath.Join(s.dir, "audit.key"), url, s.shards, journalBytes, replayWindow)
	for _, sink := range sinkNames {
		fmt.Fprintf(&b, "  - {name: %s, timeout: 40s, webhook: {url: \"http://%s/sinks/%s\"}}\n", sink, services, sink)
	}
	b.WriteString("environments:\n")
	for i, e := range s.workspace.Environments() {
		own := fmt.Sprintf(", credentials: [{username: %s, password: %s}]", pushUser(i), pushPassword)
		fmt.Fprintf(&b, "  - {project: %s, environment: %s, stream: {relay: {hostname: %s}}%s}\n", e.Project, e.Environment, pushHost, own)
	}
	return b.String(), nil
}

func (r *relayNode) dataDir() string { return filepath.Join(r.dir, "data") }

// start starts it, unless it runs.
func (r *relayNode) start() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = true
	if r.process == nil || r.process.Ended() {
		r.process, err = r.command.Start()
	}
	return err
}

// run has it started from another binary from now on, whose clock is off, until the function that
// it returns is called. What runs from there then is killed.
func (r *relayNode) run(binary string, ahead time.Duration) (undo func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.command
	r.command.Args, r.command.Env = slices.Clone(before.Args), append(slices.Clone(before.Env), rig.AtClock(ahead))
	r.command.Args[slices.Index(before.Args, r.binary)] = binary
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.command, r.wanted = before, false
		if r.process != nil { // a play that has failed may have left it
			r.process.Kill()
		}
	}
}

// kill ends it as a power cut does.
func (r *relayNode) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = false
	if r.process != nil {
		r.process.Kill()
	}
}

// stopWithin is how long a shutdown may take. The default of shutdown_timeout is 30s.
const stopWithin = time.Minute

// stop ends it as an operator does.
func (r *relayNode) stop() error {
	r.mu.Lock()
	r.wanted = false
	p := r.process
	r.mu.Unlock()
	if p == nil || p.Ended() {
		return nil
	}
	err := p.Stop(stopWithin)
	if err != nil && strings.Contains(err.Error(), takenOver) {
		return nil // it was about to end, as it was thought dead
	}
	return err
}

// signal reaches the running process.
func (r *relayNode) signal(s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil || r.process.Ended() {
		return os.ErrProcessDone
	}
	return syscall.Kill(-r.process.PID(), s)
}

// running reports whether it is to run, and does.
func (r *relayNode) running() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted && r.process != nil && !r.process.Ended()
}

// supervise starts it again when it has ended by itself, until ctx ends.
func (r *relayNode) supervise(ctx context.Context) {
	const pause = time.Second
	for retry.Sleep(ctx, pause) == nil {
		r.mu.Lock()
		r.revive()
		r.mu.Unlock()
	}
}

// revive starts it again if it has ended by itself. mu is held.
func (r *relayNode) revive() {
	if !r.wanted || r.process == nil || !r.process.Ended() {
		return
	}
	r.ends = append(r.ends, lastLine(r.process.Tail()))
	if p, err := r.command.Start(); err == nil {
		r.process = p
	}
}

// takenOver is what a relay says that ends because it was thought dead.
const takenOver = "another relay of this cluster has taken over"

// endedBadly is an error if a process has ended by itself since the last call, for another reason
// than that it was thought dead.
func (r *relayNode) endedBadly() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revive() // what has ended just now is of this round
	ends := r.ends[r.told:]
	r.told = len(r.ends)
	for _, end := range ends {
		if !strings.Contains(end, takenOver) {
			return fmt.Errorf("%s has ended by itself, see its log with --keep: %s", r.name, end)
		}
	}
	return nil
}

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }

// member is the relay's name among the cluster's relays; empty before it has one.
func (r *relayNode) member() string {
	name, _ := os.ReadFile(filepath.Join(r.dataDir(), app.NotesDir, "member"))
	return string(name)
}

// status asks the relay who does which job.
func (r *relayNode) status(ctx context.Context) (s app.ClusterStatus, err error) {
	var all struct {
		Cluster json.RawMessage
		Trail   struct {
			PublicKey string `json:"public_key"`
		}
	}
	if err := r.ask(ctx, "/status", &all); err != nil {
		return s, err
	}
	var failed struct{ Error string }
	if json.Unmarshal(all.Cluster, &failed) == nil && failed.Error != "" {
		return s, fmt.Errorf("%s: %s", r.name, failed.Error)
	}
	return s, json.Unmarshal(all.Cluster, &s)
}

func (r *relayNode) ask(ctx context.Context, path string, into any) error {
	text, err := r.get(ctx, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func (r *relayNode) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.admin+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	rig.ShowToken(req, r.dataDir())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s: %s", r.name, path, resp.Status)
	}
	return io.ReadAll(resp.Body)
}
