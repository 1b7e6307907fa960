package journal

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// refused says why a start with cfg is refused.
func refused(t *testing.T, dir string, cfg config.Journal) string {
	t.Helper()
	conn, err := Connect(t.Context(), dir, cfg, slog.New(slog.DiscardHandler))
	if err == nil {
		require.NoError(t, conn.Close())
	}
	require.ErrorIs(t, err, ErrMoved)
	return err.Error()
}

// fill adds four events to a journal, of which sink k takes n, beside those
// that it lacked.
func fill(t *testing.T, dir string, cfg config.Journal, n int) {
	t.Helper()
	j := open(t, dir, cfg)
	defer j.shut(t)
	for i := range 4 {
		j.push(t, relaytest.Events(1, relaytest.From(i)))
	}
	s, err := j.Source(t.Context(), "k", relay.BatchLimit{Events: 1, Bytes: 1})
	require.NoError(t, err)
	defer s.Close()
	info, err := s.consumer.Info(t.Context())
	require.NoError(t, err)
	read(t, s, n, true)
	waiting.Until(t, func() bool {
		at, err := s.consumer.Info(t.Context())
		return err == nil && at.AckFloor.Stream == info.AckFloor.Stream+uint64(n)
	})
}

func giveUp(t *testing.T, dir string, cfg config.Journal, home Home) Left {
	t.Helper()
	var left Left
	require.NoError(t, LetJournalGo(t.Context(), dir, cfg, home, slog.New(slog.DiscardHandler), func(l Left) error { left = l; return nil }))
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
	s := j.source(t, "k")
	read(t, s, 3, true)
	s.Close()
	j.shut(t)
	j = open(t, dir, other)
	first := relaytest.Events(1, relaytest.From(100))
	j.push(t, first)
	s = j.source(t, "k")
	assert.Equal(t, ids(first), ids(read(t, s, 1, true)), "the new journal begins anew, whatever the old one noted")
	s.Close()
	j.shut(t)
	fill(t, dir, testConfig, 4) // and back again, where it goes on
}

func TestWhatIsKeptForNobodyAndDeadLettersAreNotStrandedEither(t *testing.T) {
	t.Parallel()
	other := testConfig
	other.StreamPrefix = "OTHER"

	dir := t.TempDir()
	j := open(t, dir, testConfig)
	j.push(t, relaytest.Events(5))
	j.shut(t)
	assert.Contains(t, refused(t, dir, other), "holds 5 undelivered events")

	dir = t.TempDir()
	j = open(t, dir, testConfig)
	require.NoError(t, j.Reject(t.Context(), "k", []relay.Rejection{{Event: relaytest.Events(1)[0], Reason: "no", Attempts: 1}}))
	j.shut(t)
	assert.Contains(t, refused(t, dir, other), "holds 0 undelivered events and 1 dead letters")
}

func TestAJournalIsLetGoByACommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, testConfig, 1)
	other := testConfig
	other.StreamPrefix = "OTHER"
	log := slog.New(slog.DiscardHandler)
	old := Home{Prefix: "TEST"}
	err := LetJournalGo(t.Context(), dir, testConfig, old, log, nil)
	require.ErrorContains(t, err, "is the journal that the configuration names")
	err = LetJournalGo(t.Context(), dir, other, Home{Prefix: "TYPO"}, log, nil)
	require.ErrorContains(t, err, "the relay never kept a journal with stream_prefix TYPO")
	err = LetJournalGo(t.Context(), dir, other, old, log, func(Left) error { return assert.AnError })
	require.ErrorIs(t, err, assert.AnError)
	refused(t, dir, other)
	assert.Equal(t, Left{Events: 3}, giveUp(t, dir, other, old))
	j := open(t, dir, other)
	require.Len(t, j.conn.LetGo, 1)
	assert.Equal(t, Left{Events: 3}, j.conn.LetGo[0].Left)
	j.shut(t)
	j = open(t, dir, testConfig) // its files are there still
	defer j.shut(t)
	assert.Empty(t, j.conn.LetGo)
	s := j.source(t, "k")
	defer s.Close()
	read(t, s, 3, true)
}

func TestAMoveToAClusterAndBackStrandsNothing(t *testing.T) {
	t.Parallel()
	srv := startExternal(t, t.TempDir(), 0)
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
	srv.Shutdown()
	srv.WaitForShutdown()
	assert.Contains(t, refused(t, dir, testConfig), "it could not be looked into")
	giveUp(t, dir, testConfig, Home{URL: sameCluster.URL, Prefix: "TEST"})
	open(t, dir, testConfig).shut(t)
}

// The embedded journal of a data directory from before this was noted.
func TestADirectoryWithoutANoteIsSearched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, testConfig, 1)
	require.NoError(t, (&homes{}).write(dir))
	other := testConfig
	other.StreamPrefix = "OTHER"
	assert.Contains(t, refused(t, dir, other), "holds 3 undelivered events")
}
