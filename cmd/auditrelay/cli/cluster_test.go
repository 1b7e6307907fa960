package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/store/lease"
)

func TestClusterTable(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	of := app.ClusterStatus{
		This: "b.2", Now: now,
		Relays: []lease.Relay{{Name: "a.1", Heartbeat: now.Add(-300 * time.Millisecond)}, {Name: "b.2", Heartbeat: now.Add(time.Second)}, {Name: "c\x1b[2J"}},
		Jobs: []app.JobStatus{
			{Job: lease.Job{Name: "control", Epoch: 3}},
			{Job: lease.Job{Name: "sink/kafka", Holder: "a.1", Epoch: 7, Since: now.Add(-time.Minute)}, Position: &journal.SinkPosition{Acknowledged: 12, Pending: 2, Oldest: now.Add(-2 * time.Second)}},
			{Job: lease.Job{Name: "sink/nats", Holder: "b.2", Epoch: 1, Since: now}, Position: &journal.SinkPosition{Unknown: "it is damaged"}},
		},
	}
	assert.Equal(t, strings.TrimPrefix(`
RELAY  HEARTBEAT  JOBS
a.1         0.3s     1
b.2           0s     1  this one
c·[2J          -     0

JOB         DONE BY  EPOCH  SINCE  POSITION  PENDING  OLDEST
control     nobody       3      -
sink/kafka  a.1          7     1m        12        2      2s
sink/nats   b.2          1     0s   unknown  unknown       -
`, "\n"), printed(t, of))
	of.Shards, of.NextShards = 2, 3
	assert.Contains(t, printed(t, of), "\nThe events are spread over 2 shards, and are about to be spread over 3.\n\nJOB ")
	of.NextShards = 0
	assert.Contains(t, printed(t, of), "\nThe events are spread over 2 shards.\n\nJOB ")
	assert.Contains(t, printed(t, app.ClusterStatus{Now: now, Jobs: []app.JobStatus{{Job: lease.Job{Name: "sink/kafka"}, Position: &journal.SinkPosition{Acknowledged: 5}}}}),
		"There is no other one.\n\nJOB         DONE BY     SINCE  POSITION")
}

func printed(t *testing.T, s app.ClusterStatus) string {
	t.Helper()
	var b bytes.Buffer
	p := newPage(&b)
	printCluster(p, s)
	require.NoError(t, p.end())
	return b.String()
}

// What looks into files says where to look if a cluster keeps the journal.
func TestNoFilesOfACluster(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, os.WriteFile(file, []byte("data_dir: "+t.TempDir()+`
journal: {url: "nats://127.0.0.1:1", shards: 3}
environments: [{project: shop, environment: live, credentials: [{username: push, password: a-password-of-some-length}]}]
sinks: [{name: out, webhook: {url: "http://127.0.0.1:1/"}}]
`), 0o600))
	for _, command := range []string{"inspect", "verify", "repair"} {
		code, out, stderr := execute(t, "journal", command, "--config", file)
		assert.Equal(t, ExitFailure, code)
		assert.Empty(t, out)
		assert.Contains(t, stderr, "'auditrelay cluster status'", command)
	}
}
