package journal

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// nodeVariable makes the test's binary a node of a cluster.
const nodeVariable = "AUDITRELAY_TEST_NODE"

// TestMain lets nodes be processes of their own, which can be killed and frozen.
func TestMain(m *testing.M) {
	if spec := os.Getenv(nodeVariable); spec != "" {
		if err := runNode(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// node is one server of a cluster.
type node struct {
	Name, Dir      string
	Clients, Peers string // addresses that clients and other nodes connect to
	Routes         string
	Cluster        string

	cmd *exec.Cmd
}

// runNode serves until the standard input ends, as it does with the test.
func runNode(spec string) error {
	var n node
	if err := json.Unmarshal([]byte(spec), &n); err != nil {
		return err
	}
	port, err := portOf(n.Clients)
	if err != nil {
		return err
	}
	peers, err := portOf(n.Peers)
	if err != nil {
		return err
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: n.Name, Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: n.Dir, JetStreamMaxStore: 4 << 30, JetStreamMaxMemory: 64 << 20,
		Cluster: server.ClusterOpts{Name: n.Cluster, Host: "127.0.0.1", Port: peers},
		Routes:  server.RoutesFromStr(n.Routes),
	})
	if err != nil {
		return err
	}
	srv.Start()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func portOf(address string) (int, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}

// cluster is three servers, of which each stream has a replica.
type cluster [3]*node

func startCluster(t *testing.T) *cluster {
	t.Helper()
	var c cluster
	var routes []string
	free, err := rig.FreeAddresses(t.Context(), 2*len(c))
	require.NoError(t, err)
	for i := range c {
		c[i] = &node{Name: fmt.Sprintf("n%d", i), Dir: filepath.Join(t.TempDir(), fmt.Sprintf("n%d", i)), Clients: free[2*i], Peers: free[2*i+1]}
		routes = append(routes, "nats://"+c[i].Peers)
	}
	for _, n := range c {
		n.Routes = strings.Join(routes, ",")
		n.Cluster = strings.ReplaceAll(c[0].Peers, ".", "-") // no other test's cluster has the name
		n.start(t)
	}
	t.Cleanup(func() {
		for _, n := range c {
			_ = n.cmd.Process.Kill()
			_ = n.cmd.Wait()
		}
	})
	return &c
}

func (n *node) start(t *testing.T) {
	t.Helper()
	spec, err := json.Marshal(n)
	require.NoError(t, err)
	n.cmd = exec.Command(os.Args[0])
	n.cmd.Env = append(os.Environ(), nodeVariable+"="+string(spec))
	n.cmd.Stderr = os.Stderr
	_, err = n.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, n.cmd.Start())
}

func (n *node) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, n.cmd.Process.Kill())
	_ = n.cmd.Wait() // it was killed
}

func (n *node) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, n.cmd.Process.Signal(s))
}

func (c *cluster) url() string {
	var urls []string
	for _, n := range c {
		urls = append(urls, "nats://"+n.Clients)
	}
	return strings.Join(urls, ",")
}

func (c *cluster) named(t *testing.T, name string) *node {
	t.Helper()
	for _, n := range c {
		if n.Name == name {
			return n
		}
	}
	require.Fail(t, "no such node", "%q", name)
	return nil
}

// open opens a journal with streams of its own, when the cluster is ready.
func (c *cluster) open(t *testing.T, prefix string) *opened {
	t.Helper()
	cfg := testConfig
	cfg.URL, cfg.Replicas, cfg.StreamPrefix, cfg.MaxBytes = c.url(), 3, prefix, 64<<20
	waiting.Until(t, func() bool {
		nc, err := nats.Connect(cfg.URL)
		if err != nil {
			return false
		}
		defer nc.Close()
		// Makes a stream on all three nodes: so they have found each other.
		m, err := nc.Request("$JS.API.STREAM.CREATE."+prefix+"_READY", []byte(`{"name":"`+prefix+`_READY","subjects":["`+prefix+`.ready"],"num_replicas":3}`), 5*time.Second)
		return err == nil && !strings.Contains(string(m.Data), `"error"`)
	}, "the cluster does not come up")
	return open(t, t.TempDir(), cfg)
}

// leader is the node that leads a stream.
func (c *cluster) leader(t *testing.T, j *opened, stream string) (leader *node) {
	t.Helper()
	waiting.Until(t, func() bool {
		s, err := j.conn.JetStream.Stream(t.Context(), stream)
		if err != nil || s.CachedInfo().Cluster == nil || s.CachedInfo().Cluster.Leader == "" {
			return false
		}
		leader = c.named(t, s.CachedInfo().Cluster.Leader)
		return true
	}, "stream %s has no leader", stream)
	return leader
}

// stepDown makes the leader of a stream, or of its consumer, hand over.
func stepDown(t *testing.T, j *opened, what string) {
	t.Helper()
	waiting.Until(t, func() bool {
		m, err := j.conn.JetStream.Conn().Request("$JS.API."+what, nil, 2*time.Second)
		return err == nil && strings.Contains(string(m.Data), `"success":true`)
	}, "%s", what)
}
