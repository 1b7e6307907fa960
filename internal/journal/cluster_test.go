package journal

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/journal/quarantine"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/cluster"
	"github.com/auditrelay/auditrelay/internal/store/lease"
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

// Of two relays on a cluster, the one that has lost its turn moves no position and trims
// nothing, whatever it has read.
func TestNoPositionMovesAfterTheTurn(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	cfg := testConfig
	cfg.URL = srv.ClientURL()
	reg := prometheus.NewRegistry()
	connect := func(reg prometheus.Registerer) *cluster.Store {
		s, err := cluster.Open(t.Context(), cluster.Config{Journal: cfg, Dir: t.TempDir(), Version: "test", Logger: slog.New(slog.DiscardHandler), Registerer: reg})
		require.NoError(t, err)
		return s
	}
	s, other := connect(reg), connect(prometheus.NewRegistry())
	const epoch = "cluster/epoch/relay"
	rev, err := s.Table().Put(t.Context(), epoch, []byte("1"), store.If{})
	require.NoError(t, err)
	names, err := quarantine.Open(t.Context(), s, quarantine.Options{Logger: silent, Registerer: reg})
	require.NoError(t, err)
	opening, err := Open(t.Context(), s, cfg, Options{Logger: silent, Registerer: reg, Quarantine: names, Turn: lease.NewTurn("relay", rev)})
	require.NoError(t, err)
	j := &opened{Journal: opening, names: names, reg: reg}
	defer func() {
		j.Close()
		require.NoError(t, names.Close())
		require.NoError(t, errors.Join(s.Close(), other.Close()))
	}()
	events := relaytest.Events(8)
	j.push(t, events[:4])
	source := j.source(t, "k")
	defer source.Close()
	read(t, source, 4, true)
	require.NoError(t, s.Table().Sync(t.Context()))
	before, err := s.Table().Get(t.Context(), positionKey+"k")
	require.NoError(t, err)

	_, err = other.Table().Put(t.Context(), epoch, []byte("2"), store.If{Key: epoch, Rev: rev}) // the other relay takes over
	require.NoError(t, err)
	j.push(t, events[4:])
	read(t, source, 4, true)
	require.ErrorIs(t, s.Table().Sync(t.Context()), store.ErrConflict)
	after, err := s.Table().Get(t.Context(), positionKey+"k")
	require.NoError(t, err)
	assert.Equal(t, before, after)
	_, err = j.Trim(t.Context(), time.Now().Add(time.Hour))
	require.ErrorIs(t, err, store.ErrConflict)
}
