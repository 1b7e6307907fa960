// Package journaltest opens journals for the tests of other rooms.
package journaltest

import (
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/store/disk"
)

// Journal is a journal on a store on disk, in the folder where a relay keeps its own.
type Journal struct {
	*journal.Journal // its only log
	Set              *journal.Set
	Store            *disk.Store
	Quarantine       *journal.Quarantine
	// Shut closes everything, once. It runs at the end of the test.
	Shut func()
}

// Options are what a test may change.
type Options struct {
	Journal journal.Options
	Lost    func()
}

// Open opens the journal of a data directory.
func Open(t testing.TB, dataDir string, cfg config.Journal, opts Options) *Journal {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, err := disk.Open(disk.Config{
		Dir: filepath.Join(dataDir, "store"), Salvage: filepath.Join(dataDir, "salvage"), Writer: "test", Logger: log,
	})
	require.NoError(t, err)
	reg := prometheus.NewRegistry()
	names, err := journal.OpenQuarantine(t.Context(), s, journal.QuarantineOptions{Logger: log, Registerer: reg, Fuse: true, Lost: opts.Lost})
	require.NoError(t, err)
	opts.Journal.Logger, opts.Journal.Registerer, opts.Journal.Quarantine = log, reg, names
	set, err := journal.Open(t.Context(), s, cfg, opts.Journal)
	require.NoError(t, err)
	o := &Journal{Journal: set.Logs()[0], Set: set, Store: s, Quarantine: names}
	o.Shut = sync.OnceFunc(func() {
		set.Close()
		assert.NoError(t, names.Close())
		assert.NoError(t, s.Close())
	})
	t.Cleanup(o.Shut)
	return o
}
