package streamserver_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

var (
	testConfig = config.Journal{StreamPrefix: "TEST", MaxBytes: 256 << 20, ReplayWindow: time.Hour, Replicas: 1}
	silent     = slog.New(slog.DiscardHandler)
)

// opened is a whole journal, as homes are judged by its sinks and dead letters.
type opened struct {
	*journal.Journal
	conn *streamserver.Conn
}

func open(t *testing.T, dir string, cfg config.Journal) *opened {
	t.Helper()
	conn, err := streamserver.Connect(t.Context(), dir, cfg, silent)
	require.NoError(t, err)
	j, err := journal.Open(t.Context(), conn, cfg, journal.Options{Logger: silent, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	return &opened{j, conn}
}

func (o *opened) shut(t *testing.T) {
	t.Helper()
	o.Close()
	require.NoError(t, o.conn.Close())
}

func (o *opened) push(t *testing.T, events []relay.Event) {
	t.Helper()
	var b record.Batch
	for i := range events {
		b.AddEvent(&events[i])
	}
	require.NoError(t, o.Append(t.Context(), &b))
}

// take has sink k take n events one by one, and returns the first one's id.
func (o *opened) take(t *testing.T, n int) (first string) {
	t.Helper()
	s, err := o.Source(t.Context(), "k", relay.BatchLimit{Events: 1, Bytes: 1})
	require.NoError(t, err)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	before := o.acknowledged(t)
	for i := range n {
		b, err := s.Next(ctx)
		require.NoError(t, err, "after %d of %d events", i, n)
		require.NoError(t, s.Ack(ctx, b.Position))
		if i == 0 {
			first = b.Events[0].ID
		}
	}
	waiting.Until(t, func() bool { return o.acknowledged(t) == before+uint64(n) })
	return first
}

// acknowledged is the position of sink k.
func (o *opened) acknowledged(t *testing.T) uint64 {
	t.Helper()
	all, err := o.Positions.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0].Acknowledged
}

// refused says why a start with cfg is refused.
func refused(t *testing.T, dir string, cfg config.Journal) string {
	t.Helper()
	conn, err := streamserver.Connect(t.Context(), dir, cfg, silent)
	if err == nil {
		require.NoError(t, conn.Close())
	}
	require.ErrorIs(t, err, streamserver.ErrMoved)
	return err.Error()
}

// fill adds four events to a journal. Then sink k takes n of its undelivered ones.
func fill(t *testing.T, dir string, cfg config.Journal, n int) {
	t.Helper()
	j := open(t, dir, cfg)
	defer j.shut(t)
	for i := range 4 {
		j.push(t, relaytest.Events(1, relaytest.From(i)))
	}
	j.take(t, n)
}

func giveUp(t *testing.T, dir string, cfg config.Journal, home streamserver.Home) (left streamserver.Left) {
	t.Helper()
	require.NoError(t, streamserver.LetJournalGo(t.Context(), dir, cfg, home, silent, func(l streamserver.Left) error { left = l; return nil }))
	return left
}

func TestAnotherPrefixStrandsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, testConfig, 1)
	other := testConfig
	other.StreamPrefix = "OTHER"
	for range 2 { // a second start finds the same
		assert.Contains(t, refused(t, dir, other), "stream_prefix TEST in the data directory holds 3 undelivered events and 0 dead letters")
	}
	j := open(t, dir, testConfig) // as it advises
	j.take(t, 3)
	j.shut(t)
	j = open(t, dir, other)
	first := relaytest.Events(1, relaytest.From(100))
	j.push(t, first)
	assert.Equal(t, first[0].ID, j.take(t, 1), "the new journal begins anew, whatever the old one noted")
	j.shut(t)
	fill(t, dir, testConfig, 4) // and back again, where it goes on
}

func TestWhatIsKeptForNobodyIsNotStrandedEither(t *testing.T) {
	t.Parallel()
	other := testConfig
	other.StreamPrefix = "OTHER"

	dir := t.TempDir()
	j := open(t, dir, testConfig)
	j.push(t, relaytest.Events(5))
	j.shut(t)
	assert.Contains(t, refused(t, dir, other), "holds 5 undelivered events")
}

func TestAJournalIsLetGoByACommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, testConfig, 1)
	other := testConfig
	other.StreamPrefix = "OTHER"
	old := streamserver.Home{Prefix: "TEST"}
	err := streamserver.LetJournalGo(t.Context(), dir, testConfig, old, silent, nil)
	require.ErrorContains(t, err, "is the journal that the configuration names")
	err = streamserver.LetJournalGo(t.Context(), dir, other, streamserver.Home{Prefix: "TYPO"}, silent, nil)
	require.ErrorContains(t, err, "the relay never kept a journal with stream_prefix TYPO")
	err = streamserver.LetJournalGo(t.Context(), dir, other, old, silent, func(streamserver.Left) error { return assert.AnError })
	require.ErrorIs(t, err, assert.AnError)
	refused(t, dir, other)
	assert.Equal(t, streamserver.Left{Events: 3}, giveUp(t, dir, other, old))
	j := open(t, dir, other)
	require.Len(t, j.conn.LetGo, 1)
	assert.Equal(t, streamserver.Left{Events: 3}, j.conn.LetGo[0].Left)
	j.shut(t)
	j = open(t, dir, testConfig) // its files are there still
	defer j.shut(t)
	assert.Empty(t, j.conn.LetGo)
	j.take(t, 3)
}

func TestAMoveToAClusterAndBackStrandsNothing(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir())
	external := testConfig
	external.URL = srv.ClientURL()
	dir := t.TempDir()
	fill(t, dir, testConfig, 2)
	assert.Contains(t, refused(t, dir, external), "holds 2 undelivered events")
	fill(t, dir, testConfig, 6)

	fill(t, dir, external, 3)
	assert.Contains(t, refused(t, dir, testConfig), "1 records of one event or many are undelivered")
	sameCluster := external
	sameCluster.URL += ",nats://127.0.0.1:1"
	fill(t, dir, sameCluster, 5)
	natstest.Stop(srv)
	assert.Contains(t, refused(t, dir, testConfig), "it could not be looked into")
	giveUp(t, dir, testConfig, streamserver.Home{URL: sameCluster.URL, Prefix: "TEST"})
	open(t, dir, testConfig).shut(t)
}

// Early versions noted nothing about the embedded journal of a data directory.
func TestADirectoryWithoutANoteIsSearched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, testConfig, 1)
	require.NoError(t, os.Remove(filepath.Join(dir, "journals.json")))
	other := testConfig
	other.StreamPrefix = "OTHER"
	assert.Contains(t, refused(t, dir, other), "holds 3 undelivered events")
}
