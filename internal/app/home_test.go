package app

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
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// settle does what a start does about the journal's home.
func settle(t *testing.T, cfg *config.Config) error {
	t.Helper()
	r := runsWith(&process{log: slog.New(slog.DiscardHandler)}, cfg)
	if err := r.settleHome(t.Context()); err != nil {
		return err
	}
	return r.noteHome()
}

// keep starts on a journal, and has a sink take n of so many new events, one to a record, and
// of those from before.
func keep(t *testing.T, cfg *config.Config, events, n, letters int) {
	t.Helper()
	require.NoError(t, settle(t, cfg))
	log := slog.New(slog.DiscardHandler)
	s, err := OpenStore(t.Context(), cfg, StoreOptions{Logger: log, Failed: func(err error) { t.Error(err) }})
	require.NoError(t, err)
	names, err := journal.OpenQuarantine(t.Context(), s, journal.QuarantineOptions{Logger: log, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	set, err := journal.Open(t.Context(), s, cfg.Journal, journal.Options{Logger: log, Registerer: prometheus.NewRegistry(), Quarantine: names})
	require.NoError(t, err)
	for range events {
		var b record.Batch
		b.AddEvent(&relaytest.Events(1)[0])
		require.NoError(t, set.Append(t.Context(), &b))
	}
	if n > 0 {
		source, err := set.Logs()[0].Source(t.Context(), "k", relay.BatchLimit{Events: 1, Bytes: 1})
		require.NoError(t, err)
		for range n {
			b, err := source.Next(t.Context())
			require.NoError(t, err)
			require.NoError(t, source.Ack(t.Context(), b.Position))
		}
		source.Close()
	}
	dead, err := deadletters.Open(t.Context(), deadletters.Options{Store: s, Quarantine: names, Logger: log, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	for range letters {
		require.NoError(t, dead.Reject(t.Context(), "k", []relay.Rejection{{Event: relaytest.Events(1)[0], Reason: "no", Attempts: 1}}))
	}
	require.NoError(t, dead.Close())
	set.Close()
	require.NoError(t, names.Close())
	require.NoError(t, s.Close())
}

// homeConfig is a configuration on a directory, and another one on a cluster of its own.
func homeConfig(t *testing.T, url string) (onDisk, onCluster *config.Config) {
	t.Helper()
	onDisk = &config.Config{DataDir: t.TempDir()}
	onDisk.SetDefaults()
	onDisk.Journal.MaxBytes = 64 << 20
	other := *onDisk
	other.Journal.URL = url
	return onDisk, &other
}

func TestAMoveToAClusterAndBackStrandsNothing(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	onDisk, onCluster := homeConfig(t, srv.ClientURL())
	keep(t, onDisk, 4, 2, 0)
	for range 2 { // a second start finds the same
		err := settle(t, onCluster)
		require.ErrorIs(t, err, ErrMoved)
		require.ErrorContains(t, err, "the journal in the data directory holds 2 undelivered events and 0 dead letters, which would never be delivered")
	}
	keep(t, onDisk, 0, 2, 0) // as it advises

	keep(t, onCluster, 4, 3, 1)
	err := settle(t, onDisk)
	require.ErrorContains(t, err, "holds 1 undelivered events and 1 dead letters")
	sameCluster := *onCluster
	sameCluster.Journal.URL += ",nats://127.0.0.1:1"
	keep(t, &sameCluster, 0, 1, 0)
	natstest.Stop(srv)
	err = settle(t, onDisk)
	require.ErrorIs(t, err, ErrMoved)
	require.ErrorContains(t, err, "it could not be looked into")
	require.NoError(t, LetJournalGo(t.Context(), onDisk, homeOf(sameCluster.Journal), audit.Person{}, slog.New(slog.DiscardHandler), func(left Left) error {
		assert.NotEmpty(t, left.Doubt)
		return nil
	}))
	err = settle(t, onDisk)
	require.NoError(t, err)
}

// A first start with a mistyped address binds the relay to nothing.
func TestAnAddressWhereNobodyAnswersIsNotNoted(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	mistyped := *cfg
	mistyped.Journal.URL = "nats://127.0.0.1:1"
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that it does not wait for servers that are starting
	require.NoError(t, makeDataDir(cfg.DataDir))
	r := newProcess(&mistyped, Options{Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, r.startStore(ctx), "journal.url nats://127.0.0.1:1: connect to the journal's NATS")
	require.NoError(t, r.stack.unwind(t.Context()))
	require.NoError(t, settle(t, cfg))
}

func TestEventsForNobodyAndDeadLettersAreNotStranded(t *testing.T) {
	t.Parallel()
	onDisk, onCluster := homeConfig(t, "nats://127.0.0.1:1")
	keep(t, onDisk, 5, 0, 0)
	err := settle(t, onCluster)
	require.ErrorContains(t, err, "holds 5 undelivered events and 0 dead letters")

	onDisk, onCluster = homeConfig(t, "nats://127.0.0.1:1")
	keep(t, onDisk, 1, 1, 1)
	err = settle(t, onCluster)
	require.ErrorContains(t, err, "holds 0 undelivered events and 1 dead letters")
	require.NoError(t, os.WriteFile(filepath.Join(onDisk.DataDir, homeFile), []byte("damaged"), 0o600))
	err = settle(t, onCluster)
	require.ErrorContains(t, err, "holds 0 undelivered events and 1 dead letters", "the folder tells as well")
}

func TestAJournalIsLetGoByACommand(t *testing.T) {
	t.Parallel()
	onDisk, onCluster := homeConfig(t, "nats://127.0.0.1:1")
	log := slog.New(slog.DiscardHandler)
	require.ErrorContains(t, LetJournalGo(t.Context(), onCluster, Home{}, audit.Person{}, log, nil), "the relay never kept the journal in the data directory")
	keep(t, onDisk, 4, 1, 0)
	require.ErrorContains(t, LetJournalGo(t.Context(), onDisk, Home{}, audit.Person{}, log, nil), "is the one that the configuration names")
	require.ErrorContains(t, LetJournalGo(t.Context(), onCluster, Home{URL: "nats://typo", Prefix: "X"}, audit.Person{}, log, nil), "the relay does not keep the journal with stream_prefix X at nats://typo; it keeps the journal in the data directory")
	require.ErrorIs(t, LetJournalGo(t.Context(), onCluster, Home{}, audit.Person{}, log, func(Left) error { return assert.AnError }), assert.AnError)
	err := settle(t, onCluster)
	require.ErrorIs(t, err, ErrMoved)
	require.NoError(t, LetJournalGo(t.Context(), onCluster, Home{}, audit.Person{}, log, func(left Left) error {
		assert.Equal(t, Left{Events: 3}, left)
		return nil
	}))
	for range 2 {
		r := runsWith(&process{log: log}, onCluster)
		require.NoError(t, r.settleHome(t.Context()))
		require.Len(t, r.homes.LetGo, 1)
		assert.Equal(t, Left{Events: 3}, r.homes.LetGo[0].Left)
		assert.WithinDuration(t, time.Now(), r.homes.LetGo[0].Time, time.Minute)
	}
}

// A journal that was given up stands in the trail, once.
func TestAJournalThatWasLetGoIsAnEntry(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	cfg := testConfig(t.TempDir())
	r := start(t, cfg)
	r.push("before")
	r.arrived("before")
	require.NoError(t, r.stop())
	cfg.Journal.URL = srv.ClientURL()
	require.NoError(t, LetJournalGo(t.Context(), cfg, Home{}, audit.Person{User: "ada", Host: "h"}, slog.New(slog.DiscardHandler), func(Left) error { return nil }))
	for range 2 {
		r = start(t, cfg)
		r.push("after")
		entries := 0
		for entries == 0 {
			for _, rec := range r.arrived("after") {
				if rec.Attributes["type"] == "journal.let_go" {
					assert.Contains(t, string(rec.Body), `"person":{"host":"h","user":"ada"}`)
					entries++
				}
			}
		}
		assert.Equal(t, 1, entries)
		require.NoError(t, r.stop())
	}
}

// What --to names is the data directory or could be journal.url. All else is refused before anything is
// looked for, and a password is not repeated.
func TestWhereAJournalMayBeMovedTo(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Sinks[0].File.Path = "" // what else is wrong is not about --to
	home, err := HomeAt("disk", cfg)
	require.NoError(t, err)
	assert.Equal(t, Home{}, home)
	home, err = HomeAt("nats://n1:4222,tls://n2:4222", cfg)
	require.NoError(t, err)
	assert.Equal(t, Home{"nats://n1:4222,tls://n2:4222", cfg.Journal.StreamPrefix}, home)
	for _, to := range []string{"", "Disk", "disk ", "n1:4222", "nats://", "nats://ada:the-password@n1:4222", "nats://n1:4222,"} {
		_, err := HomeAt(to, cfg)
		require.ErrorContains(t, err, "--to", to)
		require.ErrorContains(t, err, "journal.url", to)
		assert.NotContains(t, err.Error(), "the-password")
	}
}
