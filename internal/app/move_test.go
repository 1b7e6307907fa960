package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// startRefused is why a relay does not start.
func startRefused(t *testing.T, cfg *config.Config) error {
	t.Helper()
	return Run(t.Context(), cfg, Options{
		Logger: slog.New(slog.DiscardHandler), Started: func(Addresses) { t.Error("the relay has started") },
	})
}

func moveOptions() MoveOptions {
	return MoveOptions{Version: "test", Logger: slog.New(slog.DiscardHandler), Person: audit.Person{User: "ada", Host: "h"}}
}

// ofMoves counts the entries about moves at the file sink.
func (r *running) ofMoves() (n int) {
	for rec, err := range readback.Records(r.path) {
		if err == nil && rec.Attributes["type"] == "journal.moved" {
			assert.Contains(r.t, string(rec.Body), `"person":{"host":"h","user":"ada"}`)
			n++
		}
	}
	return n
}

// A relay goes on where its journal was moved to, and refuses to start at the other place.
func TestARelayGoesOnWhereItsJournalWasMovedTo(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	away := config.Sink{Name: "away", Kafka: &config.Kafka{Brokers: []string{"127.0.0.1:1"}, Topic: "t"}}
	here := testConfig(t.TempDir(), away)
	there := *here
	there.Journal.URL, there.Journal.Replicas = srv.ClientURL(), 1
	cluster, disk := homeOf(there.Journal), Home{}

	require.NoError(t, os.Mkdir(here.DataDir, 0o700))
	_, err := MoveJournal(t.Context(), here, cluster, moveOptions())
	require.ErrorContains(t, err, "no relay has kept a journal")
	r := start(t, here)
	code, body := r.push("a", "b")
	require.Equal(t, http.StatusNoContent, code, body)
	r.arrived("a", "b")
	_, err = MoveJournal(t.Context(), here, cluster, moveOptions())
	require.ErrorContains(t, err, "is in use by process")
	plan, err := PlanMove(t.Context(), here, moveOptions())
	require.NoError(t, err)
	assert.Len(t, plan.Logs, 5)
	require.NoError(t, r.stop())

	err = startRefused(t, &there)
	require.ErrorIs(t, err, ErrMoved)
	require.ErrorContains(t, err, "'auditrelay journal move --to "+srv.ClientURL()+"'")
	_, err = MoveJournal(t.Context(), here, disk, moveOptions())
	require.ErrorIs(t, err, errNothingToMove)

	ctx, kill := context.WithCancelCause(t.Context())
	killed := moveOptions()
	killed.Progress = func(uint64, uint64) { kill(errors.New("killed")) }
	_, err = MoveJournal(ctx, &there, cluster, killed)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, startRefused(t, here), "was begun at")
	require.Error(t, startRefused(t, &there))
	_, err = MoveJournal(t.Context(), here, disk, moveOptions())
	require.ErrorIs(t, err, ErrTakenBack)
	r = start(t, here)
	code, body = r.push("c")
	require.Equal(t, http.StatusNoContent, code, body)
	r.arrived("a", "b", "c")
	require.NoError(t, r.stop())

	for range 2 { // the note is written last, and a crash may lose it
		_, err = MoveJournal(t.Context(), &there, cluster, moveOptions())
		require.NoError(t, err)
		require.NoError(t, os.Remove(filepath.Join(here.DataDir, homeFile)))
	}
	require.ErrorContains(t, startRefused(t, here), "this journal was moved to the journal with stream_prefix AUDITRELAY at "+srv.ClientURL())
	_, err = MoveJournal(t.Context(), &there, cluster, moveOptions())
	require.NoError(t, err)
	err = startRefused(t, here)
	require.ErrorIs(t, err, ErrMoved)
	require.ErrorContains(t, err, "the journal in the data directory was moved to the journal with stream_prefix AUDITRELAY at "+srv.ClientURL())

	r = start(t, &there)
	code, body = r.push("d")
	require.Equal(t, http.StatusNoContent, code, body)
	r.arrived("a", "b", "c", "d")
	waiting.Until(t, func() bool { return r.ofMoves() == 1 })
	second := there
	second.DataDir = t.TempDir()
	noted := homes{Used: &cluster}
	require.NoError(t, noted.write(second.DataDir))
	_, err = MoveJournal(t.Context(), &second, disk, moveOptions())
	require.ErrorContains(t, err, "some relays run on the journal with stream_prefix")
	require.NoError(t, r.stop())

	_, err = MoveJournal(t.Context(), &there, disk, moveOptions())
	require.NoError(t, err)
	require.ErrorContains(t, startRefused(t, &second), "this journal was moved to the data directory "+here.DataDir)
	r = start(t, here)
	code, body = r.push("e")
	require.Equal(t, http.StatusNoContent, code, body)
	r.arrived("a", "b", "c", "d", "e")
	waiting.Until(t, func() bool { return r.ofMoves() == 2 })
	require.NoError(t, r.stop())
	times := map[string]int{}
	for rec, err := range readback.Records(r.path) {
		require.NoError(t, err)
		times[rec.ID()]++
	}
	for id, n := range times {
		assert.Equal(t, 1, n, id)
	}
}
