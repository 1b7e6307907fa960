package journal

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal/quarantine"
	"github.com/auditrelay/auditrelay/internal/store/cluster"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// The same journal on JetStream: positions and backlogs survive a restart, trimming waits for
// every sink, and records of any age can be read back.
func TestAJournalOnACluster(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	cfg, dir := testConfig, t.TempDir()
	cfg.URL = srv.ClientURL()
	begin := func() (*opened, func()) {
		reg := prometheus.NewRegistry()
		s, err := cluster.Open(t.Context(), cluster.Config{Journal: cfg, Dir: dir, Version: "test", Logger: slog.New(slog.DiscardHandler), Registerer: reg})
		require.NoError(t, err)
		names, err := quarantine.Open(t.Context(), s, quarantine.Options{Logger: silent, Registerer: reg})
		require.NoError(t, err)
		j, err := Open(t.Context(), s, cfg, Options{Logger: silent, Registerer: reg, Quarantine: names})
		require.NoError(t, err)
		return &opened{Journal: j, names: names, reg: reg}, func() {
			j.Close()
			require.NoError(t, names.Close())
			require.NoError(t, s.Close())
		}
	}
	j, end := begin()
	events := relaytest.Events(40)
	for i := 0; i < len(events); i += 4 {
		j.push(t, events[i:i+4])
	}
	late := j.source(t, "late")
	s := j.source(t, "k")
	read(t, s, 20, true)
	s.Close()
	late.Close()
	end()

	j, end = begin()
	defer end()
	n, err := j.trimAll(t)
	require.NoError(t, err)
	assert.Zero(t, n, "late has had nothing")
	s = j.source(t, "k")
	defer s.Close()
	b, reading := j.Backlog("k")
	require.True(t, reading)
	left := int(b.Events)
	assert.LessOrEqual(t, left, 20)
	assert.Equal(t, ids(events[40-left:]), ids(read(t, s, left, true)))
	late = j.source(t, "late")
	defer late.Close()
	assert.Equal(t, ids(events), ids(read(t, late, 40, true)))
	require.NoError(t, j.table.Sync(t.Context()))
	n, err = j.trimAll(t)
	require.NoError(t, err)
	assert.EqualValues(t, 10, n)
	j.push(t, events[:4])
	u, err := j.Usage(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, u.Records)
}
