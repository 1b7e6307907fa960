package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// scene is everything around the relays, and the relays.
type scene struct {
	flags
	dir     string
	out     io.Writer
	network network
	servers *journalServers
	relays  []*relayNode
	load    *load
	sinks   map[string]*receiver
	fence   *fence
	clock   *rig.ClockBuild // nil unless a chosen play needs it

	workspace *workspacesim.Simulator
	puts      atomic.Int64 // PUTs of streaming configs
	nextDial  atomic.Int64

	closers []func()
}

// newScene starts the servers and the workspace, and prepares the relays.
func newScene(ctx context.Context, f flags, dir string, out io.Writer) (*scene, error) {
	s := &scene{flags: f, dir: dir, out: out, sinks: map[string]*receiver{}}
	if err := s.setUp(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *scene) setUp(ctx context.Context) (err error) {
	if s.network, err = newNetwork(s.loopback); err != nil && !s.loopback {
		fmt.Fprintln(s.out, "proxies on loopback stand in for network namespaces:", err)
		s.loopback = true
		s.network, err = newNetwork(true)
	}
	if err != nil {
		return err
	}
	s.closers = append(s.closers, s.network.close)
	if s.servers, err = startServers(ctx, s.dir, s.network); s.servers != nil {
		s.closers = append(s.closers, s.servers.close)
	}
	if err != nil {
		return err
	}
	for _, name := range sinkNames {
		s.sinks[name] = newReceiver()
	}
	if err := s.startWorkspace(ctx); err != nil {
		return err
	}
	var addresses []string
	for i := range relays {
		r, err := s.newRelay(i)
		if err != nil {
			return err
		}
		s.relays = append(s.relays, r)
		s.closers = append(s.closers, r.kill)
		addresses = append(addresses, r.pushes)
	}
	s.load = newLoad(addresses, len(s.workspace.Environments()))
	return nil
}

// simulatedRate is what the simulated workspace streams, in events a second: the load comes
// from elsewhere.
const simulatedRate = 20

func (s *scene) startWorkspace(ctx context.Context) (err error) {
	s.workspace, err = workspacesim.New(workspacesim.Options{
		Seed: s.seed, Projects: 1, RetryMax: 500 * time.Millisecond, PushTimeout: pushTimeout, PushesInFlight: 2,
		LocalHosts: []string{pushHost}, Dial: s.dialSomeRelay,
	})
	if err != nil {
		return err
	}
	if err := s.workspace.SetRate("", "", simulatedRate/float64(len(s.workspace.Environments()))); err != nil {
		return err
	}
	s.workspace.Start(context.WithoutCancel(ctx))
	s.closers = append(s.closers, s.workspace.Stop)
	return nil
}

// dialSomeRelay connects to the relays in turn, whatever the address: a load balancer.
func (s *scene) dialSomeRelay(ctx context.Context, network, _ string) (conn net.Conn, err error) {
	dialer := net.Dialer{Timeout: time.Second}
	for range s.relays {
		r := s.relays[int(s.nextDial.Add(1))%len(s.relays)]
		if conn, err = dialer.DialContext(ctx, network, r.pushes); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// serve serves the API of the workspace and the sinks' destinations to one relay.
func (s *scene) serve(m machine, relay string) (address string, err error) {
	l, err := s.network.listen(context.Background(), m)
	if err != nil {
		return "", err
	}
	mux := http.NewServeMux()
	for name, r := range s.sinks {
		mux.Handle("POST /sinks/"+name, r.takes(relay))
	}
	api := s.workspace.Handler()
	mux.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "streaming") {
			s.puts.Add(1)
		}
		api.ServeHTTP(w, r)
	}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // ends at Close
	s.closers = append(s.closers, func() { _ = server.Close() })
	return l.Addr().String(), nil
}

// startRelays starts so many, the first one alone: it makes the trail's key.
func (s *scene) startRelays(ctx context.Context, n int) error {
	for i, r := range s.relays[:n] {
		if err := r.start(); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		err := s.until(ctx, r.name+" takes pushes", func() bool { return r.ready(ctx) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *relayNode) ready(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.admin+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// until waits until met, which is looked at again and again.
func (s *scene) until(ctx context.Context, what string, met func() bool) error {
	return s.while(ctx, what, func() int64 { return 0 }, met)
}

// while waits until met, as long as the number of what is left changes now and then.
func (s *scene) while(ctx context.Context, what string, left func() int64, met func() bool) error {
	least, moved := left(), time.Now()
	for !met() {
		if now := left(); now < least {
			least, moved = now, time.Now()
		}
		if time.Since(moved) > patience {
			return fmt.Errorf("wait until %s: nothing has moved for %s, %d are left", what, patience, least)
		}
		if err := retry.Sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
	}
	return nil
}

// standing asks the relays for who does which job, until one of them answers.
func (s *scene) standing(ctx context.Context, without ...*relayNode) (app.ClusterStatus, error) {
	failed := errors.New("no relay runs")
	for _, i := range rand.Perm(len(s.relays)) {
		r := s.relays[i]
		if !r.running() || len(without) > 0 && r == without[0] {
			continue
		}
		status, err := r.status(ctx)
		if err == nil && status.This != "" {
			return status, nil
		}
		failed = errors.Join(failed, err)
	}
	return app.ClusterStatus{}, failed
}

// relayOfMember finds a relay by its name in the cluster, as its newest process has it.
func (s *scene) relayOfMember(name string) *relayNode {
	for _, r := range s.relays {
		if name != "" && r.member() == name {
			return r
		}
	}
	return nil
}

// watchTable watches what the relays write to their table, until the scene is closed.
func (s *scene) watchTable(ctx context.Context) error {
	url, err := journalURL(s.network, here)
	if err != nil {
		return err
	}
	if s.fence, err = watchTable(ctx, tableStream, strings.Split(url, ",")); err != nil {
		return err
	}
	s.closers = append(s.closers, s.fence.close)
	return nil
}

// supervise has relays started again that end by themselves, until the scene is closed.
func (s *scene) supervise(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, r := range s.relays {
		all.Go(func() { r.supervise(ctx) })
	}
	s.closers = append(s.closers, func() { cancel(); all.Wait() })
}

// errorsLogged are the errors in the relays' logs, each message once with its number.
func (s *scene) errorsLogged() map[string]int {
	found := map[string]int{}
	for _, r := range s.relays {
		text, err := os.ReadFile(filepath.Join(r.dir, "relay.log"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if _, rest, is := strings.Cut(line, "level=ERROR msg="); is {
				found[messageOf(rest)]++
			} else if _, rest, is := strings.Cut(line, `"level":"ERROR","msg":`); is {
				found[messageOf(rest)]++
			}
		}
	}
	return found
}

// messageOf is the quoted text at the beginning.
func messageOf(text string) string {
	if rest, quoted := strings.CutPrefix(text, `"`); quoted {
		message, _, _ := strings.Cut(rest, `"`)
		return message
	}
	message, _, _ := strings.Cut(text, " ")
	return strings.TrimSpace(message)
}

func (s *scene) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}
