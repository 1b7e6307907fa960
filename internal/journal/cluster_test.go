package journal

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// TestMain lets the test's binary be a node of a cluster, to be killed and frozen.
func TestMain(m *testing.M) { natstest.Main(m) }

// cluster is three servers, each with a replica of each stream.
type cluster struct{ *natstest.Cluster }

func startCluster(t *testing.T) cluster {
	t.Helper()
	c, err := natstest.StartCluster(t.Context(), natstest.Options{Command: natstest.Self(t), Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return cluster{c}
}

// open opens a journal with streams of its own, when all three nodes have found each other.
func (c cluster) open(t *testing.T, prefix string) *opened {
	t.Helper()
	require.NoError(t, c.CreateStream(t.Context(), prefix+"_READY", prefix+".ready", time.Minute))
	cfg := testConfig
	cfg.URL, cfg.Replicas, cfg.StreamPrefix, cfg.MaxBytes = c.URL, 3, prefix, 64<<20
	return open(t, t.TempDir(), cfg)
}

// leader is the node that leads a stream.
func (c cluster) leader(t *testing.T, stream string) (node int) {
	t.Helper()
	waiting.Until(t, func() bool {
		var err error
		node, err = c.Leader(t.Context(), stream)
		return err == nil
	}, "stream %s has no leader", stream)
	return node
}

// named is the node of a name.
func (c cluster) named(t *testing.T, name string) int {
	t.Helper()
	node, err := c.Named(name)
	require.NoError(t, err)
	return node
}

func (c cluster) restart(t *testing.T, node int) {
	t.Helper()
	require.NoError(t, c.Restart(t.Context(), node))
}

// stepDown makes the leader of a stream, or of its consumer, hand over.
func stepDown(t *testing.T, j *opened, what string) {
	t.Helper()
	waiting.Until(t, func() bool {
		m, err := j.conn.JetStream.Conn().Request("$JS.API."+what, nil, 2*time.Second)
		return err == nil && strings.Contains(string(m.Data), `"success":true`)
	}, "%s", what)
}
